/* A complete compressor in plain C11: no SDK layer, no C++, only the headers of the ABI.
 *
 * Conversion to bfloat16: each value keeps its upper sixteen bits, and of their seven mantissa bits
 * only `mantissa_bits`. The rest stays in `work`, so a memory that keeps the rest loses nothing:
 * value - cut value is exact in float32. Payloads are gathered and added in float32, rank after
 * rank, and no value is rounded on the way. */
#include <penstock/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set by load, before any instance exists. */
static const penstock_host* host;

typedef struct instance {
  uint16_t mask;
  /* The need of the last plan call: one round of one section per item. */
  uint64_t n_planned;
  penstock_section_bound* bounds;
  const penstock_section_bound** bound_pointers;
  penstock_round* rounds;
  const penstock_round** round_pointers;
} instance;

static penstock_str text(const char* literal) {
  const penstock_str view = {literal, strlen(literal)};
  return view;
}

static penstock_status* error(uint32_t code, const char* message) {
  return host->status_new(host->context, code, text(message));
}

/* Fields that only a newer host knows must be zero, because their effect would be missing without a
 * message. */
static int tail_is_zero(const void* arguments, uint64_t struct_size, uint64_t known) {
  const unsigned char* bytes = arguments;
  for (uint64_t i = known; i < struct_size; ++i)
    if (bytes[i] != 0) return 0;
  return 1;
}
#define KNOWN(pointer) tail_is_zero(pointer, (pointer)->struct_size, sizeof *(pointer))

static penstock_status* refuse(void) {
  return error(
      PENSTOCK_UNIMPLEMENTED,
      "compressor/bf16_c: the host set a field that ABI 0.1 does not have; rebuild this plugin");
}

static int items_known(const penstock_item* const* items, uint64_t n_items) {
  int known = 1;
  for (uint64_t i = 0; i < n_items; ++i) known = known && KNOWN(items[i]);
  return known;
}

static penstock_status* check_call(const penstock_exec* exec, const penstock_step* step,
                                   const penstock_item* const* items, uint64_t n_items,
                                   const penstock_payload* const* payloads, uint64_t n_payloads) {
  int known = KNOWN(exec) && KNOWN(step) && items_known(items, n_items);
  for (uint64_t i = 0; i < n_payloads; ++i) {
    known = known && KNOWN(payloads[i]);
    for (uint64_t s = 0; s < payloads[i]->n_sections; ++s)
      known = known && KNOWN(payloads[i]->sections[s]);
  }
  return known ? NULL : refuse();
}

/* ---- Create and destroy ---- */

static void forget_plan(instance* self) {
  free(self->bounds);
  free((void*)self->bound_pointers);
  free(self->rounds);
  free((void*)self->round_pointers);
  self->bounds = NULL;
  self->bound_pointers = NULL;
  self->rounds = NULL;
  self->round_pointers = NULL;
  self->n_planned = 0;
}

static void destroy(void* instance_) {
  if (instance_ == NULL) return;
  forget_plan(instance_);
  free(instance_);
}

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** result) {
  /* One value per declared option, in the order of declaration. The host has checked the ranges. */
  if (n_options != 1)
    return error(PENSTOCK_INTERNAL, "compressor/bf16_c: expected one option value");
  if (!KNOWN(options[0])) return refuse();
  instance* self = calloc(1, sizeof *self);
  if (self == NULL) return error(PENSTOCK_OUT_OF_MEMORY, "compressor/bf16_c: out of memory");
  self->mask = (uint16_t)(0xffffu << (7 - options[0]->integer));
  *result = self;
  return NULL;
}

static penstock_status* describe(void* instance_, penstock_compressor_traits* traits) {
  (void)instance_;
  traits->dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
  traits->device_types = 1u << PENSTOCK_DEVICE_CPU;
  traits->flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY; /* cutting is biased towards zero */
  return NULL;
}

/* ---- Plan ---- */

static void plan_item(instance* self, uint64_t i, const penstock_item* item,
                      penstock_compressor_need* need) {
  penstock_section_bound* bound = &self->bounds[i];
  bound->struct_size = sizeof *bound;
  bound->capacity = item->numel;
  bound->role = PENSTOCK_ROLE_VALUES;
  bound->dtype = PENSTOCK_BFLOAT16;
  bound->split = PENSTOCK_SPLIT_BY_ELEMENT;
  bound->flags = PENSTOCK_SECTION_EXACT;
  self->bound_pointers[i] = bound;

  penstock_round* round = &self->rounds[i];
  round->struct_size = sizeof *round;
  round->sections = &self->bound_pointers[i];
  round->n_sections = 1;
  round->combine = PENSTOCK_COMBINE_GATHER;
  round->result = PENSTOCK_RESULT_MEAN;
#ifdef ASKS_FOR_THE_FUTURE /* with one more field: a host without it must refuse this plugin */
  round->future = 1;
#endif
  self->round_pointers[i] = round;

  /* Field by field, because the host's struct may be longer, and the host has set its size. */
  need->rounds = &self->round_pointers[i];
  need->n_rounds = 1;
  need->states = NULL;
  need->n_states = 0;
  need->scratch_bytes = 0;
  need->part_alignment = 1;
  need->period = 1;
  need->scope = PENSTOCK_SCOPE_ITEM;
  need->flags = 0;
}

