/* A scheduler in plain C11: one bucket for each gradient, in the order of backward. With BACKWARDS
 * it has another id and also lists the messages, in the reverse order of the buckets. SPOIL is a
 * statement that makes an invalid bucket. */
#include <penstock/plugin.h>
#include <stddef.h>

#ifdef BACKWARDS
#define ID "scheduler/backwards"
#else
#define ID "scheduler/each-c"
#endif

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  (void)options;
  (void)n_options;
  *instance = NULL;
  return NULL;
}

static void destroy(void* instance) {
  (void)instance;
}

static penstock_status* describe(void* instance, penstock_scheduler_traits* traits) {
  (void)instance;
  traits->routes = (uint64_t)1 << PENSTOCK_ROUTE_FLAT;
  return NULL;
}

static penstock_status* plan(void* instance, const penstock_model* model,
                             const penstock_plan_sink* sink) {
  uint32_t phase;
  uint64_t i;
  (void)instance;
  for (phase = 0; phase < model->period; ++phase) {
    for (i = 0; i < model->n_gradients; ++i) {
      const uint64_t gradient = model->order[i];
      penstock_piece piece = {.struct_size = sizeof piece,
                              .gradient = gradient,
                              .numel = model->gradients[gradient]->numel,
                              .device_type = PENSTOCK_DEVICE_CPU};
      const penstock_piece* pieces[1];
      penstock_bucket bucket = {.struct_size = sizeof bucket,
                                .n_pieces = 1,
                                .route = PENSTOCK_ROUTE_FLAT,
                                .phase = phase};
      penstock_status* status;
      pieces[0] = &piece;
      bucket.pieces = pieces;
#ifdef SPOIL
      SPOIL;
#endif
      status = sink->add_bucket(sink->context, &bucket);
      if (status != NULL) return status;
    }
#ifdef BACKWARDS
    for (i = model->n_gradients; i > 0; --i) {
      penstock_status* status = sink->add_message(sink->context, phase, (uint32_t)(i - 1), 0, 0);
      if (status != NULL) return status;
    }
#endif
  }
  return NULL;
}

static const penstock_scheduler table = {.struct_size = sizeof table,
                                         .create = create,
                                         .destroy = destroy,
                                         .describe = describe,
                                         .plan = plan};
static const penstock_module module = {sizeof module, &table, NULL, 0};

static penstock_status* load(const penstock_host* host, const penstock_module** result) {
  (void)host;
  *result = &module;
  return NULL;
}

const penstock_plugin_record penstock_plugin = {
    .magic = PENSTOCK_PLUGIN_MAGIC,
    .struct_size = sizeof penstock_plugin,
    .abi_major = PENSTOCK_ABI_MAJOR,
    .abi_minor = PENSTOCK_ABI_MINOR,
    .min_host_minor = 0,
    .kind = PENSTOCK_KIND_SCHEDULER,
    .id = ID,
    .version = "1.0.0",
    .summary = "A bucket for each gradient, in plain C.",
    .license = "Apache-2.0",
    .source = "",
    .load = load};
