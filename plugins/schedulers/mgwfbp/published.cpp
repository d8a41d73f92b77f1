// MG-WFBP with published lines; see published.hpp. Times are seconds.
#include "published.hpp"

#include <planning/model.hpp>

#include "merging.hpp"

namespace mgwfbp {

namespace planning = penstock::planning;

namespace {

using planning::PublishedLink;

// Start-up and seconds per byte of an all-reduce, with the printed digits. The values for 2 to 16
// ranks are from the authors' release, the values for 32 and 64 ranks from its fork, FGBuff's
// release.
constexpr PublishedLink kEthernet[] = {{2, 2.554691138304671e-06, 9.837548167872609e-11},
                                       {4, 4.204298980348825e-05, 2.0589360830118177e-10},
                                       {8, 5.230272768511732e-04, 8.570746975492128e-10},
                                       {16, 9.080981007148093e-04, 7.395651186836712e-10},
                                       {32, 3 * 0.0013476410788581382, 8.643300782166769e-10},
                                       {64, 3 * 0.0023476410788581382, 9.643300782166769e-10}};
constexpr PublishedLink kInfiniband[] = {
    {2, 2.554691138304671e-06, 9.837548167872609e-11},
    {4, 4.204298980348825e-05, 2.0589360830118177e-10},
    {8, 9.75367204301171e-05, 3.0568230536676206e-10},
    {16, 2.3583677659915685e-04, 4.0594787739537565e-10},
    {32, 4.0632079996292579e-04, 1.5 * 3.2713239529771973e-10},
    {64, 8.0632079996292579e-04, 1.8 * 3.2713239529771973e-10}};

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
