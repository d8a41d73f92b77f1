#include "planning/rules.hpp"

#include "planning/cost.hpp"
#include "planning/model.hpp"

#include <algorithm>

namespace penstock::planning {

namespace {

using Gradients = std::vector<uint64_t>;
using Buckets = std::vector<Gradients>;

// Cuts as tensor fusion does: a bucket is closed if the next gradient would make it exceed `most`.
Buckets by_bytes(const penstock_model& model, uint32_t phase, const Gradients& gradients,
                 uint64_t most) {
  Buckets buckets;
  uint64_t bucket_bytes = 0;
  for (uint64_t gradient : gradients) {
    const uint64_t bytes = payload_bytes(*model.gradients[gradient], phase);
    bucket_bytes = saturating_add(bucket_bytes, bytes);
    if (buckets.empty() || bucket_bytes > most) {
      buckets.emplace_back();
      bucket_bytes = bytes;
    }
    buckets.back().push_back(gradient);
  }
  return buckets;
}

// Cuts as MG-WFBP does, but decides once per gradient: a gradient joins the open bucket if it is
// ready before the bucket's message could start, or at most `patience` later.
Buckets while_busy(const penstock_model& model, uint32_t phase, const Gradients& gradients,
                   double patience) {
  const std::vector<double> ready = ready_times(model, gradients);
  Buckets buckets{{gradients.front()}};
  Together open(model, phase);
  open.add(gradients.front());
  double link_free = 0;
  for (size_t i = 1; i < gradients.size(); ++i) {
    const double starts = std::max(link_free, ready[i - 1] + open.encode());
    if (ready[i] > starts + patience) {
      link_free = starts + open.exchange();
      open = Together(model, phase);
      buckets.emplace_back();
    }
    open.add(gradients[i]);
    buckets.back().push_back(gradients[i]);
  }
  return buckets;
}

}  // namespace

std::vector<Buckets> cuts_by_rules(const penstock_model& model, uint32_t phase,
                                   const Gradients& gradients) {
  const uint64_t n = gradients.size();
  std::vector<Buckets> cuts;
  for (uint64_t count = 1; count < 2 * n; count *= 2)
    cuts.push_back(buckets_by_count(model, phase, count));
  uint64_t bytes = 0;
  for (uint64_t gradient : gradients)
    bytes = saturating_add(bytes, payload_bytes(*model.gradients[gradient], phase));
  for (uint64_t shares = 2; shares < n && shares <= 256; shares *= 2)
    cuts.push_back(by_bytes(model, phase, gradients, bytes / shares));
  for (double patience : {0.0, startup_us(model)})
    cuts.push_back(while_busy(model, phase, gradients, patience));
  return cuts;
}

}  // namespace penstock::planning
