/* Memory: a plugin that keeps the values that a rank did not send.
 *
 * Order per bucket and step: [measure], compensate, (compressor: encode, exchange, decode),
 * [give_back of refused entries], [record], [finish]. A void bucket (a gradient was not finite on
 * some rank) ends with [give_back] in place of the last three calls. Members in brackets may be
 * null.
 *
 * The core keeps two generations of every state. If the results of a step are thrown away, the step
 * is forgotten: the core drops all changes of states, and the next step finds every state
 * unchanged, bit for bit. No call notifies the memory, so a memory must keep nothing about a step
 * in its instance. */
#ifndef PENSTOCK_MEMORY_H
#define PENSTOCK_MEMORY_H

#include <penstock/compressor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of storage behind `work`. */
enum {
  PENSTOCK_WORK_IS_GRAD = 0,   /* the gradient's own storage: nothing is kept */
  PENSTOCK_WORK_IS_STATE = 1,  /* the state tensor `work_state`: the values that encode leaves are
                                  kept */
  PENSTOCK_WORK_IS_SCRATCH = 2 /* a buffer of the core, undefined before compensate */
};

/* The published form of compensate. With it a compressor may compensate in the sweep of its encode,
 * with equal bits. */
enum {
  PENSTOCK_FORM_NONE = 0,       /* opaque: always call compensate */
  PENSTOCK_FORM_AFFINE = 1,     /* work = beta * work + gamma * grad */
  PENSTOCK_FORM_HEAVY_BALL = 2, /* u = m * u + grad; work = work + u */
  PENSTOCK_FORM_NESTEROV = 3    /* u = m * (u + grad); work = work + u + grad */
};

enum {
  /* The memory applies momentum. The core refuses an optimizer with momentum, because it would
   * apply momentum twice. */
  PENSTOCK_MEMORY_OWNS_MOMENTUM = 1u << 0,
  /* record receives the sent payload as ABSENT, DENSE or SPARSE in float32: the core decodes CODED
   * payloads first. */
  PENSTOCK_MEMORY_DECODED_RECORD = 1u << 1,
  /* Values of work that the compressor does not send come again in a later step, although work is
   * not a state. Biased compressors converge with such a memory, and its items have REST_FOLLOWS. A
   * memory with WORK_IS_STATE needs no flag. */
  PENSTOCK_MEMORY_ADDS_REST = 1u << 2,
  /* Work is the difference of the gradient from a shift. The shift is a state with one number per
   * element of the item; record moves it by the sent values, times one number in (0, 1] (EF21,
   * DIANA). `penstock check` tests this rule in place of conservation. The core refuses a
   * compressor with RESULT_FINAL for this memory. */
  PENSTOCK_MEMORY_SHIFTS = 1u << 3
};

/* The needs of one item. Ownership is as in penstock_compressor_need. */
typedef struct penstock_memory_need {
  uint64_t struct_size;
  const penstock_state_declaration* const* states; /* [n_states] */
  uint64_t n_states;
  double beta; /* AFFINE: beta and gamma of the form; HEAVY_BALL and NESTEROV: beta is m */
  double gamma;
  uint32_t work_is;
  uint32_t work_state;     /* WORK_IS_STATE: index of work in states */
  uint32_t momentum_state; /* HEAVY_BALL, NESTEROV: index of u in states */
  uint32_t form;
  uint32_t n_scalars; /* numbers per item that measure writes, at most 8; the core sums them over
                         ranks before compensate. 0: measure is not called */
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
  /* [control] Fills the traits. Pure. May be null; the memory then works on the CPU only. */
  penstock_status* (*describe)(void* instance, penstock_memory_traits* traits);

  /* [control] Fills needs[i] for items[i]; compressor_needs[i] is the need of the item's
   * compressor. */
  penstock_status* (*plan)(void* instance, const penstock_item* const* items, uint64_t n_items,
                           const penstock_compressor_need* const* compressor_needs, penstock_memory_need* const* needs);

  /* [step] May be null. Writes scalars[i * n_scalars + j], all entries: facts of the local
   * gradient, which the core sums over ranks. `scalars` lies on the device of exec: queued work
   * writes it there, and the core copies it to the host. */
  penstock_status* (*measure)(void* instance, const penstock_exec* exec, const penstock_step* step,
                              const penstock_item* const* items, uint64_t n_items, float* scalars);

  /* [step] Computes work from grad. `summed` holds the scalars of measure, summed over ranks (null
   * if n_scalars is 0); it always lies in host memory. grad holds step.grad_scale times the true
   * gradient. States are in true units, and so is work unless work is grad itself; the core
   * multiplies the result by grad_scale at the end. grad is finite: the core has checked it.
   * Changes of states in this call stay, also if another rank's gradient makes the bucket void. */
  penstock_status* (*compensate)(void* instance, const penstock_exec* exec, const penstock_step* step,
                                 const penstock_item* const* items, uint64_t n_items, const float* summed);

  /* [step] May be null. Receives in taken[i] this rank's own payload of the last round, without
   * refused entries. The payload is as the compressor coded it, unless the need has DECODED_RECORD.
   * Not called for a void bucket. */
  penstock_status* (*record)(void* instance, const penstock_exec* exec, const penstock_step* step,
                             const penstock_item* const* items, uint64_t n_items,
                             const penstock_payload* const* taken);

  /* [step] May be null only if the memory keeps nothing. Adds back values that left work without
   * effect. These are the entries that a composite collective refused; the call then comes before
   * record and finish of the step. In a void bucket these are all values that this rank sent in the
   * last round, if work is a state; record and finish are then not called. Payloads are ABSENT (the
   * item has nothing to give back), DENSE or SPARSE in float32: the core decodes CODED payloads
   * first. */
  penstock_status* (*give_back)(void* instance, const penstock_exec* exec, const penstock_step* step,
                                const penstock_item* const* items, uint64_t n_items,
                                const penstock_payload* const* payloads);

  /* [step] May be null. `out` holds the mean in the units of work, or the final result of a vote;
   * finish may change `out`. finish is the only call of a memory that may change REPLICATED states.
   * Not called for a void bucket. The core refuses a memory with REPLICATED states if a collective
   * adds the payloads and its sums may differ in their last bits between ranks. */
  penstock_status* (*finish)(void* instance, const penstock_exec* exec, const penstock_step* step,
                             const penstock_item* const* items, uint64_t n_items);

  /* [control], but on the engine's thread, while the application's thread waits. May be null if the
   * memory keeps no mass. Adds all mass kept for the item to `out` and sets the mass to zero. The
   * core calls it between two steps if a new plan gives the item another memory or a compressor
   * that loses nothing, or if another rank keeps the mass from then on. The new plan may come from
   * a resize. */
  penstock_status* (*drain)(void* instance, const penstock_exec* exec, const penstock_item* const* items,
                            uint64_t n_items);

  /* [any] As in penstock_compressor. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_memory;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_MEMORY_H */
