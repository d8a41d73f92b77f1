/* Workers: threads of the host that share the work of one call, so that a kernel can use several
 * cores.
 *
 * This is an extension of the host. If the host does not have it, the plugin does the work
 * itself. */
#ifndef PENSTOCK_WORKERS_H
#define PENSTOCK_WORKERS_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The id for penstock_host.extension, which returns a penstock_workers that lives as long as the
 * process. */
#define PENSTOCK_WORKERS_EXTENSION "penstock.workers/1"

typedef struct penstock_workers {
  uint64_t struct_size;
  void* context;
  /* [any] Returns the number of threads of a run, including the caller's thread: at least 1. The
   * number may differ between ranks, so results must not depend on it. */
  uint32_t (*count)(void* context);
  /* [step] Calls task(task_context, i) once for each i < n_tasks, several at a time, in any order,
   * and returns when all tasks are done. The data that the tasks wrote are then visible to the
   * caller. A task must not fail, wait for another task or call run. If the workers are busy with
   * the run of another caller, the caller's thread does all tasks. */
  void (*run)(void* context, uint32_t n_tasks, void (*task)(void* task_context, uint32_t index), void* task_context);
} penstock_workers;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_WORKERS_H */
