/* The table through which the core touches a device. libpenstock_device_cuda.so exports one, as
 * `penstock_device`; without the file the core knows the CPU only.
 *
 * Internal to Penstock: plugins never see it. Results are native error numbers of the device's
 * runtime, 0 for success; error_text names them. A machine without a driver or without a device is
 * no error: device_count then gives 0 and says why. Nothing here waits for a device unless its name
 * says so.
 *
 * Threads: every function may be called from any thread; each but make_current leaves the calling
 * thread's current device as it found it. */
#ifndef PENSTOCK_DEVICE_TABLE_H
#define PENSTOCK_DEVICE_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_device_properties {
  uint64_t struct_size;
  uint64_t memory_bytes;
  char name[256];
  int32_t major; /* of the compute capability */
  int32_t minor;
  int32_t n_multiprocessors;
  int32_t n_copy_engines;
} penstock_device_properties;

/* Indices of a peer's payload, in device memory. */
typedef struct penstock_index_list {
  const uint32_t* indices;
  uint64_t count;
  uint64_t below;
  uint32_t* wrong; /* on the device: becomes 1 unless each is greater than the one before it and
                      less than `below` */
} penstock_index_list;

/* Floats of a device to look at, and where the device is to say what was found. `dtype`, here and
 * below: PENSTOCK_FLOAT32, PENSTOCK_FLOAT16 or PENSTOCK_BFLOAT16. */
typedef struct penstock_device_values {
  const void* values;
  float* widened; /* null, or where each goes as a float32; elsewhere than `values` */
  uint64_t count;
  uint32_t* found;
  uint32_t dtype;
  uint32_t reserved;
} penstock_device_values;

/* Elements to copy within a device; the two do not overlap. */
typedef struct penstock_device_copy {
  const void* source;
  void* target;
  uint64_t count;
  uint32_t element_bytes; /* 2 or 4; both lie at multiples of it */
  uint32_t reserved;
} penstock_device_copy;

typedef struct penstock_device_table {
  uint64_t struct_size;
  int32_t device_type; /* PENSTOCK_DEVICE_CUDA */
  int32_t reserved;

  /* What an error number means; the text lives for ever. */
  const char* (*error_text)(int32_t error);
  /* *why_none tells, where *count is 0, what is missing; the text lives for ever. */
  int32_t (*device_count)(int32_t* count, const char** why_none);
  int32_t (*properties)(int32_t device, penstock_device_properties* properties);

  /* Streams do not synchronise with the legacy default stream. `priority`: 1 for a stream that goes
   * before others (communication), else 0. The first of a device loads the table's kernels there,
   * and may wait for its work. The maker destroys; destroying waits for nothing. */
  int32_t (*stream_create)(int32_t device, int32_t priority, void** stream);
  int32_t (*stream_destroy)(int32_t device, void* stream);
  /* Blocks the caller until all work queued on `stream` is done. Never on a step's path. */
  int32_t (*stream_wait)(int32_t device, void* stream);

  /* Events order streams and tell the host what is done; they carry no time, but for those at the
   * end of the table. */
  int32_t (*event_create)(int32_t device, void** event);
  int32_t (*event_destroy)(int32_t device, void* event);
  int32_t (*event_record)(int32_t device, void* event, void* stream);
  /* *done: 1 when all work before the last record is done, or nothing was recorded. */
  int32_t (*event_query)(int32_t device, void* event, uint32_t* done);
  /* Work queued on `stream` from now on starts after the event's last record. The host goes on. */
  int32_t (*event_wait)(int32_t device, void* stream, void* event);

  /* Queued on `stream`. Host memory must come from host_allocate, or the call may block. */
  int32_t (*copy_to_device)(int32_t device, void* target, const void* source, uint64_t bytes,
                            void* stream);
  int32_t (*copy_to_host)(int32_t device, void* target, const void* source, uint64_t bytes,
                          void* stream);
  int32_t (*copy_on_device)(int32_t device, void* target, const void* source, uint64_t bytes,
                            void* stream);

  /* At plan time only: they may synchronise the device. Freeing null is fine. */
  int32_t (*allocate)(int32_t device, uint64_t bytes, void** memory);
  int32_t (*free)(int32_t device, void* memory);
  int32_t (*host_allocate)(int32_t device, uint64_t bytes, void** memory);
  int32_t (*host_free)(int32_t device, void* memory);

  /* Queued on `stream`, of device memory. Zero bytes; of each of several arrays, in as few launches
   * as go, *found becomes 1 where some value is NaN or infinite, else it stays; every value becomes
   * NaN; every value times `factor`, in float32; float32 values rounded to the nearest of a type of
   * 16 bits, ties to even. */
  int32_t (*clear)(int32_t device, void* target, uint64_t bytes, void* stream);
  int32_t (*find_nonfinite)(int32_t device, const penstock_device_values* arrays, uint64_t n_arrays,
                            void* stream);
  int32_t (*fill_nan)(int32_t device, void* values, uint64_t count, uint32_t dtype, void* stream);
  int32_t (*scale)(int32_t device, void* values, uint64_t count, uint32_t dtype, float factor,
                   void* stream);
  int32_t (*narrow)(int32_t device, const float* source, void* target, uint64_t count,
                    uint32_t dtype, void* stream);
  /* Queued on `stream`; `lists` is read before it returns. */
  int32_t (*check_indices)(int32_t device, const penstock_index_list* lists, uint64_t n_lists,
                           void* stream);
  /* copy_on_device of many at once. */
  int32_t (*copy_many)(int32_t device, const penstock_device_copy* copies, uint64_t n_copies,
                       void* stream);
  /* The device becomes the calling thread's for good, for libraries that ask whose it is and so
   * that other calls need not change it; captures of other threads' streams neither forbid it
   * anything nor suffer from it. For threads that are Penstock's own. */
  int32_t (*make_current)(int32_t device);

  /* An event with a time; all that takes events takes it. Between the last records of two of them,
   * both done, as event_query says, lie *us microseconds of the device's. */
  int32_t (*event_create_timed)(int32_t device, void** event);
  int32_t (*event_elapsed)(int32_t device, void* begin, void* end, double* us);
} penstock_device_table;

#if defined(_WIN32)
#define PENSTOCK_DEVICE_EXPORT __declspec(dllexport)
#else
#define PENSTOCK_DEVICE_EXPORT __attribute__((visibility("default")))
#endif

extern PENSTOCK_DEVICE_EXPORT const penstock_device_table penstock_device;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_DEVICE_TABLE_H */
