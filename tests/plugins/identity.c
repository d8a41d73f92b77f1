/* A compressor in plain C11: sends every entry times `share`, and subtracts the sent values from
 * `work`. It proves that a plugin needs no C++ and no SDK library, only the headers. Macros:
 * SCRATCH: asks for memory for all items of a call.
 * INTEGERS: takes integers.
 * GATHERS: gathers, and sends nothing for an empty gradient.
 * MUTE: a rank whose label is "mute" sends nothing.
 * HANGS: a call of rank 1 never returns.
 * LATE: plan takes four seconds if the label is "mute", create if the label is "late".
 * SLOW: encode takes 1000 us and 50 us for each element, decode half.
 * SIBORROWED: rank 1 sends nothing from step 1 on.
 * SPOIL: a statement that makes the plan invalid. */
#include <math.h>
#include <penstock/plugin.h>
#include <stdlib.h>
#include <string.h>
#if defined(HANGS) || defined(LATE)
#include <unistd.h>
#endif
#ifdef SLOW
#include <time.h>
#endif

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

#ifdef INTEGERS
typedef int32_t element;
#define DTYPE PENSTOCK_INT32
#else
typedef float element;
#define DTYPE PENSTOCK_FLOAT32
#endif

#ifndef IDENTITY_VERSION
#define IDENTITY_VERSION "1.2.3"
#endif

/* The last host that loaded this plugin. Errors are made by this host. */
static const penstock_host* host;

static penstock_status* fail(uint32_t code, const char* message) {
  const penstock_str text = {message, strlen(message)};
  return host->status_new(host->context, code, text);
}

/* The need of one item, with everything to which the need points. */
struct planned {
  penstock_section_bound bound;
  const penstock_section_bound* bounds[1];
  penstock_round round;
  const penstock_round* rounds[1];
};

struct identity {
  double share;
  int mute; /* MUTE: this rank plans no round; LATE: it plans slowly */
  struct planned* planned;
};

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  struct identity* self;
  if (n_options != 2)
    return fail(PENSTOCK_INTERNAL, "identity-c: expected the values of 2 options");
  self = calloc(1, sizeof *self);
  if (self == NULL) return fail(PENSTOCK_OUT_OF_MEMORY, "identity-c: no memory for an instance");
  self->share = options[0]->real;
#if defined(MUTE) || defined(LATE)
  self->mute = options[1]->text.size == 4 && memcmp(options[1]->text.data, "mute", 4) == 0;
#endif
#ifdef LATE
  if (options[1]->text.size == 4 && memcmp(options[1]->text.data, "late", 4) == 0) sleep(4);
#endif
  *instance = self;
  return NULL;
}

static void destroy(void* instance) {
  struct identity* self = instance;
  if (self == NULL) return;
  free(self->planned);
  free(self);
}

static penstock_status* describe(void* instance, penstock_compressor_traits* traits) {
  (void)instance;
  traits->dtypes = PENSTOCK_DTYPE_BIT(DTYPE);
  traits->device_types = (uint64_t)1 << PENSTOCK_DEVICE_CPU;
  traits->folds = 0;
  traits->flags = 0;
  return NULL;
}

static penstock_status* plan(void* instance, uint32_t phase, uint32_t world,
                             const penstock_item* const* items, uint64_t n_items,
                             penstock_compressor_need* const* needs) {
  struct identity* self = instance;
  uint64_t i;
  struct planned* planned = calloc(n_items > 0 ? n_items : 1, sizeof *planned);
  (void)phase;
  (void)world;
#ifdef LATE
  if (self->mute) sleep(4);
#endif
  if (planned == NULL) return fail(PENSTOCK_OUT_OF_MEMORY, "identity-c: no memory for a plan");
  free(self->planned);
  self->planned = planned;
  for (i = 0; i < n_items; ++i) {
    struct planned* p = &planned[i];
    p->bound.struct_size = sizeof p->bound;
    p->bound.capacity = items[i]->numel;
    p->bound.role = PENSTOCK_ROLE_VALUES;
    p->bound.dtype = DTYPE;
    p->bound.split = PENSTOCK_SPLIT_BY_ELEMENT;
    p->bound.flags = PENSTOCK_SECTION_EXACT;
    p->bounds[0] = &p->bound;
    p->round.struct_size = sizeof p->round;
    p->round.sections = p->bounds;
    p->round.n_sections = 1;
#ifdef GATHERS
    p->round.combine = PENSTOCK_COMBINE_GATHER;
#else
    p->round.combine = PENSTOCK_COMBINE_SUM;
#endif
    p->round.result = PENSTOCK_RESULT_MEAN;
    p->rounds[0] = &p->round;
    needs[i]->rounds = p->rounds;
    needs[i]->n_rounds = 1;
    needs[i]->part_alignment = 1;
    needs[i]->period = 1;
    needs[i]->scope = PENSTOCK_SCOPE_ITEM;
#ifdef SCRATCH
    needs[i]->scope = PENSTOCK_SCOPE_BUCKET;
    needs[i]->scratch_bytes = items[i]->numel * sizeof(element);
#endif
    needs[i]->flags = PENSTOCK_NEED_LINEAR | (self->share == 1.0 ? PENSTOCK_NEED_LOSSLESS : 0u);
#ifdef MUTE
    if (self->mute) needs[i]->n_rounds = 0;
#endif
#ifdef SPOIL
    SPOIL;
#endif
  }
  return NULL;
}

