// The cost of single actions, from the measured lines of a model. All times are microseconds.
//
// Every line has the form fixed + slope * amount. A number that is negative, infinite or NaN means
// "not measured" and counts as zero, so that a broken measurement can neither stop nor mislead a
// planner.
#pragma once

#include <penstock/compressor.h>
#include <penstock/scheduler.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock::planning {

// `us` if it is a time, zero if it is unmeasured or nonsense.
inline double usable(double us) {
  return std::isfinite(us) && us > 0 ? us : 0.0;
}

// Whether a candidate has run, so that its lines give its cost. A comparison of candidates must not
// take an unmeasured candidate as free.
inline bool is_measured(const penstock_candidate& candidate) {
  return std::isfinite(candidate.encode_fixed_us) && candidate.encode_fixed_us >= 0 &&
         std::isfinite(candidate.decode_fixed_us) && candidate.decode_fixed_us >= 0;
}

// The engine's cost for a bucket, summed gradient by gradient. A compressor is called once for all
// its gradients of a bucket, so the fixed part of its lines counts once.
class Coding {
 public:
  void add(const penstock_candidate& candidate, uint64_t numel) {
    const double elements = static_cast<double>(numel);
    encode_us_ += usable(candidate.encode_per_element_us) * elements;
    decode_us_ += usable(candidate.decode_per_element_us) * elements;
    const std::string_view name{candidate.compressor.data, candidate.compressor.size};
    if (std::find(called_.begin(), called_.end(), name) != called_.end()) return;
    called_.push_back(name);
    encode_us_ += usable(candidate.encode_fixed_us);
    decode_us_ += usable(candidate.decode_fixed_us);
  }
  double encode_us() const { return encode_us_; }  // compensate and encode
  double decode_us() const { return decode_us_; }

 private:
  std::vector<std::string_view> called_;  // names, which live as long as the model
  double encode_us_ = 0;
  double decode_us_ = 0;
};

// The number of measured lines; 0 for a host of an older ABI.
inline uint64_t n_lines(const penstock_model& model) {
  return PENSTOCK_HAS_FIELD(&model, penstock_model, n_lines) ? model.n_lines : 0;
}

// The line for messages of `bytes` in `pattern` among the ranks of a level (default: all ranks);
// null if no such line was measured.
inline const penstock_link* line_of(const penstock_model& model, uint32_t pattern, double bytes,
                                    uint32_t level = PENSTOCK_LEVEL_WORLD) {
  const penstock_link* best = nullptr;
  for (uint64_t i = 0; i < n_lines(model); ++i) {
    const penstock_link& line = *model.lines[i];
    if (line.level != level || line.pattern != pattern) continue;
    if (best == nullptr || static_cast<double>(line.bytes_from) <= bytes) best = &line;
  }
  return best;
}

// The start-up of one message on the slowest level it crosses (alpha).
inline double startup_us(const penstock_model& model) {
  double worst = 0;
  for (uint64_t i = 0; i < model.n_links; ++i)
    worst = std::max(worst, usable(model.links[i]->alpha_us));
  return worst;
}

// One message of `bytes`: alpha + beta * bytes on the slowest level.
inline double message_us(const penstock_model& model, double bytes) {
  double worst = 0;
  for (uint64_t i = 0; i < model.n_links; ++i) {
    const penstock_link& link = *model.links[i];
    worst = std::max(worst, usable(link.alpha_us) + usable(link.beta_us_per_byte) * bytes);
  }
  return worst;
}

// One message of `bytes` in a pattern: by the line of the pattern, or if there is no line, as an
// all-reduce of `factor` times as many bytes.
inline double pattern_us(const penstock_model& model, uint32_t pattern, double bytes,
                         double factor) {
  const penstock_link* line = line_of(model, pattern, bytes);
  if (line == nullptr) return message_us(model, bytes * factor);
  return usable(line->alpha_us) + usable(line->beta_us_per_byte) * bytes;
}

// The bytes that one rank sends for a bucket, by combine rule: each rule has its own message.
struct Volume {
  double summed_bytes = 0;
  double gathered_bytes = 0;
  uint32_t n_rounds = 1;
};

// Adds a candidate's payload for `share` of its gradient.
inline void add_payload(Volume& volume, const penstock_candidate& candidate, uint32_t phase,
                        double share = 1.0) {
  const double bytes = static_cast<double>(candidate.phase_bytes[phase]) * share;
  (candidate.combine == PENSTOCK_COMBINE_GATHER ? volume.gathered_bytes : volume.summed_bytes) +=
      bytes;
  volume.n_rounds = std::max(volume.n_rounds, candidate.n_rounds);
}

// The traffic of an all-gather through each rank, divided by the traffic of an all-reduce of as
// many bytes per rank: from the transport's volumes; without volumes, of rings: (P-1) b over
// 2 (P-1)/P b, which is P/2.
inline double gather_factor(const penstock_model& model, double bytes) {
  const double ring = std::max(1.0, static_cast<double>(model.world) / 2);
  const auto moved = [&](uint32_t pattern) {
    penstock_volume within{sizeof within, 0, 0, 0}, between{sizeof between, 0, 0, 0};
    penstock_volume* const volumes[] = {&within, &between};
    // An error status could not be freed here; but a formula has no reason to fail.
    if (model.volume(model.volume_context, pattern, model.hosts, model.ranks_per_host,
                     static_cast<uint64_t>(bytes), volumes) != nullptr)
      return 0.0;
    return usable(between.bytes > 0 ? between.bytes : within.bytes);
  };
  if (!PENSTOCK_HAS_FIELD(&model, penstock_model, volume_context) || model.volume == nullptr)
    return ring;
  const double summed = moved(PENSTOCK_ALL_REDUCE), gathered = moved(PENSTOCK_ALL_GATHER);
  return summed > 0 && gathered > 0 ? std::max(1.0, gathered / summed) : ring;
}

// The time to exchange a bucket, by the measured lines of its patterns. Without such a line, the
// line of the link counts as the line of an all-reduce. Each further round costs one start-up more;
// the engine's work between two rounds is not modelled.
inline double exchange_us(const penstock_model& model, const Volume& volume) {
  double time = 0;
  if (volume.summed_bytes > 0)
    time += pattern_us(model, PENSTOCK_ALL_REDUCE, volume.summed_bytes, 1);
  if (volume.gathered_bytes > 0)
    time += pattern_us(model, PENSTOCK_ALL_GATHER, volume.gathered_bytes,
                       gather_factor(model, volume.gathered_bytes));
  if (time == 0) time = startup_us(model);  // an empty bucket still sends a header
  return time + (std::max(volume.n_rounds, 1u) - 1) * startup_us(model);
}

// The cost of gradients in one bucket in a phase, summed one by one. It is cheap to copy.
class Together {
 public:
  Together(const penstock_model& model, uint32_t phase) : model_(&model), phase_(phase) {}
  void add(uint64_t gradient, uint32_t choice = 0) {
    const penstock_gradient_model& facts = *model_->gradients[gradient];
    coding_.add(*facts.candidates[choice], facts.numel);
    add_payload(volume_, *facts.candidates[choice], phase_);
  }
  double encode() const { return coding_.encode_us(); }
  double exchange() const { return exchange_us(*model_, volume_); }
  double decode() const { return coding_.decode_us(); }

 private:
  const penstock_model* model_;
  uint32_t phase_;
  Coding coding_;
  Volume volume_;
};

}  // namespace penstock::planning
