// Means of 16-bit floats. They are formed while values of ranks are added, because a sum may not
// fit into 16 bits (penstock/mean.h).
//
// On route `hierarchical` the mean over hosts of the owners' shares must be the mean over ranks.
// The share of an owner is the sum over its host's ranks, or their mean if the values travelled in
// 16 bits. The owner multiplies a sum by the number of hosts divided by the number of ranks in the
// set, and a mean also by the number of ranks on its host.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Whether the mean of an item arrives, not its sum. The mean does not arrive if a memory keeps the
// rest that is not sent: then a value that is too large for a sum stays in the memory, and no small
// value is lost in a division. Every rank answers alike. [control]
bool arrives_as_mean(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                     const penstock_compressor_need& compressor);

// Whether the ranks of a host, whose gradients travel to their owners in `message`, are averaged on
// the host. [control]
bool averages_host(const MessageRun& message);

// Multiplies the shares of this owner by the factor that the head of this file gives.
Status weigh_shares(BucketRun& bucket, MessageRun& message);

}  // namespace penstock
