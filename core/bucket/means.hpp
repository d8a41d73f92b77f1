// Means of 16-bit floats that are formed where ranks are added up, for their sums may not fit
// (penstock/mean.h).
//
// On the route hierarchical they are means over hosts of what owners have of their host. That is
// its ranks' sum, which the owner makes as much smaller as the ranks are more than the hosts; where
// it travels in 16 bits it is a mean already, and the owner does the rest.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Whether what arrives of an item is the mean. Not where something is kept of what is not sent:
// then whatever is too large for a sum stays there, and nothing small is lost in a division. Every
// rank answers alike. [control]
bool arrives_as_mean(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                     const penstock_compressor_need& compressor);

// Whether a host's ranks, whose gradients travel to their owners in `message`, are to be averaged
// there. [control]
bool averages_host(const MessageRun& message);

// Makes an owner's share of that what the mean over hosts is of. On a device that is queued.
Status weigh_shares(BucketRun& bucket, MessageRun& message);

}  // namespace penstock
