/* What the host does for a plugin. The table outlives every instance. */
#ifndef PENSTOCK_HOST_H
#define PENSTOCK_HOST_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PENSTOCK_LOG_DEBUG = 0,
  PENSTOCK_LOG_INFO = 1,
  PENSTOCK_LOG_WARNING = 2,
  PENSTOCK_LOG_ERROR = 3
};

/* A key-value store shared by all ranks of a run, for rendezvous. Not a data path. */
typedef struct penstock_key_value_store {
  uint64_t struct_size;
  void* context;
  /* [control] Stores `value` under `key`; both are copied. Setting a key twice replaces it. */
  penstock_status* (*put)(void* context, penstock_str key, penstock_str value);
  /* [control] Waits until `key` is there, at most `timeout_us`; passes the value to `sink` (borrowed for that call).
   * DEADLINE_EXCEEDED names the key. */
  penstock_status* (*get)(void* context, penstock_str key, uint64_t timeout_us, void* sink_context,
                          void (*sink)(void* sink_context, penstock_str value));
} penstock_key_value_store;

typedef struct penstock_host {
  uint64_t struct_size;
  void* context; /* first argument of every function below */
  uint32_t abi_major;
  uint32_t abi_minor;
  penstock_str version; /* of the product, for messages only */

  /* [any] Makes an error: thing, value, expectation and remedy in `message`, which is copied. Never returns null. */
  penstock_status* (*status_new)(void* context, uint32_t code, penstock_str message);
  /* [any] Reads an error. The text lives as long as the status. A null status is OK with an empty message. */
  uint32_t (*status_code)(void* context, const penstock_status* status);
  penstock_str (*status_message)(void* context, const penstock_status* status);
  /* [any] Frees an error; null is fine. */
  void (*status_free)(void* context, penstock_status* status);

  /* [any] Writes to the run's log. `component` is the plugin's id. */
  void (*log)(void* context, uint32_t level, penstock_str component, penstock_str message);

  /* [any] The code path agreed between the ranks for a kernel family, for example "avx2"; "" lets the plugin choose.
   * The text lives as long as the host. */
  penstock_str (*code_path)(void* context, penstock_str kernel_family);

  /* [any] A further service by id and revision, "penstock.<name>/<revision>"; null where the host lacks it. */
  const void* (*extension)(void* context, penstock_str id);
} penstock_host;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_HOST_H */
