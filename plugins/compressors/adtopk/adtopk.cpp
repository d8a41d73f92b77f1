// ADTopk: the largest entries of every row instead of the whole gradient, so that no part of a
// layer starves; optionally in turn with a selection over the whole, whose threshold may be reused.
// Source: "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel DNN
// Training", HPDC 2024. See README.md for where this differs and why.
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/sparse_values.hpp>

#include "axis.hpp"

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

enum class Mode { kPlain, kInterleaved, kThreshold };

Mode mode_named(std::string_view name) {
  if (name == "plain") return Mode::kPlain;
  return name == "threshold" ? Mode::kThreshold : Mode::kInterleaved;
}

// What a gradient remembers of its last selection over the whole, kept as five floats.
struct Reuse {
  float threshold;  // the smallest magnitude that was selected
  float tolerance;  // changes of the threshold are judged by it
  float interval;   // steps for which a threshold serves; 0: none was found yet
  float age;        // steps since it was found
  float settled;    // 1 where the last change was below the tolerance

  static constexpr uint64_t kFloats = 5;
  static Reuse load(std::span<const float> state) {
    return {state[0], state[1], state[2], state[3], state[4]};
  }
  void store(std::span<float> state) const {
    const float fields[kFloats] = {threshold, tolerance, interval, age, settled};
    std::copy_n(fields, kFloats, state.begin());
  }
  void found(float smallest) {
    threshold = smallest;
    tolerance = smallest / 10;
    age = 0;
  }
  // A threshold that has hardly moved serves longer, one that jumped less long.
  void adapt(float smallest) {
    constexpr float kShortest = 5;
    const float change = std::fabs(threshold - smallest);
    const float shortest = std::min(kShortest, interval);
    if (change < tolerance) {
      interval += change < tolerance / 2 ? 2 : 1;
      settled = 1;
    } else if (change > tolerance) {
      interval = std::max(interval - (change > 2 * tolerance ? 2 : 1), shortest);
      settled = 0;
    }
    found(smallest);
  }
};

