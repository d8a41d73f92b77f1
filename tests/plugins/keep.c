/* A memory in plain C11: adds the gradient to the unsent values. SPOIL is a statement that makes
 * its plan invalid. */
#include <penstock/plugin.h>
#include <stdlib.h>

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

static const penstock_host* host;

/* Every item has equal states, of its own size. */
struct keep {
  penstock_state_declaration* declarations;
  const penstock_state_declaration** pointers;
};

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  struct keep* self = calloc(1, sizeof *self);
  (void)options;
  (void)n_options;
  if (self == NULL) {
    const penstock_str text = TEXT("keep-c: no memory for an instance");
    return host->status_new(host->context, PENSTOCK_OUT_OF_MEMORY, text);
  }
  *instance = self;
  return NULL;
}

static void destroy(void* instance) {
  struct keep* self = instance;
  if (self == NULL) return;
  free(self->declarations);
  free(self->pointers);
  free(self);
}

static penstock_status* plan(void* instance, const penstock_item* const* items, uint64_t n_items,
                             const penstock_compressor_need* const* compressor_needs,
                             penstock_memory_need* const* needs) {
  struct keep* self = instance;
  uint64_t i;
  (void)compressor_needs;
  free(self->declarations);
  free(self->pointers);
  self->declarations = calloc(n_items + 1, sizeof *self->declarations);
  self->pointers = calloc(n_items + 1, sizeof *self->pointers);
  if (self->declarations == NULL || self->pointers == NULL) {
    const penstock_str text = TEXT("keep-c: no memory for a plan");
    return host->status_new(host->context, PENSTOCK_OUT_OF_MEMORY, text);
  }
  for (i = 0; i < n_items; ++i) {
    penstock_state_declaration* state = &self->declarations[i];
    const penstock_str name = TEXT("kept");
    state->struct_size = sizeof *state;
    state->name = name;
    state->rows = items[i]->numel;
    state->cols = 1;
    state->dtype = PENSTOCK_FLOAT32;
    state->state_class = PENSTOCK_STATE_MASS;
    state->on_resize = PENSTOCK_RESIZE_SUM;
    self->pointers[i] = state;
    needs[i]->states = &self->pointers[i];
    needs[i]->n_states = 1;
    needs[i]->work_is = PENSTOCK_WORK_IS_STATE;
#ifdef SPOIL
    SPOIL;
#endif
  }
  return NULL;
}

static penstock_status* compensate(void* instance, const penstock_exec* exec,
                                   const penstock_step* step, const penstock_item* const* items,
                                   uint64_t n_items, const float* summed) {
  uint64_t i, e;
  (void)instance;
  (void)exec;
  (void)summed;
  for (i = 0; i < n_items; ++i) {
    const float* grad = items[i]->grad.data;
    float* work = items[i]->work.data;
    for (e = 0; e < items[i]->numel; ++e) work[e] += grad[e] / (float)step->grad_scale;
  }
  return NULL;
}

static penstock_status* refused(void) {
  const penstock_str text = TEXT("keep-c: other pairs than were sent");
  return host->status_new(host->context, PENSTOCK_INVALID_PAYLOAD, text);
}

static penstock_status* give_back(void* instance, const penstock_exec* exec,
                                  const penstock_step* step, const penstock_item* const* items,
                                  uint64_t n_items, const penstock_payload* const* payloads) {
  uint64_t i, e;
  (void)instance;
  (void)exec;
  (void)step;
  for (i = 0; i < n_items; ++i) {
    const penstock_payload* payload = payloads[i];
    float* work = items[i]->work.data;
    if (payload->kind == PENSTOCK_PAYLOAD_DENSE) {
      const float* values = payload->sections[0]->data;
      for (e = 0; e < payload->sections[0]->count; ++e) work[e] += values[e];
    } else if (payload->kind == PENSTOCK_PAYLOAD_SPARSE) {
      const uint32_t* indices = payload->sections[0]->data;
      const float* values = payload->sections[1]->data;
      const uint64_t count = payload->sections[0]->count;
      if (payload->sections[1]->count != count) return refused();
      for (e = 0; e < count; ++e)
        if (indices[e] >= items[i]->numel) return refused();
      for (e = 0; e < count; ++e) work[indices[e]] += values[e];
    }
  }
  return NULL;
}

static penstock_status* drain(void* instance, const penstock_exec* exec,
                              const penstock_item* const* items, uint64_t n_items) {
  uint64_t i, e;
  (void)instance;
  (void)exec;
  for (i = 0; i < n_items; ++i) {
    float* out = items[i]->out.data;
    float* work = items[i]->work.data;
    for (e = 0; e < items[i]->numel; ++e) {
      out[e] += work[e];
      work[e] = 0;
    }
  }
  return NULL;
}

static const penstock_memory table = {.struct_size = sizeof table,
                                      .create = create,
                                      .destroy = destroy,
                                      .plan = plan,
                                      .compensate = compensate,
                                      .give_back = give_back,
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
                                                .id = "memory/keep-c",
                                                .version = "1.0.0",
                                                .summary = "Keeps what was not sent, in plain C.",
                                                .license = "Apache-2.0",
                                                .source = "",
                                                .load = load};
