/* Compressor: turns items into payloads and payloads into items.
 *
 * Legal order: create, plan (again at each re-plan and for each phase), then per step and round encode, decode, ...,
 * at last destroy. Calls for one instance never overlap. Different rounds of different buckets may interleave, so
 * nothing about a running step may be kept in the instance: keep it in states. The core keeps two generations of them: of
 * a step whose results are thrown away (forgotten) all changes are dropped, and the next one has its index. */
#ifndef PENSTOCK_COMPRESSOR_H
#define PENSTOCK_COMPRESSOR_H

#include <penstock/item.h>
#include <penstock/option.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the payloads of several ranks meet. */
enum {
  PENSTOCK_COMBINE_SUM = 1,   /* added entry by entry on the way; all ranks send the same counts */
  PENSTOCK_COMBINE_GATHER = 2 /* every rank receives every payload */
};

/* What `out` holds after the last decode. */
enum {
  PENSTOCK_RESULT_MEAN = 1, /* a sum over ranks; the core divides by their number, once */
  PENSTOCK_RESULT_FINAL = 2 /* the result itself (a vote); the core leaves it alone */
};

enum {
  PENSTOCK_ROUND_SAME_BITS = 1u << 0, /* the sum feeds replicated state: it must have equal bits on all ranks */
  PENSTOCK_ROUND_ALL_PAYLOADS = 1u << 1 /* decode wants the payloads of all ranks in one call (a vote) */
};

/* The room a section needs. */
typedef struct penstock_section_bound {
  uint64_t struct_size;
  uint64_t capacity; /* most elements encode may write; the exact count for COMBINE_SUM or with EXACT */
  uint32_t role;
  uint32_t dtype;
  uint32_t split; /* PENSTOCK_SPLIT_* of item.h; any value is taken, none is read */
  uint32_t flags;
} penstock_section_bound;

/* Section flags. */
enum { PENSTOCK_SECTION_EXACT = 1u << 0 /* the count is always the capacity: no counts need to travel */ };

typedef struct penstock_round {
  uint64_t struct_size;
  const penstock_section_bound* const* sections; /* [n_sections] */
  uint64_t n_sections;
  uint32_t combine;
  uint32_t result; /* read for the last round only */
  uint32_t reduction; /* COMBINE_SUM: PENSTOCK_REDUCE_* of collective.h; 0 means sum */
  uint32_t flags;
} penstock_round;

/* Memory forms (memory.h) that a compressor may fold into its encode, as a bit mask; see penstock_compressor.folds. */
enum { PENSTOCK_FOLD_AFFINE = 1u << 0, PENSTOCK_FOLD_HEAVY_BALL = 1u << 1, PENSTOCK_FOLD_NESTEROV = 1u << 2 };

enum { PENSTOCK_SCOPE_ITEM = 0, PENSTOCK_SCOPE_BUCKET = 1 };

enum {
  PENSTOCK_NEED_LOSSLESS = 1u << 0, /* decode(encode(x)) is x: nothing is ever left over */
  PENSTOCK_NEED_LINEAR = 1u << 1    /* decode(sum of payloads) is the sum of decoded payloads */
};

/* What one item needs in one phase. Filled by plan; the arrays it points to belong to the plugin and are valid until
 * the next plan call on the instance. The core copies. */
typedef struct penstock_compressor_need {
  uint64_t struct_size;
  const penstock_round* const* rounds; /* [n_rounds]; none: the item is only compensated in this phase */
  uint64_t n_rounds;
  const penstock_state_declaration* const* states; /* [n_states]; equal in all phases */
  uint64_t n_states;
  uint64_t scratch_bytes;  /* for a call with this item; the core adds them up over a bucket */
  uint64_t part_alignment; /* elements: the item may be cut at multiples of this; 0: indivisible */
  uint32_t period;         /* phases of this method: 1, or 2 for ACP-SGD; equal for all items */
  uint32_t scope;          /* BUCKET: encode chooses across all items of the call */
  uint32_t flags;
  uint32_t reserved;
} penstock_compressor_need;

enum {
  PENSTOCK_DECODE_FIRST = 1u << 0, /* in the last round: clears `out` before adding */
  PENSTOCK_DECODE_LAST = 1u << 1,  /* no further payloads of this round follow: finish the round */
  PENSTOCK_DECODE_OWN = 1u << 2    /* what this rank alone sent, into `out`: must change no state */
};

/* Facts about the method that do not depend on an item. */
typedef struct penstock_compressor_traits {
  uint64_t struct_size;
  uint64_t dtypes;       /* PENSTOCK_DTYPE_BIT of what `work` and `out` may be; others are staged to float32 */
  uint64_t device_types; /* bit per device type where this instance works; the CPU's among them */
  uint32_t folds;        /* memory forms it folds */
  uint32_t flags;        /* PENSTOCK_COMPRESSOR_* */
} penstock_compressor_traits;

enum {
  PENSTOCK_COMPRESSOR_UNBIASED = 1u << 0,
  PENSTOCK_COMPRESSOR_RANDOM = 1u << 1,
  PENSTOCK_COMPRESSOR_NEEDS_MEMORY = 1u << 2, /* biased: without a memory it converges badly; warned about */
  PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS = 1u << 3, /* works only where the memory keeps a residual */
  PENSTOCK_COMPRESSOR_SCALES_RESULT = 1u << 4    /* multiplies what it decodes by step->result_scale */
};

typedef struct penstock_compressor {
  uint64_t struct_size;

  /* [control] Makes an instance. On error *instance is untouched. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  /* [control] Null is fine. */
  void (*destroy)(void* instance);
  /* [control] Pure. */
  penstock_status* (*describe)(void* instance, penstock_compressor_traits* traits);

  /* [control] Fills needs[i] for items[i] (name, shape, numel, dtypes and where the gradient lies are set, data pointers null) in `phase`.
   * INVALID_ARGUMENT for an item the method cannot serve; the message says which rule to add. */
  penstock_status* (*plan)(void* instance, uint32_t phase, uint32_t world, const penstock_item* const* items,
                           uint64_t n_items, penstock_compressor_need* const* needs);

  /* [step] All items of a bucket in one call. Reads work, fills payloads[i] for items[i]: writes sections, sets counts
   * and kind. In the last round, where ITEM_KEEP is set, takes out of work exactly what the payload stands for;
   * otherwise, and after an error, work must be unchanged. */
  penstock_status* (*encode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                             const penstock_item* const* items, uint64_t n_items, penstock_payload* const* payloads);

  /* [step] payloads[i * n_ranks + r] for items[i]; ranks ascend over calls. They are input from peers: check counts, and
   * indices but on a device, where the host has (INVALID_PAYLOAD names rank and gradient); what else of them needs a look
   * there lies at on_host of the sections. ABSENT is legal. In the last round
   * `out` receives the sum (RESULT_MEAN) or the result. Replicated state changes here, never under DECODE_OWN. */
  penstock_status* (*decode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                             const penstock_item* const* items, uint64_t n_items,
                             const penstock_payload* const* payloads, uint64_t n_ranks, uint32_t flags);

  /* [any] An optional ability by id and revision; null where unknown. May be null. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_compressor;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_COMPRESSOR_H */
