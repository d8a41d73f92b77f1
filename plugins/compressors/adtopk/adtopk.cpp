// ADTopk: sends the largest entries of every row instead of the whole gradient, so that every part
// of a layer is updated. An option alternates this with a selection over the whole gradient, whose
// threshold may be reused.
// Source: "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel DNN
// Training", HPDC 2024. See README.md for where this differs and why.
#include <kernels/cuda/reusing.hpp>
#include <kernels/reused_threshold.hpp>
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

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    sdk::check_indexable(item, name());
    const adtopk::Axis axis = adtopk::axis_of(item.c(), density_);
    const uint64_t whole = whole_capacity(axis, n);
    const bool by_rows = selects_rows(call.phase);
    const uint64_t room = by_rows ? axis.chosen() : whole;
    values().plan(item, need, room, room, by_rows || mode_ != Mode::kThreshold);
    need.period = mode_ == Mode::kPlain ? 1 : 2;
    if (mode_ == Mode::kThreshold)
      need.states.add("reuse", ReusedThreshold::kFloats, 1, PENSTOCK_STATE_SOFT);
    need.scratch_bytes = std::max(adtopk::AxisScratch(axis, on_.workers).bytes(),
                                  kernels::select_scratch_bytes(n, whole));
    if constexpr (sdk::device::kHasKernels)
      need.scratch_bytes = std::max(need.scratch_bytes, scratch_bytes_on_device(axis, n, whole));
  }

  uint64_t most(uint64_t n) const { return adtopk::kept_of(n, density_); }

  void choose(const sdk::Choice& from) const {
    if (from.only().n == 0) return;
    if (selects_rows(from.call.step->phase)) return choose_by_rows(from);
    if (mode_ == Mode::kInterleaved) return from.largest(from.most);
    ReusedThreshold reused = ReusedThreshold::load(from.item.state(0).data());
    choose_by_threshold(from, reused);
    reused.store(from.item.state(0).data());
  }

  // This selection on a device.
  void choose(const sdk::device::Choice& from) const {
    if (from.n() == 0) return from.largest(0);
    const adtopk::Axis axis = adtopk::axis_of(from.item.c(), density_);
    if (selects_rows(from.call.step->phase)) return choose_by_rows(from, axis);
    if (mode_ == Mode::kInterleaved) return from.largest(from.most);
    choose_by_threshold(from, axis);
  }

 private:
  using ReusedThreshold = kernels::ReusedThreshold;

  // The plan may have more than the two phases of this method, because its phases must suit all
  // compressors.
  bool selects_rows(uint32_t phase) const { return mode_ == Mode::kPlain || phase % 2 == 0; }

  // The room for a selection over the whole gradient: a reused threshold may let a tenth more
  // entries pass, and late in the training a selection by rows may replace it.
  uint64_t whole_capacity(const adtopk::Axis& axis, uint64_t n) const {
    if (mode_ != Mode::kThreshold) return most(n);
    return std::max(most_passing(n), total_steps_ > 0 ? axis.chosen() : 0);
  }
  uint64_t most_passing(uint64_t n) const { return std::min(n, most(n) + most(n) / 10); }
  // Nine tenths of the wanted number, rounded up.
  static uint64_t fewest_passing(uint64_t wanted) { return (9 * wanted + 9) / 10; }

  void choose_by_rows(const sdk::Choice& from) const {
    const adtopk::Axis axis = adtopk::axis_of(from.item.c(), density_);
    kernels::SelectSegment& target = from.only();
    adtopk::select_along(axis, target.x, target.indices, static_cast<char*>(from.scratch.data),
                         on_);
    target.count = axis.chosen();
  }

  // If the threshold of a gradient has settled, the gradient is selected by rows from then on.
  bool is_late(uint64_t step) const {
    return total_steps_ > 0 && step > total_steps_ - total_steps_ / 4;
  }

  void choose_by_threshold(const sdk::Choice& from, ReusedThreshold& reused) const {
    kernels::SelectSegment& target = from.only();
    const auto unit = static_cast<float>(from.unit());
    const uint64_t index = from.call.step->index;
    if (is_late(index) && reused.settled != 0) return choose_by_rows(from);
    const bool warms_up = index < warm_up_steps_;
    reused.age += 2;  // every other step comes here
    if (reused.serves(warms_up)) {
      from.above(reused.threshold * unit, most_passing(target.n));
      if (target.count >= fewest_passing(from.most)) return;
    }
    from.largest(from.most);
    reused.learn(from.smallest() / unit, warms_up, static_cast<float>(reuse_steps_));
  }

  // ---- on a device ----

  // A single row is selected like a whole gradient.
  static bool is_one_row(const adtopk::Axis& axis) { return axis.blocks * axis.lanes == 1; }

  static uint64_t rows_workspace_bytes(const adtopk::Axis& axis) {
    return is_one_row(axis)
               ? kernels::cuda::select_workspace_bytes(axis.length, axis.kept)
               : kernels::cuda::select_lanes_workspace_bytes(adtopk::lanes_of(axis), axis.kept);
  }
  // Room for the indices of all rows, if another selection may replace the selection by rows.
  static uint64_t rows_bytes(const adtopk::Axis& axis) {
    return sdk::whole_lines(axis.chosen() * sizeof(uint32_t));
  }
  uint64_t scratch_bytes_on_device(const adtopk::Axis& axis, uint64_t n, uint64_t whole) const {
    const uint64_t beside = mode_ == Mode::kThreshold && total_steps_ > 0 ? rows_bytes(axis) : 0;
    return std::max({sdk::device::Choice::scratch_bytes(n, whole),
                     sdk::device::Choice::scratch_bytes(n, axis.chosen()),
                     sdk::device::Choice::scratch_bytes(beside + rows_workspace_bytes(axis))});
  }

  static void select_rows(const sdk::device::Choice& from, const adtopk::Axis& axis,
                          uint32_t* indices, const kernels::cuda::Workspace& workspace) {
    from.queue([&](void* stream) {
      if (is_one_row(axis))
        return kernels::cuda::select_largest(from.work(), axis.length, axis.kept, indices, nullptr,
                                             workspace, stream);
      if (axis.lanes == 1)
        return kernels::cuda::select_rows(from.work(), axis.blocks, axis.length, axis.kept, indices,
                                          nullptr, stream);
      return kernels::cuda::select_lanes(from.work(), adtopk::lanes_of(axis), axis.kept, indices,
                                         workspace, stream);
    });
  }

  static void choose_by_rows(const sdk::device::Choice& from, const adtopk::Axis& axis) {
    if (is_one_row(axis)) return from.largest(axis.kept);
    select_rows(from, axis, from.indices(), from.workspace());
    from.these(axis.chosen());
  }

  // The device decides whether the threshold serves again. Late in the training the device makes
  // both selections and then decides which of the two is sent.
  void choose_by_threshold(const sdk::device::Choice& from, const adtopk::Axis& axis) const {
    const uint64_t index = from.call.step->index;
    const kernels::cuda::Band band{from.most, fewest_passing(from.most), most_passing(from.n())};
    const kernels::cuda::ReuseRules rules{band.least, static_cast<float>(from.unit()),
                                          static_cast<float>(reuse_steps_), index < warm_up_steps_,
                                          is_late(index)};
    float* const state = from.item.state(0).data();
    auto* const reusing = from.own<kernels::cuda::Reusing>();
    from.queue(
        [&](void* stream) { return kernels::cuda::begin_reuse(rules, state, reusing, stream); });
    if (rules.is_late)
      choose_in_both_ways(from, axis, band, reusing);
    else
      (void)from.near(&reusing->threshold, band, &reusing->reached,
                      kernels::cuda::Zeros::kFillInstead);
    from.queue(
        [&](void* stream) { return kernels::cuda::end_reuse(rules, reusing, state, stream); });
  }

  void choose_in_both_ways(const sdk::device::Choice& from, const adtopk::Axis& axis,
                           const kernels::cuda::Band& band, kernels::cuda::Reusing* reusing) const {
    uint64_t* const count = from.indices_near(&reusing->threshold, band, &reusing->reached,
                                              kernels::cuda::Zeros::kFillInstead);
    const kernels::cuda::Workspace workspace = from.workspace();
    auto* const rows = static_cast<uint32_t*>(workspace.data);
    const uint64_t bytes = rows_bytes(axis);
    select_rows(from, axis, rows,
                {static_cast<char*>(workspace.data) + bytes, workspace.bytes - bytes});
    from.queue([&](void* stream) {
      return kernels::cuda::replace_by_rows(reusing, rows, axis.chosen(), from.indices(), count,
                                            stream);
    });
    from.these(count, whole_capacity(axis, from.n()));
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
                    "sends the largest entries of every row, in alternation with the largest "
                    "entries of the whole gradient",
                    "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel "
                    "DNN Training, HPDC 2024");
