// Means of 16-bit floats that are formed where ranks are added up, for their sums may not fit
// (penstock/mean.h).
//
// On route hierarchical the mean over hosts of what owners have must be the mean over ranks. An
// owner has the sum of its host's ranks, or their mean if it travelled in 16 bits. It multiplies a
// sum by hosts / ranks of the set, and a mean by the ranks of its host as well.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

// Whether what arrives of an item is the mean. It is not if a memory keeps what is not sent: then
// what is too large for a sum stays in the memory, and no small value is lost in a division. Every
// rank answers alike. [control]
bool arrives_as_mean(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                     const penstock_compressor_need& compressor);

// Whether a host's ranks, whose gradients travel to their owners in `message`, are to be averaged
// there. [control]
bool averages_host(const MessageRun& message);

// Multiplies an owner's share by that factor.
Status weigh_shares(BucketRun& bucket, MessageRun& message);

}  // namespace penstock