static penstock_status* plan(void* instance_, uint32_t phase, uint32_t world,
                             const penstock_item* const* items, uint64_t n_items,
                             penstock_compressor_need* const* needs) {
  (void)phase;
  (void)world;
  if (!items_known(items, n_items)) return refuse();
  instance* self = instance_;
  forget_plan(self);
  const size_t n = n_items == 0 ? 1 : (size_t)n_items;
  self->bounds = calloc(n, sizeof *self->bounds);
  self->bound_pointers = calloc(n, sizeof *self->bound_pointers);
  self->rounds = calloc(n, sizeof *self->rounds);
  self->round_pointers = calloc(n, sizeof *self->round_pointers);
  if (!self->bounds || !self->bound_pointers || !self->rounds || !self->round_pointers) {
    forget_plan(self);
    return error(PENSTOCK_OUT_OF_MEMORY, "compressor/bf16_c: out of memory while planning");
  }
  self->n_planned = n_items;
  for (uint64_t i = 0; i < n_items; ++i) plan_item(self, i, items[i], needs[i]);
  return NULL;
}

/* ---- Encode and decode ---- */

static uint16_t cut(float value, uint16_t mask) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits >> 16) & mask);
}

static float widen(uint16_t upper) {
  const uint32_t bits = (uint32_t)upper << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static penstock_status* encode(void* instance_, const penstock_exec* exec,
                               const penstock_step* step, uint32_t round,
                               const penstock_item* const* items, uint64_t n_items,
                               penstock_payload* const* payloads) {
  (void)round;
  const instance* self = instance_;
  penstock_status* status =
      check_call(exec, step, items, n_items, (const penstock_payload* const*)payloads, n_items);
  if (status != NULL) return status;
  for (uint64_t i = 0; i < n_items; ++i) {
    float* work = items[i]->work.data;
    penstock_section* section = payloads[i]->sections[0];
    uint16_t* values = section->data;
    for (uint64_t j = 0; j < items[i]->numel; ++j) values[j] = cut(work[j], self->mask);
    if ((items[i]->flags & PENSTOCK_ITEM_KEEP) != 0)
      for (uint64_t j = 0; j < items[i]->numel; ++j) work[j] -= widen(values[j]);
    section->count = items[i]->numel;
    payloads[i]->kind = PENSTOCK_PAYLOAD_DENSE;
  }
  return NULL;
}

/* Bytes from a peer are untrusted input. */
static penstock_status* check_payload(const penstock_item* item, const penstock_payload* payload) {
  if (payload->kind == PENSTOCK_PAYLOAD_DENSE && payload->n_sections == 1 &&
      payload->sections[0]->dtype == PENSTOCK_BFLOAT16 &&
      payload->sections[0]->count == item->numel)
    return NULL;
  char message[256];
  snprintf(message, sizeof message,
           "payload of rank %d for gradient '%.*s' is not one section of %llu bfloat16 values",
           (int)payload->rank, (int)(item->name.size < 100 ? item->name.size : 100),
           item->name.data, (unsigned long long)item->numel);
  return error(PENSTOCK_INVALID_PAYLOAD, message);
}

static penstock_status* decode(void* instance_, const penstock_exec* exec,
                               const penstock_step* step, uint32_t round,
                               const penstock_item* const* items, uint64_t n_items,
                               const penstock_payload* const* payloads, uint64_t n_ranks,
                               uint32_t flags) {
  (void)instance_;
  (void)round;
  penstock_status* status = check_call(exec, step, items, n_items, payloads, n_items * n_ranks);
  if (status != NULL) return status;
  for (uint64_t i = 0; i < n_items; ++i) {
    float* out = items[i]->out.data;
    if ((flags & PENSTOCK_DECODE_FIRST) != 0)
      for (uint64_t j = 0; j < items[i]->numel; ++j) out[j] = 0;
    for (uint64_t rank = 0; rank < n_ranks; ++rank) {
      const penstock_payload* payload = payloads[i * n_ranks + rank];
      if (payload->kind == PENSTOCK_PAYLOAD_ABSENT) continue;
      status = check_payload(items[i], payload);
      if (status != NULL) return status;
      const uint16_t* values = payload->sections[0]->data;
      for (uint64_t j = 0; j < items[i]->numel; ++j) out[j] += widen(values[j]);
    }
  }
  return NULL;
}

/* ---- The declarations of the plugin: constant data ---- */

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

static const penstock_option mantissa_bits = {
    .struct_size = sizeof(penstock_option),
    .name = TEXT("mantissa_bits"),
    .summary = TEXT("mantissa bits that survive, of the seven that bfloat16 has"),
    .unit = TEXT("bits"),
    .minimum = 0,
    .maximum = 7,
    .default_integer = 7,
    .type = PENSTOCK_OPTION_INTEGER,
};
static const penstock_option* const options[] = {&mantissa_bits};

static const penstock_compressor table = {
    .struct_size = sizeof(penstock_compressor),
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .plan = plan,
    .encode = encode,
    .decode = decode,
};

static const penstock_module module = {
    .struct_size = sizeof(penstock_module),
    .table = &table,
    .options = options,
    .n_options = 1,
};

static penstock_status* load(const penstock_host* from, const penstock_module** result) {
  host = from;
  *result = &module;
  return NULL;
}

PENSTOCK_EXPORT const penstock_plugin_record penstock_plugin = {
    .magic = PENSTOCK_PLUGIN_MAGIC,
    .struct_size = sizeof(penstock_plugin_record),
    .abi_major = PENSTOCK_ABI_MAJOR,
    .abi_minor = PENSTOCK_ABI_MINOR,
    .min_host_minor = 0,
    .kind = PENSTOCK_KIND_COMPRESSOR,
    .id = "compressor/bf16_c",
    .version = "0.1.0",
    .summary = "keeps the upper sixteen bits of each value; written in plain C",
    .license = "Apache-2.0",
    .source = "",
    .load = load,
};
