/* Compressor: a plugin that turns items into payloads and payloads into items.
 *
 * Legal order: create, plan (for each phase, and again at each new plan), then per step and round
 * encode, decode, ..., at last destroy. Calls for one instance never overlap. Rounds of different
 * buckets may interleave, so an instance must not keep data about a running step: such data must be
 * in states. The core keeps two generations of every state. If the results of a step are thrown
 * away, the step is forgotten: the core drops all changes of states, and the next step has the
 * index of the forgotten step. */
#ifndef PENSTOCK_COMPRESSOR_H
#define PENSTOCK_COMPRESSOR_H

#include <penstock/item.h>
#include <penstock/option.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the payloads of several ranks are combined. */
enum {
  PENSTOCK_COMBINE_SUM = 1,   /* added entry by entry during the exchange; all ranks must send equal
                                 counts */
  PENSTOCK_COMBINE_GATHER = 2 /* every rank receives every payload */
};

/* The meaning of `out` after the last decode. */
enum {
  PENSTOCK_RESULT_MEAN = 1, /* a sum over ranks; the core divides it once by the number of ranks */
  PENSTOCK_RESULT_FINAL = 2 /* the result itself (a vote); the core does not change it */
};

enum {
  PENSTOCK_ROUND_SAME_BITS = 1u << 0, /* the sum goes into REPLICATED state: it must have equal bits
                                         on all ranks */
  PENSTOCK_ROUND_ALL_PAYLOADS = 1u << 1 /* decode needs the payloads of all ranks in one call (a
                                           vote) */
};

/* The room that a section needs. */
typedef struct penstock_section_bound {
  uint64_t struct_size;
  uint64_t capacity; /* most elements that encode may write; the exact count for COMBINE_SUM or with
                        EXACT */
  uint32_t role;
  uint32_t dtype;
  uint32_t split; /* PENSTOCK_SPLIT_* of item.h; the core accepts every value and reads none */
  uint32_t flags;
} penstock_section_bound;

/* Flags of a section. */
enum { PENSTOCK_SECTION_EXACT = 1u << 0 /* the count is always the capacity, so counts need not travel */ };

typedef struct penstock_round {
  uint64_t struct_size;
  const penstock_section_bound* const* sections; /* [n_sections] */
  uint64_t n_sections;
  uint32_t combine;
  uint32_t result; /* PENSTOCK_RESULT_*; the core reads it for the last round only */
  uint32_t reduction; /* for COMBINE_SUM: PENSTOCK_REDUCE_* of collective.h; 0 means sum */
  uint32_t flags;
} penstock_round;

/* Memory forms (memory.h) that a compressor can fold into its encode, as a bit mask; see
 * penstock_compressor_traits.folds. */
enum { PENSTOCK_FOLD_AFFINE = 1u << 0, PENSTOCK_FOLD_HEAVY_BALL = 1u << 1, PENSTOCK_FOLD_NESTEROV = 1u << 2 };

enum { PENSTOCK_SCOPE_ITEM = 0, PENSTOCK_SCOPE_BUCKET = 1 };

enum {
  PENSTOCK_NEED_LOSSLESS = 1u << 0, /* decode(encode(x)) is x: encode loses nothing */
  PENSTOCK_NEED_LINEAR = 1u << 1    /* decode(sum of payloads) is the sum of the decoded payloads */
};

/* The needs of one item in one phase. plan fills the struct. The plugin owns the arrays, which must
 * stay valid until the next plan call on the instance. The core copies them. */
typedef struct penstock_compressor_need {
  uint64_t struct_size;
  const penstock_round* const* rounds; /* [n_rounds]; n_rounds 0: the memory only compensates the
                                          item in this phase */
  uint64_t n_rounds;
  const penstock_state_declaration* const* states; /* [n_states]; equal in all phases */
  uint64_t n_states;
  uint64_t scratch_bytes;  /* scratch for a call with this item; the core adds the bytes up over a
                              bucket */
  uint64_t part_alignment; /* in elements: the item may be cut at multiples of this number; 0: it
                              must not be cut */
  uint32_t period;         /* number of phases of this method: 1, or for example 2 for ACP-SGD;
                              equal for all items */
  uint32_t scope;          /* PENSTOCK_SCOPE_*; BUCKET: encode chooses across all items of the
                              call */
  uint32_t flags;
  uint32_t reserved;
} penstock_compressor_need;

