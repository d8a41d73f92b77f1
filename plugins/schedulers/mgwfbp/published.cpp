// MG-WFBP with published lines; see published.hpp. Times are seconds.
#include "published.hpp"

#include <planning/model.hpp>

#include "merging.hpp"

namespace mgwfbp {

namespace planning = penstock::planning;

namespace {

using planning::PublishedLink;

// Start-up and seconds per byte of an all-reduce. From the authors' release: 2 to 16 ranks on
// Ethernet, 8 and 16 on InfiniBand; the other rows are those of a later release that contains it.
constexpr PublishedLink kEthernet[] = {{2, 2.55e-6, 9.84e-11},  {4, 4.2e-5, 2.06e-10},
                                       {8, 5.23e-4, 8.57e-10},  {16, 9.08e-4, 7.40e-10},
                                       {32, 4.04e-3, 8.64e-10}, {64, 7.04e-3, 9.64e-10}};
constexpr PublishedLink kInfiniband[] = {{2, 2.55e-6, 9.8e-11},   {4, 4.2e-5, 2.06e-10},
                                         {8, 9.75e-5, 3.06e-10},  {16, 2.36e-4, 4.06e-10},
                                         {32, 4.06e-4, 4.91e-10}, {64, 8.06e-4, 5.89e-10}};

class Message {
 public:
  Message(const penstock_model& model, uint32_t phase, const PublishedLink& line)
      : model_(&model), phase_(phase), line_(line) {}

  void add(uint64_t gradient) {
    bytes_ += static_cast<double>(planning::payload_bytes(*model_->gradients[gradient], phase_));
  }
  double exchange() const { return line_.startup_s + line_.s_per_byte * bytes_; }

 private:
  const penstock_model* model_;
  uint32_t phase_;
  PublishedLink line_;
  double bytes_ = 0;
};

}  // namespace

PublishedLink line_for(const PublishedConstants& constants, uint32_t ranks) {
  PublishedLink line = constants.infiniband ? planning::link_for(kInfiniband, ranks)
                                            : planning::link_for(kEthernet, ranks);
  if (constants.startup_s >= 0) line.startup_s = constants.startup_s;
  if (constants.s_per_byte >= 0) line.s_per_byte = constants.s_per_byte;
  return line;
}

std::vector<std::vector<uint64_t>> published_buckets(const penstock_model& model, uint32_t phase,
                                                     const PublishedConstants& constants) {
  const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
  const std::vector<double> ready =
      planning::ready_by_elements(model, gradients, constants.backward_s);
  const PublishedLink line = line_for(constants, model.world);
  return merged(gradients, ready, line.startup_s, Message(model, phase, line));
}

}  // namespace mgwfbp
