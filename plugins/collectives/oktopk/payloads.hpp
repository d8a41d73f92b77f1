// Converts between the items' payloads and one ascending list of pairs.
#pragma once

#include "pairs.hpp"

#include <penstock/collective.h>

#include <span>
#include <vector>

namespace penstock::oktopk {

// The number of elements of all items, and the number of entries that their payloads have room for.
uint64_t count_elements(const penstock_message& message);
uint64_t count_capacity(const penstock_message& message);

// Checks the message's payloads and appends their entries to `pairs`. Throws INVALID_ARGUMENT for a
// payload that is neither sparse nor absent, that contains dtypes other than uint32 and float32, or
// whose indices do not ascend within the item.
void read_payloads(const penstock_message& message, std::vector<Pair>& pairs);

// Writes `pairs` as sparse payloads of the items. Throws if an item has more entries than its
// payload has room for.
void write_payloads(const penstock_message& message, std::span<const Pair> pairs,
                    penstock_payload* const* payloads, int32_t rank);

}  // namespace penstock::oktopk
