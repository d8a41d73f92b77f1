/* Memory: what a rank keeps of what it did not send.
 *
 * Per bucket and step: [measure], compensate, (compressor: encode, exchange, decode), [give_back of what was refused],
 * [record], [finish]. A void bucket (some rank's gradient was not finite) ends with [give_back] in place of the last three.
 * Members in brackets may be null.
 *
 * The core keeps two generations of every state. A step whose results are thrown away is forgotten: what any call has
 * changed in states is dropped, and the next step finds them, to the bit, as they were. No call tells a memory of it, so it
 * keeps nothing of a step in its instance. */
#ifndef PENSTOCK_MEMORY_H
#define PENSTOCK_MEMORY_H

#include <penstock/compressor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What `work` is. */
enum {
  PENSTOCK_WORK_IS_GRAD = 0,   /* the gradient's own storage: nothing is kept */
  PENSTOCK_WORK_IS_STATE = 1,  /* the state tensor `work_state`: what encode leaves there is kept */
  PENSTOCK_WORK_IS_SCRATCH = 2 /* a buffer of the core, undefined before compensate */
};

/* The published form of compensate, so that a compressor may do it in the same sweep with the same bits. */
enum {
  PENSTOCK_FORM_NONE = 0,       /* opaque: always call compensate */
  PENSTOCK_FORM_AFFINE = 1,     /* work = beta * work + gamma * grad */
  PENSTOCK_FORM_HEAVY_BALL = 2, /* u = m * u + grad; work = work + u */
  PENSTOCK_FORM_NESTEROV = 3    /* u = m * (u + grad); work = work + u + grad */
};

enum {
  /* The memory applies momentum: an optimizer that has momentum of its own would apply it twice. */
  PENSTOCK_MEMORY_OWNS_MOMENTUM = 1u << 0,
  /* record gets what was sent as ABSENT, DENSE or SPARSE in float32: the core decodes what only the compressor can read. */
  PENSTOCK_MEMORY_DECODED_RECORD = 1u << 1,
  /* What the compressor leaves out of work comes again in a later step, although work is no state: biased compressors
   * converge with it, and items have REST_FOLLOWS. Where work is a state that is understood. */
  PENSTOCK_MEMORY_ADDS_REST = 1u << 2,
  /* Work is the difference of the gradient from a shift: some state with an element for each of the item's, which record
   * moves by what was sent, times one number in (0, 1] (EF21, DIANA). `penstock check` holds it to that, in place of the
   * conservation of what is kept, and a compressor whose result is FINAL is refused. */
  PENSTOCK_MEMORY_SHIFTS = 1u << 3
};

/* What one item needs; ownership as in penstock_compressor_need. */
typedef struct penstock_memory_need {
  uint64_t struct_size;
  const penstock_state_declaration* const* states; /* [n_states] */
  uint64_t n_states;
  double beta; /* AFFINE: beta, gamma; HEAVY_BALL and NESTEROV: beta is m */
  double gamma;
  uint32_t work_is;
  uint32_t work_state;     /* WORK_IS_STATE: index into states */
  uint32_t momentum_state; /* HEAVY_BALL, NESTEROV: index of u */
  uint32_t form;
  uint32_t n_scalars; /* measure: numbers per item, at most 8, summed over ranks before compensate; 0: not called */
  uint32_t flags;
} penstock_memory_need;

/* Facts about the memory that do not depend on an item. */
typedef struct penstock_memory_traits {
  uint64_t struct_size;
  uint64_t device_types; /* bit per device type */
  uint64_t flags;        /* 0 */
} penstock_memory_traits;

typedef struct penstock_memory {
  uint64_t struct_size;

  /* [control] As in penstock_compressor. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  void (*destroy)(void* instance);
  /* [control] Pure. May be null: a memory for the CPU. */
  penstock_status* (*describe)(void* instance, penstock_memory_traits* traits);

  /* [control] Fills needs[i] for items[i]; compressor_needs[i] is what the item's compressor asked for. */
  penstock_status* (*plan)(void* instance, const penstock_item* const* items, uint64_t n_items,
                           const penstock_compressor_need* const* compressor_needs, penstock_memory_need* const* needs);

  /* [step] May be null. scalars[i * n_scalars + j]: facts of the local gradient, to be summed over ranks; all are written.
   * They lie where the call works: on a device queued work writes them, and the core brings them to the host. */
  penstock_status* (*measure)(void* instance, const penstock_exec* exec, const penstock_step* step,
                              const penstock_item* const* items, uint64_t n_items, float* scalars);

  /* [step] grad -> work. `summed` holds what measure gave, summed over ranks (null if it asked for none); it lies in host
   * memory, wherever the call works. grad holds step.grad_scale times the true gradient; states are in true units, and so
   * is work unless it is grad itself: the core multiplies the result by grad_scale at the end. grad is finite: the core has
   * looked. What changes in states here stays, also where another rank's gradient makes the bucket void. */
  penstock_status* (*compensate)(void* instance, const penstock_exec* exec, const penstock_step* step,
                                 const penstock_item* const* items, uint64_t n_items, const float* summed);

  /* [step] May be null. taken[i]: the own payload of the last round that was accepted, less what was refused; as the
   * compressor coded it, unless the need says DECODED_RECORD. Not called for a void bucket. */
  penstock_status* (*record)(void* instance, const penstock_exec* exec, const penstock_step* step,
                             const penstock_item* const* items, uint64_t n_items,
                             const penstock_payload* const* taken);

  /* [step] Null only where nothing is kept. Adds back what was taken out of work but had no effect: the entries that a
   * composite collective refused, before record and finish of the step; or, of a void bucket, in which neither is called,
   * all that this rank has sent, where work is a state. Payloads are ABSENT (nothing to give back of this item), DENSE or
   * SPARSE in float32: the core decodes others first. */
  penstock_status* (*give_back)(void* instance, const penstock_exec* exec, const penstock_step* step,
                                const penstock_item* const* items, uint64_t n_items,
                                const penstock_payload* const* payloads);

  /* [step] May be null. `out` holds the mean in the units of work, and may be changed. REPLICATED states change here.
   * Not called for a void bucket. A memory that has some is refused with a collective whose sums may differ in their last
   * bits between ranks. */
  penstock_status* (*finish)(void* instance, const penstock_exec* exec, const penstock_step* step,
                             const penstock_item* const* items, uint64_t n_items);

  /* [control] May be null where no mass is kept. Adds all mass kept for the item to `out` and zeroes it: at a switch to another
   * memory, a resize, or the end. */
  penstock_status* (*drain)(void* instance, const penstock_exec* exec, const penstock_item* const* items,
                            uint64_t n_items);

  /* [any] As in penstock_compressor. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_memory;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_MEMORY_H */
