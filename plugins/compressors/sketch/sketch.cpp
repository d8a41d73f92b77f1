// Sketched SGD: the count sketches of all ranks are summed, the largest elements are found in the
// summed sketch, and their exact values follow in a second round.
// Source: Ivkin, Rothchild, Ullah, Braverman, Stoica, Arora, "Communication-efficient Distributed
// SGD with Sketching", NeurIPS 2019. See README.md for where this differs and why.
#include "count_sketch.hpp"

#include <kernels/scatter.hpp>
#include <methods/density.hpp>
#include <methods/summed.hpp>

#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace sketch = penstock::sketch;

namespace {

class Sketch : public sdk::SummedCompressor<Sketch> {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.001, "share of the entries whose sum over ranks is sent"),
      sdk::integer_option("rows", 5)
          .at_least(1)
          .at_most(sketch::kMostRows)
          .summary("rows of the sketch, an odd number: more make a wrong estimate less likely"),
      sdk::real_option("columns_per_entry", 25)
          .at_least(1)
          .at_most(1000)
          .summary("columns of the sketch for each entry that is sent: more make estimates finer")};

  explicit Sketch(const sdk::Options& values)
      : SummedCompressor("select"),
        density_(values.real("density")),
        rows_(static_cast<uint64_t>(values.integer("rows"))),
        columns_per_entry_(values.real("columns_per_entry")) {
    if (rows_ % 2 == 0)
      throw sdk::invalid_argument("rows is ", rows_,
                                  ", expected an odd number, which has a middle; try ", rows_ + 1);
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // Both sketches and chosen values are summed on the way. A gradient travels uncompressed if
  // sketch and values together have as many numbers as the gradient has elements.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    sdk::check_indexable(item, "sketch", kMostEntries);
    if (!coded(item)) return plan_dense(item, need);
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_OTHER, PENSTOCK_FLOAT32, shape_of(n).entries())
        .same_bits();  // all ranks must find equal entries
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, kept(n));
    need.states.add("chosen", kept(n), 1, PENSTOCK_STATE_REPLICATED, PENSTOCK_UINT32);
    need.scratch_bytes =
        2 * sdk::whole_lines(n * sizeof(float)) + kernels::select_scratch_bytes(n, kept(n));
  }

  bool coded(const sdk::Item& item) const {
    const uint64_t n = item.numel();
    return shape_of(n).entries() + kept(n) < n;
  }
  uint64_t entries(uint32_t, uint32_t round, const sdk::Item& item) const {
    return round == 0 ? shape_of(item.numel()).entries() : kept(item.numel());
  }

  void encode_coded(const sdk::Call& call, const sdk::Item& item, std::span<float> sent,
                    const kernels::Fold*) const {
    if (call.round == 0)
      sketch::sketch(item.work().data(), item.numel(), shape_of(item.numel()), hashes(call, item),
                     sent.data(), on().path);
    else
      encode_chosen(item, sent);
  }
  void decode_coded(const sdk::Call& call, const sdk::Item& item,
                    std::span<const float> sum) const {
    if (call.round == 0)
      choose(call, item, sum);
    else
      decode_chosen(item, sum, call.result_scale());
  }

 private:
  static constexpr uint64_t kMostEntries = uint64_t{1} << 31;

  uint64_t kept(uint64_t n) const { return sdk::kept_count(n, density_); }
  sketch::Shape shape_of(uint64_t n) const {
    const double columns = std::ceil(columns_per_entry_ * static_cast<double>(kept(n)));
    return {rows_, static_cast<uint64_t>(std::min(columns, static_cast<double>(n)))};
  }

  // The hash functions change in every step, so that elements that share a column share it only
  // once.
  static sketch::Hashes hashes(const sdk::Call& call, const sdk::Item& item) {
    return {{call.step->seed, item.c().gradient,
             kernels::stream_of_step(kernels::kStreamHashing, call.step->index)},
            item.c().first};
  }

  // Chooses the entries whose sum over ranks seems largest. The sketch of a single rank does not
  // show them.
  void choose(const sdk::Call& call, const sdk::Item& item, std::span<const float> table) const {
    if ((call.flags & PENSTOCK_DECODE_OWN) != 0) return;
    const uint64_t n = item.numel(), line = sdk::whole_lines(n * sizeof(float));
    const std::span<float> estimates = call.scratch<float>(n);
    if (table.empty())
      sdk::clear(estimates);
    else
      sketch::estimate(table.data(), n, shape_of(n), hashes(call, item), estimates.data(),
                       on().path);
    kernels::select_largest(estimates.data(), n, kept(n), item.state<uint32_t>(0).data(),
                            call.scratch<float>(kept(n), line).data(),
                            sdk::select_scratch(call, 2 * line), on().path);
  }

  // The indices are checked, because a saved state contains any data that its file contains.
  static std::span<const uint32_t> chosen_of(const sdk::Item& item) {
    const std::span<const uint32_t> chosen = item.state<uint32_t>(0);
    const uint64_t in_range = kernels::indices_in_range(chosen.data(), chosen.size(), item.numel());
    if (in_range == chosen.size()) return chosen;
    throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                     sdk::text("sketch: state 'chosen' of gradient '", item.name(), "' has index ",
                               chosen[in_range], ", expected one below ", item.numel(),
                               ": the state that was loaded is damaged"));
  }

  // All values are read before any is subtracted: after a first step without a sum the list is all
  // zeros.
  static void encode_chosen(const sdk::Item& item, std::span<float> values) {
    const std::span<const uint32_t> chosen = chosen_of(item);
    const std::span<float> work = item.work();
    for (uint64_t j = 0; j < chosen.size(); ++j) values[j] = work[chosen[j]];
    if (!item.keeps()) return;
    for (const uint32_t index : chosen) work[index] = 0;
  }

  static void decode_chosen(const sdk::Item& item, std::span<const float> values, float scale) {
    const std::span<const uint32_t> chosen = chosen_of(item);
    const std::span<float> out = item.out();
    sdk::clear(out);
    for (uint64_t j = 0; j < values.size(); ++j) out[chosen[j]] = values[j] * scale;
  }

  double density_;
  uint64_t rows_;
  double columns_per_entry_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    Sketch, "compressor/sketch", "0.1.0",
    "finds the largest entries of the sum by added sketches, then sums their values",
    "Ivkin et al., Communication-efficient Distributed SGD with Sketching, "
    "NeurIPS 2019");
