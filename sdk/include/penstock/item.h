/* The data that compressors, memories and collectives work on: items, their states, and
 * payloads. */
#ifndef PENSTOCK_ITEM_H
#define PENSTOCK_ITEM_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- States: plugins declare them; the core allocates, zeroes, saves and restores them ---- */

enum {
  PENSTOCK_STATE_MASS = 1,       /* gradient mass of one rank: conserved, never broadcast
                                    (residuals, momenta) */
  PENSTOCK_STATE_REPLICATED = 2, /* equal bits on all ranks; may change only in decode and finish
                                    (Power-SGD's P and Q) */
  PENSTOCK_STATE_SOFT = 3,       /* may be lost at a new plan; saved so that a resume is
                                    bit-identical (thresholds) */
  PENSTOCK_STATE_LOCAL = 4       /* local to one rank and kept at every new plan, like mass. It is
                                    not gradient mass: no rule of conservation holds for it, and
                                    drain does not change it (EF21's shift) */
};

/* The treatment of a mass or local state that is loaded on another number of ranks. SUM adds the
 * states of old ranks, and scales mass so that the total owed to the parameters stays equal
 * (docs/abi.md). DROP sets zeros. REFUSE refuses the load. */
enum { PENSTOCK_RESIZE_SUM = 1, PENSTOCK_RESIZE_DROP = 2, PENSTOCK_RESIZE_REFUSE = 3 };

/* One state tensor of one item. Its key is (gradient name, element range, leg, plugin, name), never
 * the bucket, so that a new plan loses no state. If a new plan cuts the gradient at other elements,
 * a state with one number per element of the item is cut there too, unless it is SOFT. */
typedef struct penstock_state_declaration {
  uint64_t struct_size;
  penstock_str name; /* unique within the plugin */
  uint64_t rows;     /* the tensor has rows * cols elements, which are zero at first use */
  uint64_t cols;
  uint32_t dtype;
  uint32_t state_class;
  uint32_t on_resize; /* PENSTOCK_RESIZE_*, for MASS and LOCAL only */
  uint32_t flags;     /* 0 */
} penstock_state_declaration;

/* ---- Items ---- */

enum {
  /* `work` is a state in which the memory keeps the unsent values. The encode of the last round
   * must subtract from `work` exactly the values that its payload stands for, including the
   * rounding of values. If this flag is not set, and in every round before the last, encode must
   * leave `work` unchanged, bit for bit: `work` may be the gradient itself. The core may send the
   * gradient directly from its storage, and the next round reads it again. */
  PENSTOCK_ITEM_KEEP = 1u << 0,
  /* Set for memories: the compressor of this item loses nothing (compressor `none`). */
  PENSTOCK_ITEM_LOSSLESS = 1u << 1,
  /* Unsent values come in a later step: always with KEEP, and also if the memory declares
   * ADDS_REST. A compressor that multiplies its payload so that it is right on average (random-k)
   * must not multiply then. Hosts before ABI 0.4 set only KEEP, so test for (KEEP or
   * REST_FOLLOWS). */
  PENSTOCK_ITEM_REST_FOLLOWS = 1u << 2
};

/* A gradient, or an aligned range of a gradient, at one leg of its route. All views are contiguous.
 * The core owns the item; it is valid during the call. `states` keep their contents between steps.
 * Calls of a compressor receive the compressor's states, calls of a memory receive the memory's
 * states, in the order of declaration. */
typedef struct penstock_item {
  uint64_t struct_size;
  penstock_str name; /* name of the gradient; equal on every rank and in every run */
  uint64_t gradient; /* index of the gradient in the set; equal on every rank */
  uint64_t first;    /* element range within the gradient: [first, first + numel) */
  uint64_t numel;
  uint64_t rows; /* matrix view: the first dimension by the product of the other dimensions; 1-D:
                    numel by 1 */
  uint64_t cols;
  uint64_t n_dims; /* dimensions of the whole gradient */
  const int64_t* shape;
  penstock_tensor grad; /* the local gradient from the frontend (converted to float32 if the
                           compressor or the memory needs float32) */
  penstock_tensor work; /* the data to compress: the gradient itself, a state of the memory, or
                           scratch */
  penstock_tensor out;  /* the result of the last round's decode. It may share storage with grad,
                           and with work only if work is grad. Decode of an earlier round must not
                           touch it */
  const penstock_tensor* const* states; /* [n_states] */
  uint64_t n_states;
  double learning_rate; /* learning rate of the optimizer for this gradient; 0 if the frontend does
                           not report it */
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

/* How a section is divided if ranges of the item go to different owners. No host reads this value
 * today. */
enum {
  PENSTOCK_SPLIT_NEVER = 0,
  PENSTOCK_SPLIT_BY_ELEMENT = 1, /* entry i belongs to element i */
  PENSTOCK_SPLIT_BY_INDEX = 2,   /* entry i belongs to element indices[i] */
  PENSTOCK_SPLIT_COPY = 3        /* every owner needs the whole section (scales) */
};

enum {
  PENSTOCK_PAYLOAD_ABSENT = 1, /* no data: legal for every method; counts as zeros, or as no vote */
  PENSTOCK_PAYLOAD_DENSE = 2,  /* one section, entry i stands for element i */
  PENSTOCK_PAYLOAD_SPARSE = 3, /* an INDICES section (uint32), a VALUES section of equal count, then
                                  sections that the values need */
  PENSTOCK_PAYLOAD_CODED = 4   /* only the compressor can read it */
};

/* The count that encode on a device may set for a section without EXACT: only the device knows the
 * count, and the queued work writes it to device_count. In a pair of indices and values only the
 * indices have a device_count; the number of values is equal. */
#define PENSTOCK_COUNT_ON_DEVICE UINT64_MAX

/* A section: consecutive elements of one dtype in the core's buffer for messages. */
typedef struct penstock_section {
  uint64_t struct_size;
  void* data;
  uint64_t* device_count; /* in encode on a device, for a section whose count may vary: the place to
                             which work queued on the call's stream may write the count; null
                             everywhere else */
  uint64_t count;         /* in elements; encode sets it, at most capacity; in a summed round
                             exactly capacity */
  uint64_t capacity;      /* in elements */
  uint32_t role;
  uint32_t dtype;
  /* Since 0.7. If `data` is on a device: a read-only copy of the elements in host memory, for
   * checks before use; null if there is no copy. Encode must not read it. */
  const void* on_host;
} penstock_section;

/* A payload: the data that one rank sends for one item in one round. */
typedef struct penstock_payload {
  uint64_t struct_size;
  penstock_section* const* sections; /* [n_sections], as the plan declared them */
  uint64_t n_sections;
  uint32_t kind;
  int32_t rank; /* the rank that made the payload; -1 for a result over all ranks (summed rounds,
                   composites) */
} penstock_payload;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_ITEM_H */