#ifdef SLOW
static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* Waits until a call that began at `start_us` has taken `share` of the time of encode. */
static void take_time(double start_us, double share, const penstock_item* const* items,
                      uint64_t n_items) {
  double us = 1000;
  uint64_t i;
  for (i = 0; i < n_items; ++i) us += 50 * (double)items[i]->numel;
  while (now_us() < start_us + share * us) continue;
}
#endif

static penstock_status* encode(void* instance, const penstock_exec* exec, const penstock_step* step,
                               uint32_t round, const penstock_item* const* items, uint64_t n_items,
                               penstock_payload* const* payloads) {
  const struct identity* self = instance;
  uint64_t i, e;
#ifdef SLOW
  const double start_us = now_us();
#endif
#ifdef SCRATCH
  uint64_t needed = 0;
  for (i = 0; i < n_items; ++i) needed += items[i]->numel * sizeof(element);
  if (exec->scratch_bytes < needed)
    return fail(PENSTOCK_INTERNAL, "identity-c: less scratch than was asked for");
#endif
#ifdef HANGS
  if (step->rank == 1 && step->index == 2)
    for (;;) pause();
#endif
  (void)exec;
  (void)step;
  (void)round;
  for (i = 0; i < n_items; ++i) {
    element* work = items[i]->work.data;
    penstock_section* section = payloads[i]->sections[0];
#ifdef SIBORROWED
    if (step->rank == 1 && step->index > 0) {
      payloads[i]->kind = PENSTOCK_PAYLOAD_ABSENT;
      continue;
    }
#endif
    element* values = section->data;
    for (e = 0; e < items[i]->numel; ++e) {
      values[e] = (element)(self->share * work[e]);
      if ((items[i]->flags & PENSTOCK_ITEM_KEEP) != 0) work[e] -= values[e];
    }
    section->count = items[i]->numel;
    payloads[i]->kind = PENSTOCK_PAYLOAD_DENSE;
#ifdef GATHERS
    if (items[i]->numel == 0) payloads[i]->kind = PENSTOCK_PAYLOAD_ABSENT;
#endif
  }
#ifdef SLOW
  take_time(start_us, 1, items, n_items);
#endif
  return NULL;
}

static penstock_status* decode(void* instance, const penstock_exec* exec, const penstock_step* step,
                               uint32_t round, const penstock_item* const* items, uint64_t n_items,
                               const penstock_payload* const* payloads, uint64_t n_ranks,
                               uint32_t flags) {
  uint64_t i, r, e;
#ifdef SLOW
  const double start_us = now_us();
#endif
  (void)instance;
  (void)exec;
  (void)step;
  (void)round;
  for (i = 0; i < n_items; ++i) {
    element* out = items[i]->out.data;
    if ((flags & PENSTOCK_DECODE_FIRST) != 0) memset(out, 0, items[i]->numel * sizeof *out);
    for (r = 0; r < n_ranks; ++r) {
      const penstock_payload* payload = payloads[i * n_ranks + r];
      const element* values;
      if (payload->kind == PENSTOCK_PAYLOAD_ABSENT) continue;
#ifndef SIBORROWED /* a sum to which this rank has added nothing arrives as CODED */
      if (payload->kind != PENSTOCK_PAYLOAD_DENSE)
        return fail(PENSTOCK_INVALID_PAYLOAD, "identity-c: expected a dense payload");
#endif
      if (payload->n_sections != 1 || payload->sections[0]->count != items[i]->numel) {
        return fail(PENSTOCK_INVALID_PAYLOAD, "identity-c: expected one value for each element");
      }
      values = payload->sections[0]->data;
      for (e = 0; e < items[i]->numel; ++e) out[e] += values[e];
    }
  }
#ifdef SLOW
  take_time(start_us, 0.5, items, n_items);
#endif
  return NULL;
}

static const penstock_option share_option = {sizeof(penstock_option),
                                             TEXT("share"),
                                             TEXT("Part of each entry that is sent."),
                                             TEXT("fraction"),
                                             NULL,
                                             0,
                                             0.0,
                                             1.0,
                                             1.0,
                                             0,
                                             {NULL, 0},
                                             PENSTOCK_OPTION_REAL,
                                             PENSTOCK_OPTION_OPEN_MINIMUM};
static const penstock_option label_option = {sizeof(penstock_option),
                                             TEXT("label"),
                                             TEXT("A word for people; changes nothing."),
                                             {NULL, 0},
                                             NULL,
                                             0,
                                             -HUGE_VAL,
                                             HUGE_VAL,
                                             0.0,
                                             0,
                                             TEXT("plain"),
                                             PENSTOCK_OPTION_STRING,
                                             PENSTOCK_OPTION_RANK_LOCAL};
static const penstock_option* const options[] = {&share_option, &label_option};

static const penstock_compressor table = {.struct_size = sizeof table,
                                          .create = create,
                                          .destroy = destroy,
                                          .describe = describe,
                                          .plan = plan,
                                          .encode = encode,
                                          .decode = decode};
static const penstock_module module = {sizeof module, &table, options, 2};

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
                                                .kind = PENSTOCK_KIND_COMPRESSOR,
                                                .id = "compressor/identity-c",
                                                .version = IDENTITY_VERSION,
                                                .summary = "Every entry as it is, in plain C.",
                                                .license = "Apache-2.0",
                                                .source = "",
                                                .load = load};
