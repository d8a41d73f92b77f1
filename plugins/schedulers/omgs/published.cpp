// OMGS-SGD with published constants; see published.hpp. Times are seconds.
#include "published.hpp"

#include <cmath>

#include <planning/model.hpp>

#include "merging.hpp"

namespace omgs {

namespace planning = penstock::planning;

namespace {

using planning::PublishedLink;

// Start-up and seconds per byte of an all-gather on 1 Gb/s Ethernet: the table of OMGS-SGD's
// release, for messages of all sizes.
constexpr PublishedLink kRelease[] = {
    {2, 1.6e-3, 1.0e-8}, {4, 2.7e-3, 1.3e-8}, {8, 4.0e-3, 1.5e-8}, {16, 1.1e-2, 1.7e-8}};
// The tables of FGBuff's release, a fork: for messages below 1 MiB and for longer messages.
constexpr PublishedLink kForkSmall[] = {
    {2, 1.6e-3, 1.0e-8}, {4, 2.7e-3, 1.3e-8}, {8, 4.0e-3, 1.5e-8}, {16, 1.7e-3, 1.7e-8}};
constexpr PublishedLink kForkLarge[] = {
    {2, 4.4e-3, 5.8e-9}, {4, 5.6e-3, 7.4e-9}, {8, 7.68e-3, 8.2e-9}, {16, 2.1e-3, 1.7e-8}};
constexpr double kLargeBytes = 1 << 20;

// The bytes of one value and of one index; values and indices travel in a message each.
constexpr double kEntryBytes = 4;
constexpr double kMessages = 2;

class Group {
 public:
  Group(const penstock_model& model, const PublishedConstants& constants)
      : model_(&model), constants_(&constants) {}

  void add(uint64_t gradient) {
    elements_ += static_cast<double>(model_->gradients[gradient]->numel);
  }
  double encode() const {
    return elements_ > 1 ? constants_->selection_s * elements_ * std::log2(elements_) : 0;
  }
  double exchange() const {
    const double bytes = kEntryBytes * constants_->density * elements_ * model_->world;
    const PublishedLink line = line_for(*constants_, model_->world, bytes);
    return kMessages * (line.startup_s + line.s_per_byte * bytes);
  }

 private:
  const penstock_model* model_;
  const PublishedConstants* constants_;
  double elements_ = 0;
};

}  // namespace

PublishedLink line_for(const PublishedConstants& constants, uint32_t ranks, double bytes) {
  PublishedLink line = !constants.forked     ? planning::link_for(kRelease, ranks)
                       : bytes < kLargeBytes ? planning::link_for(kForkSmall, ranks)
                                             : planning::link_for(kForkLarge, ranks);
  if (constants.startup_s >= 0) line.startup_s = constants.startup_s;
  if (constants.s_per_byte >= 0) line.s_per_byte = constants.s_per_byte;
  return line;
}

std::vector<std::vector<uint64_t>> published_buckets(const penstock_model& model, uint32_t phase,
                                                     const PublishedConstants& constants) {
  const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
  const std::vector<double> ready =
      planning::ready_by_elements(model, gradients, constants.backward_s);
  // The release joins the first two gradients without a test, but counts the first gradient as a
  // message of its own; its plans depend on this.
  std::vector<std::vector<uint64_t>> groups =
      merged(gradients, ready, Group(model, constants), /*first_apart=*/true);
  if (groups.size() < 2) return groups;
  groups[1].insert(groups[1].begin(), groups[0].front());
  groups.erase(groups.begin());
  return groups;
}

}  // namespace omgs
