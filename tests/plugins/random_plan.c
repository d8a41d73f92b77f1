/* A scheduler in plain C11 with random plans: random cuts, buckets, orders, routes (of the allowed
 * routes), candidates, phases and start times. A plan is a pure function of the options and of the
 * last step that `observe` saw. `observe` asks for a new plan after every step. */
#include <penstock/plugin.h>
#include <stdlib.h>

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

enum { MOST_CUTS = 3, MOST_PIECES = MOST_CUTS + 1 };

static const penstock_host* host;

struct random_plan {
  uint64_t seed;
  uint64_t routes;     /* bit per PENSTOCK_ROUTE_* */
  uint64_t leaves_out; /* leaves matrices out of some phases; the memory must keep values */
  uint64_t step;       /* of the last call of `observe` */
};

/* The random choices for a gradient. */
struct drawn {
  uint64_t route;
  uint64_t phase; /* phase in which the gradient always is */
};

struct placed {
  penstock_piece piece;
  uint64_t route;
  uint64_t bucket;
};

static penstock_status* no_memory(void) {
  const penstock_str text = TEXT("random-plan-c: no memory");
  return host->status_new(host->context, PENSTOCK_OUT_OF_MEMORY, text);
}

/* SplitMix64. */
static uint64_t draw(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static uint64_t below(uint64_t* state, uint64_t bound) {
  return draw(state) % bound;
}

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  struct random_plan* self = calloc(1, sizeof *self);
  if (self == NULL || n_options != 3) {
    free(self);
    return no_memory();
  }
  self->seed = (uint64_t)options[0]->integer;
  self->routes = (uint64_t)options[1]->integer;
  self->leaves_out = (uint64_t)options[2]->integer;
  *instance = self;
  return NULL;
}

static void destroy(void* instance) {
  free(instance);
}

static penstock_status* describe(void* instance, penstock_scheduler_traits* traits) {
  const struct random_plan* self = instance;
  traits->routes = self->routes;
  traits->flags = PENSTOCK_SCHEDULER_CHOOSES;
  traits->observe_every = 1;
  return NULL;
}

static uint64_t draw_route(const struct random_plan* self, const penstock_model* model,
                           uint64_t* state) {
  uint64_t route;
  if (model->route != 0) return model->route;
  do route = below(state, 8);
  while ((self->routes >> route & 1) == 0);
  return route;
}

/* The pieces of a gradient in a phase, cut at the multiples that its candidate allows. */
static uint64_t cut(const penstock_gradient_model* gradient, uint64_t number, uint32_t choice,
                    uint64_t* state, struct placed* pieces) {
  const uint64_t alignment = gradient->candidates[choice]->part_alignment;
  const uint64_t units = alignment == 0 ? 0 : gradient->numel / alignment;
  uint64_t wanted = units < 2 ? 0 : below(state, MOST_CUTS + 1);
  uint64_t n = 0, first = 0;
  for (;;) {
    const uint64_t left = (gradient->numel - first) / (alignment == 0 ? 1 : alignment);
    uint64_t numel = gradient->numel - first;
    if (wanted > 0 && left >= 2) numel = alignment * (1 + below(state, left - 1));
    pieces[n].piece = (penstock_piece){.struct_size = sizeof pieces[n].piece,
                                       .gradient = number,
                                       .first = first,
                                       .numel = numel,
                                       .choice = choice,
                                       .device_type = PENSTOCK_DEVICE_CPU};
    ++n;
    first += numel;
    if (first == gradient->numel) return n;
    --wanted;
  }
}

static penstock_status* add_bucket(const penstock_plan_sink* sink, const struct placed* all,
                                   uint64_t n, uint64_t number, uint64_t route, uint32_t phase,
                                   const penstock_piece** pieces, uint64_t* state,
                                   uint32_t* n_buckets) {
  penstock_bucket bucket = {.struct_size = sizeof bucket, .pieces = pieces, .phase = phase};
  uint64_t i;
  for (i = 0; i < n; ++i)
    if (all[i].bucket == number && all[i].route == route) pieces[bucket.n_pieces++] = &all[i].piece;
  if (bucket.n_pieces == 0) return NULL;
  bucket.route = (uint32_t)route;
  bucket.launch = below(state, 2) ? PENSTOCK_LAUNCH_READY : PENSTOCK_LAUNCH_SET_COMPLETE;
  ++*n_buckets;
  return sink->add_bucket(sink->context, &bucket);
}