enum {
  PENSTOCK_DECODE_FIRST = 1u << 0, /* the first call of this round; in the last round decode then
                                      clears `out` before it adds */
  PENSTOCK_DECODE_LAST = 1u << 1,  /* no further payloads of this round follow: decode finishes the
                                      round */
  PENSTOCK_DECODE_OWN = 1u << 2    /* decode writes this rank's own payload into `out`, and must
                                      change no state */
};

/* Facts about the method that do not depend on an item. */
typedef struct penstock_compressor_traits {
  uint64_t struct_size;
  uint64_t dtypes;       /* bits PENSTOCK_DTYPE_BIT of the dtypes that `work` and `out` may have. If
                            only FLOAT32 is there, the core converts FLOAT16 and BFLOAT16 to
                            float32; it refuses gradients of other dtypes */
  uint64_t device_types; /* bit per device type on which this instance works; must include the
                            CPU */
  uint32_t folds;        /* PENSTOCK_FOLD_*: memory forms that the compressor folds */
  uint32_t flags;        /* PENSTOCK_COMPRESSOR_* */
} penstock_compressor_traits;

enum {
  PENSTOCK_COMPRESSOR_UNBIASED = 1u << 0,
  PENSTOCK_COMPRESSOR_RANDOM = 1u << 1,
  PENSTOCK_COMPRESSOR_NEEDS_MEMORY = 1u << 2, /* biased: without a memory it converges badly, and
                                                 the core warns */
  PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS = 1u << 3, /* works only if the memory keeps a residual */
  PENSTOCK_COMPRESSOR_SCALES_RESULT = 1u << 4    /* decode multiplies its result by
                                                    step->result_scale */
};

typedef struct penstock_compressor {
  uint64_t struct_size;

  /* [control] Makes an instance. On error *instance must stay unchanged. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  /* [control] Destroys an instance; a null instance is allowed. */
  void (*destroy)(void* instance);
  /* [control] Fills the traits. Pure. */
  penstock_status* (*describe)(void* instance, penstock_compressor_traits* traits);

  /* [control] Fills needs[i] for items[i] in `phase`. Name, shape, numel, dtypes and device are set,
   * and ITEM_KEEP if 16-bit values may travel (docs/abi.md); data pointers are null. For an item that
   * the method cannot compress: INVALID_ARGUMENT, and the rule to add to the configuration. */
  penstock_status* (*plan)(void* instance, uint32_t phase, uint32_t world, const penstock_item* const* items,
                           uint64_t n_items, penstock_compressor_need* const* needs);

  /* [step] Encodes all items of a bucket in one call. Reads work and fills payloads[i] for
   * items[i]: writes sections, sets counts and kind. In the last round, if ITEM_KEEP is set, encode
   * must subtract from work exactly the values that the payload stands for. Otherwise, and after an
   * error, work must be unchanged. */
  penstock_status* (*encode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                             const penstock_item* const* items, uint64_t n_items, penstock_payload* const* payloads);

  /* [step] Decodes payloads[i * n_ranks + r] for items[i]; ranks ascend over calls. Payloads are
   * input from peers: decode must check counts and indices (INVALID_PAYLOAD names rank and
   * gradient). On a device the host has checked the indices already; other checks there read
   * on_host of the sections. ABSENT is legal. In the last round decode writes the sum (RESULT_MEAN)
   * or the result (RESULT_FINAL) to `out`. Replicated state may change here, but never under
   * DECODE_OWN. */
  penstock_status* (*decode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                             const penstock_item* const* items, uint64_t n_items,
                             const penstock_payload* const* payloads, uint64_t n_ranks, uint32_t flags);

  /* [any] Returns an optional ability by id and revision, or null if the id is unknown. The member
   * may be null. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_compressor;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_COMPRESSOR_H */
