// ADTopk: the largest entries of every row instead of the whole gradient, so that no part of a
// layer starves; optionally in turn with a selection over the whole, whose threshold may be reused.
// Source: "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel DNN
// Training", HPDC 2024. See README.md for where this differs and why.
#include <methods/sparse.hpp>

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

class AdTopK : public sdk::SparseCompressor<AdTopK> {
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
      value_type_option()};

  explicit AdTopK(const sdk::Options& values)
      : SparseCompressor(values, "adtopk"),
        density_(values.real("density")),
        mode_(mode_named(values.choice("mode"))),
        warm_up_steps_(static_cast<uint64_t>(values.integer("warm_up_steps"))),
        reuse_steps_(static_cast<uint64_t>(values.integer("reuse_steps"))),
        total_steps_(static_cast<uint64_t>(values.integer("total_steps"))),
        on_(sdk::agreed_execution("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    if (works_on_devices()) traits.device_types = sdk::device::kWhereKernelsAre;
  }
  // Whether a threshold serves again is decided on the CPU.
  bool has_kernels() const { return mode_ != Mode::kThreshold; }

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    sdk::check_indexable(item, name());
    const adtopk::Axis axis = adtopk::axis_of(item.c(), density_);
    const uint64_t whole = whole_capacity(axis, n);
    const bool by_rows = selects_rows(call.phase);
    values().plan(need, by_rows ? axis.chosen() : whole, by_rows || mode_ != Mode::kThreshold);
    need.period = mode_ == Mode::kPlain ? 1 : 2;
    if (mode_ == Mode::kThreshold) need.states.add("reuse", Reuse::kFloats, 1, PENSTOCK_STATE_SOFT);
    need.scratch_bytes = std::max(adtopk::AxisScratch(axis, on_.workers).bytes(),
                                  kernels::select_scratch_bytes(n, whole));
    if constexpr (sdk::device::kHasKernels)
      if (works_on_devices()) {
        const uint64_t along =
            kernels::cuda::select_lanes_workspace_bytes(adtopk::lanes_of(axis), axis.kept);
        need.scratch_bytes =
            std::max({need.scratch_bytes, sdk::device::Choice::scratch_bytes(n, whole),
                      sdk::device::Choice::scratch_bytes(n, axis.chosen()),
                      sdk::device::Choice::scratch_bytes(along)});
      }
  }

  uint64_t most(uint64_t n) const { return adtopk::kept_of(n, density_); }

  void choose(const sdk::Choice& from) const {
    if (from.only().n == 0) return;
    if (selects_rows(from.call.step->phase)) return choose_by_rows(from);
    if (mode_ == Mode::kInterleaved) return from.largest(from.most);
    Reuse reuse = Reuse::load(from.item.state(0));
    choose_by_threshold(from, reuse);
    reuse.store(from.item.state(0));
  }

  // The same on a device, but for reused thresholds. A single row is chosen from as a whole.
  void choose(const sdk::device::Choice& from) const {
    if (!selects_rows(from.call.step->phase)) return from.largest(from.most);
    const adtopk::Axis axis = adtopk::axis_of(from.item.c(), density_);
    if (axis.blocks * axis.lanes == 1) return from.largest(axis.kept);
    from.queue([&](void* stream) {
      if (axis.lanes == 1)
        return kernels::cuda::select_rows(from.work(), axis.blocks, axis.length, axis.kept,
                                          from.indices(), nullptr, stream);
      return kernels::cuda::select_lanes(from.work(), adtopk::lanes_of(axis), axis.kept,
                                         from.indices(), from.workspace(), stream);
    });
    from.these(axis.chosen());
  }

 private:
  // The plan may have more phases than the two of this method: as many as suit all compressors.
  bool selects_rows(uint32_t phase) const { return mode_ == Mode::kPlain || phase % 2 == 0; }

  // Room of a selection over the whole: a reused threshold may let a tenth more pass, and late in
  // the training a row-by-row selection may take its place.
  uint64_t whole_capacity(const adtopk::Axis& axis, uint64_t n) const {
    if (mode_ != Mode::kThreshold) return most(n);
    return std::max(most_passing(n), total_steps_ > 0 ? axis.chosen() : 0);
  }
  uint64_t most_passing(uint64_t n) const { return std::min(n, most(n) + most(n) / 10); }

  void choose_by_rows(const sdk::Choice& from) const {
    const adtopk::Axis axis = adtopk::axis_of(from.item.c(), density_);
    kernels::SelectSegment& target = from.only();
    adtopk::select_along(axis, target.x, target.indices, static_cast<char*>(from.scratch.data),
                         on_);
    target.count = axis.chosen();
  }

  void choose_by_threshold(const sdk::Choice& from, Reuse& reuse) const {
    kernels::SelectSegment& target = from.only();
    const auto unit = static_cast<float>(from.unit());
    const uint64_t index = from.call.step->index;
    const bool late = total_steps_ > 0 && index > total_steps_ - total_steps_ / 4;
    if (late && reuse.settled != 0) return choose_by_rows(from);
    reuse.age += 2;  // every other step comes here
    const bool fresh = index < warm_up_steps_ || reuse.interval == 0;
    if (!fresh && reuse.age < reuse.interval) {
      from.above(reuse.threshold * unit, most_passing(target.n));
      if (10 * target.count >= 9 * from.most) return;
    }
    const bool due = !fresh && reuse.age >= reuse.interval;
    from.largest(from.most);
    const float smallest = from.smallest() / unit;
    if (fresh) reuse.interval = static_cast<float>(reuse_steps_);
    if (due)
      reuse.adapt(smallest);
    else
      reuse.found(smallest);  // too few passed: what was found says nothing about the interval
  }

  double density_;
  Mode mode_;
  uint64_t warm_up_steps_;
  uint64_t reuse_steps_;
  uint64_t total_steps_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(AdTopK, "compressor/adtopk", "0.1.0",
                    "sends the largest entries of every row, in turn with those of the whole",
                    "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel "
                    "DNN Training, HPDC 2024");
