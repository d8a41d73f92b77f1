/* Penstock plugin ABI: the types and constants that every other header uses.
 *
 * C11 and C++17, fixed-width integers only, no implicit padding. These rules hold for every header:
 *  - Every struct starts with `struct_size`, set by the side that makes the struct. A field is
 *    present if its end lies within `struct_size`. Structs grow only at their end; a new field of
 *    value zero always keeps the old meaning.
 *  - Arrays of structs are arrays of pointers, so that a struct may grow without moving other
 *    structs.
 *  - Strings are UTF-8, without a terminating zero, and borrowed for the duration of the call
 *    unless stated otherwise.
 *  - A function returns null for success, or a status made by the host (see host.h). The receiver
 *    owns the status.
 *  - Each function carries a thread tag:
 *      [any]      called from any thread, at any time
 *      [load]     called once per runtime, while the plugin is loaded
 *      [control]  never concurrent for one instance; may allocate and may take long
 *      [step]     called on the engine thread; must not allocate, block or synchronise a device
 *      [comm]     called on the communication thread; must do bounded work per call
 *      [plan]     like [control], on rank 0 only
 */
#ifndef PENSTOCK_BASE_H
#define PENSTOCK_BASE_H

#include <stddef.h>
#include <stdint.h>

#define PENSTOCK_ABI_MAJOR 0
#define PENSTOCK_ABI_MINOR 16

#ifdef __cplusplus
extern "C" {
#endif

/* True if the side that made the struct behind `pointer` knew `field`. */
#define PENSTOCK_HAS_FIELD(pointer, type, field) \
  ((pointer)->struct_size >= offsetof(type, field) + sizeof((pointer)->field))

/* An error status, passed to the caller that can act on it. It is opaque; the host makes and frees
 * it. Null is success. */
typedef struct penstock_status penstock_status;

/* Borrowed UTF-8 text: `size` bytes at `data`. Empty text may have a null `data`. */
typedef struct penstock_str {
  const char* data;
  uint64_t size;
} penstock_str;

/* Kinds of errors. The receiver can react differently to each kind. */
enum {
  PENSTOCK_OK = 0,
  PENSTOCK_INVALID_ARGUMENT = 1,    /* the caller passed an illegal argument; nothing changed */
  PENSTOCK_FAILED_PRECONDITION = 2, /* a legal call at the wrong moment; nothing changed */
  PENSTOCK_NOT_FOUND = 3,
  PENSTOCK_UNIMPLEMENTED = 4,    /* the callee does not know a non-zero field or an operation */
  PENSTOCK_INVALID_PAYLOAD = 5,  /* bytes from a peer are not a payload of this method */
  PENSTOCK_OUT_OF_MEMORY = 6,
  PENSTOCK_DEADLINE_EXCEEDED = 7,
  PENSTOCK_PEER_FAILED = 8,   /* another rank died, stopped or reported an error */
  PENSTOCK_MISMATCH = 9,      /* ranks disagree on configuration, shape, order or count */
  PENSTOCK_ABORTED = 10,      /* given up because another operation failed first */
  PENSTOCK_DEVICE_ERROR = 11,
  PENSTOCK_INTERNAL = 12      /* a bug; the instance may only be destroyed */
};

/* Element types. The set is open: a callee must refuse a value that it does not know. */
enum {
  PENSTOCK_FLOAT32 = 1,
  PENSTOCK_FLOAT16 = 2,
  PENSTOCK_BFLOAT16 = 3,
  PENSTOCK_FLOAT64 = 4,
  PENSTOCK_INT8 = 5,
  PENSTOCK_UINT8 = 6,
  PENSTOCK_INT16 = 7,
  PENSTOCK_UINT16 = 8,
  PENSTOCK_INT32 = 9,
  PENSTOCK_UINT32 = 10,
  PENSTOCK_INT64 = 11,
  PENSTOCK_UINT64 = 12,
  PENSTOCK_BOOL = 13
};

/* One bit per element type, for capability masks. */
#define PENSTOCK_DTYPE_BIT(dtype) (((uint64_t)1) << (dtype))

/* Device types, with the numbers of DLPack. */
enum { PENSTOCK_DEVICE_CPU = 1, PENSTOCK_DEVICE_CUDA = 2 };

/* A borrowed view of elements on one device. `strides` counts elements; null means contiguous,
 * row-major. Items hold the struct by value, so it never grows: later versions add fields for
 * tensors to the item. */
typedef struct penstock_tensor {
  uint64_t struct_size;
  void* data;
  const int64_t* shape;   /* [n_dims] */
  const int64_t* strides; /* [n_dims] or null */
  uint64_t n_dims;
  uint64_t numel;
  uint32_t dtype;
  int32_t device_type;
  int32_t device_id;
  uint32_t flags; /* 0 */
} penstock_tensor;

/* The device and resources of a call. Its tensors, payload sections and scratch lie on this device.
 * On the CPU `stream` is null and the work is done on return. On another device the call queues its
 * work on `stream` and returns without waiting. */
typedef struct penstock_exec {
  uint64_t struct_size;
  void* stream;
  void* scratch; /* aligned to 64 bytes; its contents are undefined; valid during the call */
  uint64_t scratch_bytes;
  int32_t device_type;
  int32_t device_id;
} penstock_exec;

/* Facts of the current step. Plugins must never read such facts from files, environment or globals.
 * All fields except `rank` are equal on all ranks of the leg's group. */
typedef struct penstock_step {
  uint64_t struct_size;
  uint64_t index; /* number of earlier steps of the set that were not forgotten; a resume continues
                     the count */
  uint64_t seed;  /* the run's seed: random numbers are a function of (seed, index, gradient,
                     element, rank) */
  double grad_scale; /* gradients hold their true value times this factor (loss scaling); memories
                        keep unscaled values */
  uint32_t phase;    /* index modulo the plan's period */
  uint32_t rank;     /* this rank in the group of the leg */
  uint32_t world;    /* ranks in the group of the leg */
  uint32_t flags;    /* 0 */
  /* 0 means 1. Otherwise decode with DECODE_LAST multiplies each sum in `out` by this factor,
   * rounded to float32. The result is the mean, without another sweep. Only for compressors with
   * SCALES_RESULT, never with DECODE_OWN. */
  double result_scale;
} penstock_step;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_BASE_H */
