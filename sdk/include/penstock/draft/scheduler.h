/* Draft: abilities that schedulers may declare in a later version. No host supports them today: a
 * host refuses a plugin that sets a draft flag, with a message. The numbers stay reserved. Names
 * and meaning may change until a draft moves to <penstock/scheduler.h>. */
#ifndef PENSTOCK_DRAFT_SCHEDULER_H
#define PENSTOCK_DRAFT_SCHEDULER_H

#include <penstock/scheduler.h>

enum {
  /* A flag of penstock_scheduler_traits: penstock_scheduler.arrange decides at run time the order
   * of the gradients that are ready on every rank. Such plans differ between runs, so they are
   * refused under deterministic = true. */
  PENSTOCK_SCHEDULER_NEGOTIATES = 1u << 2
};

#endif /* PENSTOCK_DRAFT_SCHEDULER_H */
