/* A scheduler in plain C11: one bucket for each gradient, with its candidates by turns, and a new
 * plan after every step. */
#include <penstock/plugin.h>
#include <stdlib.h>

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

static const penstock_host* host;

struct turns {
  uint32_t turn; /* observed steps, because plan itself has no state */
};

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  (void)options;
  (void)n_options;
  *instance = calloc(1, sizeof(struct turns));
  if (*instance == NULL) {
    const penstock_str text = TEXT("turns-c: no memory for an instance");
    return host->status_new(host->context, PENSTOCK_OUT_OF_MEMORY, text);
  }
  return NULL;
}

static void destroy(void* instance) {
  free(instance);
}

static penstock_status* describe(void* instance, penstock_scheduler_traits* traits) {
  (void)instance;
  traits->routes = 1u << PENSTOCK_ROUTE_FLAT;
  traits->flags = PENSTOCK_SCHEDULER_CHOOSES | PENSTOCK_SCHEDULER_MEASURES;
  traits->observe_every = 1;
  return NULL;
}

static penstock_status* plan(void* instance, const penstock_model* model,
                             const penstock_plan_sink* sink) {
  const struct turns* self = instance;
  uint64_t i;
  for (i = 0; i < model->n_gradients; ++i) {
    const penstock_gradient_model* gradient = model->gradients[i];
    penstock_piece piece = {.struct_size = sizeof piece};
    const penstock_piece* pieces[1];
    penstock_bucket bucket = {.struct_size = sizeof bucket};
    penstock_status* status;
    piece.gradient = i;
    piece.numel = gradient->numel;
    piece.choice = self->turn % gradient->n_candidates;
    piece.device_type = PENSTOCK_DEVICE_CPU;
    pieces[0] = &piece;
    bucket.pieces = pieces;
    bucket.n_pieces = 1;
    bucket.route = PENSTOCK_ROUTE_FLAT;
    status = sink->add_bucket(sink->context, &bucket);
    if (status != NULL) return status;
  }
  return NULL;
}

static penstock_status* observe(void* instance, const penstock_measurement* measurement,
                                uint32_t* decision) {
  struct turns* self = instance;
  (void)measurement;
  ++self->turn;
  *decision = PENSTOCK_MAKE_NEW_PLAN;
  return NULL;
}

static const penstock_scheduler table = {.struct_size = sizeof table,
                                         .create = create,
                                         .destroy = destroy,
                                         .describe = describe,
                                         .plan = plan,
                                         .observe = observe};
static const penstock_module module = {sizeof module, &table, NULL, 0};

static penstock_status* load(const penstock_host* given, const penstock_module** result) {
  host = given;
  *result = &module;
  return NULL;
}

const penstock_plugin_record penstock_plugin = {.magic = PENSTOCK_PLUGIN_MAGIC,
                                                .struct_size = sizeof penstock_plugin,
                                                .abi_major = PENSTOCK_ABI_MAJOR,
                                                .abi_minor = PENSTOCK_ABI_MINOR,
                                                .min_host_minor = 0,
                                                .kind = PENSTOCK_KIND_SCHEDULER,
                                                .id = "scheduler/turns-c",
                                                .version = "1.0.0",
                                                .summary = "Candidates in turn, in plain C.",
                                                .license = "Apache-2.0",
                                                .source = "",
                                                .load = load};
