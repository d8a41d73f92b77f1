/* Draft: what collectives may offer one day. No host acts on it yet, and one that meets it refuses the plugin with a
 * sentence. Numbers stay taken; names and meaning may change until this moves to <penstock/collective.h>. */
#ifndef PENSTOCK_DRAFT_COLLECTIVE_H
#define PENSTOCK_DRAFT_COLLECTIVE_H

#include <penstock/collective.h>

enum {
  /* A flag of penstock_collective_traits: counts of sections are read on the device, where device_count of a
   * penstock_section points. Without it every count is known on the host when a message is submitted. */
  PENSTOCK_COLLECTIVE_DEVICE_COUNTS = 1u << 6
};

#endif /* PENSTOCK_DRAFT_COLLECTIVE_H */
