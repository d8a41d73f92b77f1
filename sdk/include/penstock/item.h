/* What compressors, memories and collectives work on: items, the state kept for them, and payloads. */
#ifndef PENSTOCK_ITEM_H
#define PENSTOCK_ITEM_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- State: declared by plugins; allocated, zeroed, saved and restored by the core ---- */

enum {
  PENSTOCK_STATE_MASS = 1,       /* rank-local gradient mass: conserved, never broadcast (residuals, momenta) */
  PENSTOCK_STATE_REPLICATED = 2, /* equal bits on all ranks; changed only in decode and finish (Power-SGD's P and Q) */
  PENSTOCK_STATE_SOFT = 3,       /* may be lost at a re-plan; saved so that a resume is bit-identical (thresholds) */
  PENSTOCK_STATE_LOCAL = 4       /* rank-local, kept at every re-plan as mass is, but owed to nobody: no law of conservation
                                    holds for it, and drain leaves it as it is (EF21's shift) */
};

/* What becomes of a mass or local state on another number of ranks. SUM adds up; of mass what is owed stays (docs/abi.md). */
enum { PENSTOCK_RESIZE_SUM = 1, PENSTOCK_RESIZE_DROP = 2, PENSTOCK_RESIZE_REFUSE = 3 };

/* One state tensor of one item. It is keyed by (gradient name, element range, leg, plugin, name), never by bucket, so
 * that a new plan loses nothing. Where a new plan cuts the gradient elsewhere, states with an element for each of the
 * item's follow their elements, unless they are soft. */
typedef struct penstock_state_declaration {
  uint64_t struct_size;
  penstock_str name; /* unique within the plugin */
  uint64_t rows;     /* the tensor has rows * cols elements, zero at first use */
  uint64_t cols;
  uint32_t dtype;
  uint32_t state_class;
  uint32_t on_resize; /* MASS and LOCAL only */
  uint32_t flags;     /* 0 */
} penstock_state_declaration;

/* ---- Items ---- */

enum {
  /* Work is a state, in which the memory keeps what is not sent: the last round's encode must take out of `work` exactly what its payload
   * stands for, the rounding of values included. Without this flag, and in every round before the last with or
   * without it, encode must leave `work` bit for bit as it was: work may be the gradient itself, which the core may
   * send out of its own storage, and which the next round reads again. */
  PENSTOCK_ITEM_KEEP = 1u << 0,
  /* Seen by memories: the compressor of this item loses nothing (compressor `none`). */
  PENSTOCK_ITEM_LOSSLESS = 1u << 1,
  /* What is not sent comes in a later step: with KEEP always, and where the memory says ADDS_REST. A compressor that
   * multiplies what it sends so that it is right on average (random-k) must not do so then. Hosts before ABI 0.4 set KEEP
   * alone, so read it as (KEEP or REST_FOLLOWS). */
  PENSTOCK_ITEM_REST_FOLLOWS = 1u << 2
};

/* A gradient, or an aligned range of one, at one leg of its route. All views are contiguous. Owned by the core, valid
 * during the call; `states` hold their contents between steps. Compressor calls see the compressor's states, memory
 * calls the memory's, in the order of declaration. */
typedef struct penstock_item {
  uint64_t struct_size;
  penstock_str name; /* of the gradient; the same on every rank and in every run */
  uint64_t gradient; /* index in the set; the same on every rank */
  uint64_t first;    /* element range within the gradient: [first, first + numel) */
  uint64_t numel;
  uint64_t rows; /* matrix view: first dimension by the product of the others; 1-D: numel by 1 */
  uint64_t cols;
  uint64_t n_dims; /* of the whole gradient */
  const int64_t* shape;
  penstock_tensor grad; /* the local gradient as the frontend gave it (staged to float32 where the plugin wants that) */
  penstock_tensor work; /* what is compressed: the gradient itself, a memory's state, or scratch */
  penstock_tensor out;  /* where the last round's decode leaves the result; may share storage with grad, never with work
                           unless work is grad. Decode of an earlier round must not touch it */
  const penstock_tensor* const* states; /* [n_states] */
  uint64_t n_states;
  double learning_rate; /* of the optimizer for this gradient, 0 when the frontend does not tell */
  uint32_t leg;
  uint32_t flags;
} penstock_item;

/* ---- Payloads ---- */

enum {
  PENSTOCK_ROLE_VALUES = 1,  /* numbers that stand for elements */
  PENSTOCK_ROLE_INDICES = 2, /* element positions within the item, ascending */
  PENSTOCK_ROLE_SCALES = 3,
  PENSTOCK_ROLE_BITS = 4,
  PENSTOCK_ROLE_FACTOR = 5, /* a low-rank factor */
  PENSTOCK_ROLE_OTHER = 6
};

/* How a section is divided when ranges of the item go to different owners. A note for later: no host reads it. */
enum {
  PENSTOCK_SPLIT_NEVER = 0,
  PENSTOCK_SPLIT_BY_ELEMENT = 1, /* entry i belongs to element i */
  PENSTOCK_SPLIT_BY_INDEX = 2,   /* entry i belongs to element indices[i] */
  PENSTOCK_SPLIT_COPY = 3        /* every owner needs all of it (scales) */
};

enum {
  PENSTOCK_PAYLOAD_ABSENT = 1, /* nothing: legal for every method; counts as zeros, or as no vote */
  PENSTOCK_PAYLOAD_DENSE = 2,  /* one section, entry i stands for element i */
  PENSTOCK_PAYLOAD_SPARSE = 3, /* an INDICES section (uint32), a VALUES section of equal count, then what values need */
  PENSTOCK_PAYLOAD_CODED = 4   /* only the compressor can read it */
};

/* What encode on a device may leave as the count of a section that was not planned as exact: the device knows it, and has
 * written it to device_count when its work is done. Of pairs only the indices have one; as many values go. */
#define PENSTOCK_COUNT_ON_DEVICE UINT64_MAX

/* A run of typed elements in the core's wire arena. */
typedef struct penstock_section {
  uint64_t struct_size;
  void* data;
  uint64_t* device_count; /* encode on a device, of a section whose count may vary: where work queued on the call's stream
                             may write it; null everywhere else */
  uint64_t count;         /* encode sets it; at most capacity; for a summed round exactly capacity */
  uint64_t capacity;      /* elements */
  uint32_t role;
  uint32_t dtype;
  /* Since 0.7. Where `data` is on a device: the same elements in host memory, to be read only, for what has to be looked at
   * before it is used; null where they are nowhere but on the device. Nothing that encode may look at. */
  const void* on_host;
} penstock_section;

/* What one rank sends for one item in one round. */
typedef struct penstock_payload {
  uint64_t struct_size;
  penstock_section* const* sections; /* [n_sections], as the plan declared them */
  uint64_t n_sections;
  uint32_t kind;
  int32_t rank; /* whose it is; -1 for a result that already joins all ranks (summed rounds, composites) */
} penstock_payload;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_ITEM_H */
