/* Draft: abilities that collectives may declare in a later version. No host supports them today: a
 * host refuses a plugin that sets a draft flag, with a message. The numbers stay reserved. Names
 * and meaning may change until a draft moves to <penstock/collective.h>. */
#ifndef PENSTOCK_DRAFT_COLLECTIVE_H
#define PENSTOCK_DRAFT_COLLECTIVE_H

#include <penstock/collective.h>

enum {
  /* A flag of penstock_collective_traits: the collective reads counts of sections on the device, at
   * device_count of penstock_section. If the flag is not set, every count is known on the host when
   * a message is submitted. */
  PENSTOCK_COLLECTIVE_DEVICE_COUNTS = 1u << 6
};

#endif /* PENSTOCK_DRAFT_COLLECTIVE_H */
