/* A memory in plain C11 that compresses the difference to a shift, as in EF21. The sent values are
 * added to h, and no rank is owed h. */
#include <penstock/plugin.h>
#include <stdlib.h>

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

static const penstock_host* host;

struct shift {
  penstock_state_declaration* declarations;
  const penstock_state_declaration** pointers;
};

static penstock_status* fail(uint32_t code, penstock_str text) {
  return host->status_new(host->context, code, text);
}

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  const penstock_str text = TEXT("shift-c: no memory for an instance");
  (void)options;
  (void)n_options;
  *instance = calloc(1, sizeof(struct shift));
  return *instance == NULL ? fail(PENSTOCK_OUT_OF_MEMORY, text) : NULL;
}

static void destroy(void* instance) {
  struct shift* self = instance;
  if (self == NULL) return;
  free(self->declarations);
  free(self->pointers);
  free(self);
}

static penstock_status* plan(void* instance, const penstock_item* const* items, uint64_t n_items,
                             const penstock_compressor_need* const* compressor_needs,
                             penstock_memory_need* const* needs) {
  const penstock_str name = TEXT("h");
  const penstock_str text = TEXT("shift-c: no memory for a plan");
  struct shift* self = instance;
  uint64_t i;
  (void)compressor_needs;
  free(self->declarations);
  free(self->pointers);
  self->declarations = calloc(n_items + 1, sizeof *self->declarations);
  self->pointers = calloc(n_items + 1, sizeof *self->pointers);
  if (self->declarations == NULL || self->pointers == NULL)
    return fail(PENSTOCK_OUT_OF_MEMORY, text);
  for (i = 0; i < n_items; ++i) {
    penstock_state_declaration* state = &self->declarations[i];
    state->struct_size = sizeof *state;
    state->name = name;
    state->rows = items[i]->numel;
    state->cols = 1;
    state->dtype = PENSTOCK_FLOAT32;
    state->state_class = PENSTOCK_STATE_LOCAL;
    state->on_resize = PENSTOCK_RESIZE_DROP;
    self->pointers[i] = state;
    needs[i]->states = &self->pointers[i];
    needs[i]->n_states = 1;
    needs[i]->work_is = PENSTOCK_WORK_IS_SCRATCH;
  }
  return NULL;
}

static penstock_status* compensate(void* instance, const penstock_exec* exec,
                                   const penstock_step* step, const penstock_item* const* items,
                                   uint64_t n_items, const float* summed) {
  uint64_t i, e;
  (void)instance, (void)exec, (void)summed;
  for (i = 0; i < n_items; ++i) {
    const float* grad = items[i]->grad.data;
    const float* h = items[i]->states[0]->data;
    float* work = items[i]->work.data;
    for (e = 0; e < items[i]->numel; ++e) work[e] = grad[e] / (float)step->grad_scale - h[e];
  }
  return NULL;
}

static penstock_status* record(void* instance, const penstock_exec* exec, const penstock_step* step,
                               const penstock_item* const* items, uint64_t n_items,
                               const penstock_payload* const* taken) {
  uint64_t i, e;
  (void)instance, (void)exec, (void)step;
  for (i = 0; i < n_items; ++i) {
    float* h = items[i]->states[0]->data;
    if (taken[i]->kind == PENSTOCK_PAYLOAD_DENSE) {
      const float* values = taken[i]->sections[0]->data;
      for (e = 0; e < taken[i]->sections[0]->count; ++e) h[e] += values[e];
    } else if (taken[i]->kind == PENSTOCK_PAYLOAD_SPARSE) {
      const uint32_t* indices = taken[i]->sections[0]->data;
      const float* values = taken[i]->sections[1]->data;
      for (e = 0; e < taken[i]->sections[0]->count; ++e)
        if (indices[e] < items[i]->numel) h[indices[e]] += values[e];
    }
  }
  return NULL;
}

static penstock_status* drain(void* instance, const penstock_exec* exec,
                              const penstock_item* const* items, uint64_t n_items) {
  uint64_t i, e;
  (void)instance, (void)exec;
  for (i = 0; i < n_items; ++i) {
    float* h = items[i]->states[0]->data;
    for (e = 0; e < items[i]->numel; ++e) h[e] = 0;
  }
  return NULL;
}

static const penstock_memory table = {.struct_size = sizeof table,
                                      .create = create,
                                      .destroy = destroy,
                                      .plan = plan,
                                      .compensate = compensate,
                                      .record = record,
                                      .drain = drain};
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
                                                .kind = PENSTOCK_KIND_MEMORY,
                                                .id = "memory/shift-c",
                                                .version = "1.0.0",
                                                .summary = "Compresses differences, in plain C.",
                                                .license = "Apache-2.0",
                                                .source = "",
                                                .load = load};