class AdTopK {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(
          0.01, "share of the entries of each row that is sent, rounded down, at least one"),
      sdk::choice_option("mode", "interleaved", {"plain", "interleaved", "threshold"})
          .summary("plain: always row by row; interleaved: even steps row by row, odd steps over "
                   "the whole gradient; threshold: interleaved, with thresholds that are reused"),
      sdk::integer_option("warm_up_steps", 15)
          .at_least(0)
          .unit("steps")
          .summary("threshold: select exactly until this step"),
      sdk::integer_option("reuse_steps", 5)
          .at_least(1)
          .at_most(1 << 20)
          .unit("steps")
          .summary("threshold: at first a threshold serves that long; then it adapts"),
      sdk::integer_option("total_steps", 0)
          .at_least(0)
          .unit("steps")
          .summary("threshold: length of the training; in its last quarter gradients with a "
                   "settled threshold go row by row in every step. 0: unknown, never"),
      sdk::SparseValues::option()};

  explicit AdTopK(const sdk::Options& values)
      : density_(values.real("density")),
        mode_(mode_named(values.choice("mode"))),
        warm_up_steps_(static_cast<uint64_t>(values.integer("warm_up_steps"))),
        reuse_steps_(static_cast<uint64_t>(values.integer("reuse_steps"))),
        total_steps_(static_cast<uint64_t>(values.integer("total_steps"))),
        values_(values),
        on_(penstock::sdk::agreed_execution("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    sdk::check_indexable(item, "adtopk");
    const adtopk::Axis axis = adtopk::axis_of(item.c(), density_);
    const uint64_t whole = whole_capacity(axis, n);
    const bool by_rows = selects_rows(call.phase);
    values_.plan(need, by_rows ? axis.chosen() : whole, by_rows || mode_ != Mode::kThreshold);
    need.period = mode_ == Mode::kPlain ? 1 : 2;
    if (mode_ == Mode::kThreshold) need.states.add("reuse", Reuse::kFloats, 1, PENSTOCK_STATE_SOFT);
    need.scratch_bytes = std::max(adtopk::AxisScratch(axis, on_.workers).bytes(),
                                  kernels::select_scratch_bytes(n, whole));
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const adtopk::Axis axis = adtopk::axis_of(item.c(), density_);
    uint32_t* const indices = payload.room<uint32_t>(0).data();
    uint64_t count = 0;
    if (item.numel() == 0) {
    } else if (selects_rows(call.step->phase)) {
      count = choose_by_rows(call, item, axis, indices);
    } else if (mode_ == Mode::kInterleaved) {
      count = choose_exactly(call, item, indices);
    } else {
      Reuse reuse = Reuse::load(item.state(0));
      count = choose_by_threshold(call, item, axis, reuse, indices);
      reuse.store(item.state(0));
    }
    values_.write(item, payload, count);
  }

  // Duplicates of several ranks add up; the core divides by their number.
  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    values_.add(payload, item.out());
  }

 private:
  // The plan may have more phases than the two of this method: as many as suit all compressors.
  bool selects_rows(uint32_t phase) const { return mode_ == Mode::kPlain || phase % 2 == 0; }

  // Room of a selection over the whole: a reused threshold may let a tenth more pass, and late in
  // the training a row-by-row selection may take its place.
  uint64_t whole_capacity(const adtopk::Axis& axis, uint64_t n) const {
    const uint64_t k = whole_kept(n);
    if (mode_ != Mode::kThreshold) return k;
    return std::max(most_passing(n), total_steps_ > 0 ? axis.chosen() : 0);
  }
  uint64_t whole_kept(uint64_t n) const { return n == 0 ? 0 : adtopk::kept_of(n, density_); }
  uint64_t most_passing(uint64_t n) const {
    const uint64_t k = whole_kept(n);
    return std::min(n, k + k / 10);
  }

  static kernels::SelectScratch scratch(const sdk::Call& call) {
    return {call.exec->scratch, call.exec->scratch_bytes};
  }

  uint64_t choose_by_rows(const sdk::Call& call, const sdk::Item& item, const adtopk::Axis& axis,
                          uint32_t* indices) const {
    adtopk::select_along(axis, item.work().data(), indices, static_cast<char*>(call.exec->scratch),
                         on_);
    return axis.chosen();
  }

  uint64_t choose_exactly(const sdk::Call& call, const sdk::Item& item, uint32_t* indices) const {
    const std::span<const float> work = item.work();
    const uint64_t k = whole_kept(work.size());
    kernels::select_largest(work.data(), work.size(), k, indices, nullptr, scratch(call), on_.path);
    return k;
  }

  static float smallest_of(std::span<const float> work, const uint32_t* indices, uint64_t count) {
    float smallest = std::fabs(work[indices[0]]);
    for (uint64_t j = 1; j < count; ++j) smallest = std::min(smallest, std::fabs(work[indices[j]]));
    return smallest;
  }

  uint64_t choose_by_threshold(const sdk::Call& call, const sdk::Item& item,
                               const adtopk::Axis& axis, Reuse& reuse, uint32_t* indices) const {
    const std::span<const float> work = item.work();
    const auto unit = static_cast<float>(sdk::work_unit(call, item));
    const uint64_t index = call.step->index;
    const bool late = total_steps_ > 0 && index > total_steps_ - total_steps_ / 4;
    if (late && reuse.settled != 0) return choose_by_rows(call, item, axis, indices);
    reuse.age += 2;  // every other step comes here
    const bool fresh = index < warm_up_steps_ || reuse.interval == 0;
    if (!fresh && reuse.age < reuse.interval) {
      const uint64_t count = kernels::select_above(work.data(), work.size(), reuse.threshold * unit,
                                                   most_passing(work.size()), indices, nullptr,
                                                   scratch(call), on_.path);
      if (10 * count >= 9 * whole_kept(work.size())) return count;
    }
    const bool due = !fresh && reuse.age >= reuse.interval;
    const uint64_t count = choose_exactly(call, item, indices);
    const float smallest = smallest_of(work, indices, count) / unit;
    if (fresh) reuse.interval = static_cast<float>(reuse_steps_);
    if (due)
      reuse.adapt(smallest);
    else
      reuse.found(smallest);  // too few passed: what was found says nothing about the interval
    return count;
  }

  double density_;
  Mode mode_;
  uint64_t warm_up_steps_;
  uint64_t reuse_steps_;
  uint64_t total_steps_;
  sdk::SparseValues values_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(AdTopK, "compressor/adtopk", "0.1.0",
                    "sends the largest entries of every row, in turn with those of the whole",
                    "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel "
                    "DNN Training, HPDC 2024");
