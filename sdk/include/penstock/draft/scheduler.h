/* Draft: what schedulers may ask for one day. No host acts on it yet, and one that meets it refuses the plugin with a
 * sentence. Numbers stay taken; names and meaning may change until this moves to <penstock/scheduler.h>. */
#ifndef PENSTOCK_DRAFT_SCHEDULER_H
#define PENSTOCK_DRAFT_SCHEDULER_H

#include <penstock/scheduler.h>

enum {
  /* A flag of penstock_scheduler_traits: penstock_scheduler.arrange decides at run time in which order that goes out which
   * is ready on every rank. Such plans differ between runs: refused under deterministic = true. */
  PENSTOCK_SCHEDULER_NEGOTIATES = 1u << 2
};

#endif /* PENSTOCK_DRAFT_SCHEDULER_H */