/* The first messages of all buckets, in a random order. The other messages follow. */
static penstock_status* add_messages(const penstock_plan_sink* sink, uint32_t phase,
                                     uint32_t n_buckets, uint64_t* state) {
  const uint32_t offset = (uint32_t)below(state, n_buckets);
  uint32_t i;
  for (i = 0; i < n_buckets; ++i) {
    const uint32_t bucket = n_buckets - 1 - (i + offset) % n_buckets;
    penstock_status* status = sink->add_message(sink->context, phase, bucket, 0, 0);
    if (status != NULL) return status;
  }
  return NULL;
}

static penstock_status* plan_phase(const penstock_model* model, uint32_t phase,
                                   const struct random_plan* self, const struct drawn* gradients,
                                   const penstock_plan_sink* sink, uint64_t* state,
                                   struct placed* all, const penstock_piece** pieces) {
  uint64_t n = 0, n_groups, group, route, i;
  uint32_t n_buckets = 0;
  for (i = 0; i < model->n_gradients; ++i) {
    const penstock_gradient_model* gradient = model->gradients[i];
    const uint32_t choice = (uint32_t)below(state, gradient->n_candidates);
    const uint64_t before = n;
    if (self->leaves_out && gradient->n_dims >= 2 && gradients[i].phase != phase &&
        below(state, 4) == 0)
      continue;
    n += cut(gradient, i, choice, state, all + n);
    for (uint64_t p = before; p < n; ++p) all[p].route = gradients[i].route;
  }
  if (n == 0) return NULL;
  n_groups = 1 + below(state, n);
  for (i = 0; i < n; ++i) all[i].bucket = below(state, n_groups);
  for (group = 0; group < n_groups; ++group)
    for (route = 0; route < 8; ++route) {
      penstock_status* status =
          add_bucket(sink, all, n, group, route, phase, pieces, state, &n_buckets);
      if (status != NULL) return status;
    }
  return below(state, 2) ? add_messages(sink, phase, n_buckets, state) : NULL;
}

static penstock_status* plan(void* instance, const penstock_model* model,
                             const penstock_plan_sink* sink) {
  const struct random_plan* self = instance;
  uint64_t state = self->seed * 1000003u + self->step;
  const uint64_t most = (model->n_gradients + 1) * MOST_PIECES;
  struct placed* all = calloc(most, sizeof *all);
  const penstock_piece** pieces = calloc(most, sizeof *pieces);
  struct drawn* gradients = calloc(model->n_gradients + 1, sizeof *gradients);
  penstock_status* status = NULL;
  uint64_t i;
  uint32_t phase;
  if (all == NULL || pieces == NULL || gradients == NULL) status = no_memory();
  for (i = 0; i < model->n_gradients && status == NULL; ++i) {
    gradients[i].route = draw_route(self, model, &state);
    gradients[i].phase = below(&state, model->period);
  }
  for (phase = 0; phase < model->period && status == NULL; ++phase)
    status = plan_phase(model, phase, self, gradients, sink, &state, all, pieces);
  free(all);
  free(pieces);
  free(gradients);
  return status;
}

static penstock_status* observe(void* instance, const penstock_measurement* measurement,
                                uint32_t* decision) {
  struct random_plan* self = instance;
  self->step = measurement->step;
  *decision = PENSTOCK_MAKE_NEW_PLAN;
  return NULL;
}

static const penstock_scheduler table = {.struct_size = sizeof table,
                                         .create = create,
                                         .destroy = destroy,
                                         .describe = describe,
                                         .plan = plan,
                                         .observe = observe};

static const penstock_option seed_option = {.struct_size = sizeof(penstock_option),
                                            .name = TEXT("seed"),
                                            .summary = TEXT("what the plans are drawn from"),
                                            .maximum = 1e15,
                                            .type = PENSTOCK_OPTION_INTEGER};
static const penstock_option routes_option = {
    .struct_size = sizeof(penstock_option),
    .name = TEXT("routes"),
    .summary = TEXT("bit per route that plans may use where the scheme leaves it open"),
    .minimum = 2,
    .maximum = 30,
    .default_integer = 1 << PENSTOCK_ROUTE_FLAT,
    .type = PENSTOCK_OPTION_INTEGER};
static const penstock_option leaves_out_option = {
    .struct_size = sizeof(penstock_option),
    .name = TEXT("leaves_out"),
    .summary = TEXT("matrices may be left out of phases, which then only compensate them"),
    .type = PENSTOCK_OPTION_BOOL};
static const penstock_option* const options[] = {&seed_option, &routes_option, &leaves_out_option};
static const penstock_module module = {sizeof module, &table, options, 3};

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
                                                .id = "scheduler/random-plan-c",
                                                .version = "1.0.0",
                                                .summary = "Draws its plans, in plain C.",
                                                .license = "Apache-2.0",
                                                .source = "",
                                                .load = load};
