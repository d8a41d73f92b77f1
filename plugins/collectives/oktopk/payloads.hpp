// Between the items' payloads and one ascending list of pairs.
#pragma once

#include "pairs.hpp"

#include <penstock/collective.h>

#include <span>
#include <vector>

namespace penstock::oktopk {

// Elements of all items, and the entries that their payloads have room for.
uint64_t count_elements(const penstock_message& message);
uint64_t count_capacity(const penstock_message& message);

// Checks the message's payloads and appends their entries to `pairs`. Throws INVALID_ARGUMENT for a
// payload that is neither sparse nor absent, has other dtypes than uint32 and float32, or whose
// indices do not ascend within the item.
void read_payloads(const penstock_message& message, std::vector<Pair>& pairs);

// Writes `pairs` as sparse payloads of the items. Throws when they do not fit.
void write_payloads(const penstock_message& message, std::span<const Pair> pairs,
                    penstock_payload* const* payloads, int32_t rank);

}  // namespace penstock::oktopk
