// Tests a method that reads its entries before it chooses, for example for a threshold from a mean.
// It is right with separate sweeps, which it gets unless it declares that it folds. If it declares
// this although it reads too early, the test kit finds the error.
#include <methods/sparse.hpp>
#include <testing/checks.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::folding_test {
namespace {

using namespace test;  // NOLINT: the kit

// Sends entries of more than twice the mean magnitude, at most a tenth of all entries.
template <typename Method>
class AboveTheMean : public sdk::SparseCompressor<Method> {
 public:
  static inline const sdk::OptionList options{sdk::SparseValues::option()};
  explicit AboveTheMean(const sdk::Options& values)
      : sdk::SparseCompressor<Method>(values, "above the mean") {}

  uint64_t most(uint64_t n) const { return (n + 9) / 10; }
  void choose(const sdk::Choice& from) const {
    const kernels::SelectSegment& segment = from.only();
    double sum = 0;
    for (uint64_t i = 0; i < segment.n; ++i) sum += std::fabs(segment.x[i]);
    const double mean = segment.n == 0 ? 0 : sum / static_cast<double>(segment.n);
    from.above(static_cast<float>(2 * mean), from.most);
  }
};

class SweepsApart : public AboveTheMean<SweepsApart> {
 public:
  using AboveTheMean::AboveTheMean;
};

class FoldsTooLate : public AboveTheMean<FoldsTooLate> {
 public:
  using AboveTheMean::AboveTheMean;
  static constexpr bool kFolds = true;
};

// Folds in place, and ignores revision 2 of the extension although the base supports it.
class FoldsInPlace : public sdk::SparseCompressor<FoldsInPlace> {
 public:
  static inline const sdk::OptionList options{sdk::SparseValues::option()};
  static constexpr bool kFolds = true;
  explicit FoldsInPlace(const sdk::Options& values) : SparseCompressor(values, "in place") {}
  uint64_t most(uint64_t n) const { return (n + 9) / 10; }
  void choose(const sdk::Choice& from) const {
    kernels::SelectSegment& segment = from.only();
    if (const kernels::Fold* fold = std::exchange(segment.fold, nullptr)) {
      kernels::Fold here = *fold;
      here.work_before = here.momentum_before = nullptr;
      kernels::compensate(here, segment.n, from.path);
    }
    from.largest(from.most);
  }
};

template <typename Method>
LoadedPlugin loaded() {
  sdk::host_slot() = test_host();
  static const penstock_plugin_record record =
      sdk::make_record(PENSTOCK_KIND_COMPRESSOR, sdk::About{"compressor/mine", "0.1.0", "", ""},
                       &sdk::load<Method, sdk::CompressorTable<Method>::table>);
  LoadedPlugin plugin;
  plugin.record = &record;
  require(take(record.load(test_host(), &plugin.module)), "load");
  return plugin;
}

// Folds, and promises an inspection, but compensates without it.
class PromisesToInspect : public sdk::SparseCompressor<PromisesToInspect> {
 public:
  static inline const sdk::OptionList options{sdk::SparseValues::option()};
  static constexpr bool kFolds = true;
  static constexpr bool kInspects = true;
  explicit PromisesToInspect(const sdk::Options& values) : SparseCompressor(values, "promises") {}
  uint64_t most(uint64_t n) const { return (n + 9) / 10; }
  void choose(const sdk::Choice& from) const {
    kernels::SelectSegment& segment = from.only();
    kernels::Fold fold = *segment.fold;
    fold.is_finite = nullptr;
    segment.fold = nullptr;
    kernels::compensate(fold, segment.n, from.path);
    from.largest(from.most);
  }
};

// The finding of the kit's check about the plugin; empty if there is none.
template <typename Method>
std::string said(std::string_view name = "folding") {
  for (const Check& check : compressor_checks()) {
    if (check.name != name) continue;
    try {
      return check.run(loaded<Method>(), {}).note;
    } catch (const BrokenPromise& broken) {
      return broken.what();
    }
  }
  return "there is no such check";
}

template <typename Method>
uint32_t folds_of() {
  return CompressorInstance(loaded<Method>(), {}).describe().folds;
}

TEST(Folding, IsOptIn) {
  EXPECT_EQ(folds_of<SweepsApart>(), 0u);
  EXPECT_EQ(said<SweepsApart>(), "it folds no memory's sweep into its own");
  run_checks(loaded<SweepsApart>());  // right with the sweeps apart
}

TEST(Folding, OfAMethodThatLooksTooEarlyIsSeen) {
  EXPECT_EQ(folds_of<FoldsTooLate>(), sdk::kAllFolds);
  const std::string found = said<FoldsTooLate>();
  EXPECT_NE(found.find("does it look at work before the fold is done?"), std::string::npos)
      << found;
}

TEST(Folding, ThatForgetsWhereThingsWereBeforeIsSeen) {
  const std::string found = said<FoldsInPlace>();
  EXPECT_NE(found.find("what was before elsewhere"), std::string::npos) << found;
}

TEST(Inspection, IsOptIn) {
  EXPECT_EQ(said<SweepsApart>("inspection"), "it does not inspect what it compensates");
}

TEST(Inspection, ThatIsPromisedAndNotDoneIsSeen) {
  const std::string found = said<PromisesToInspect>("inspection");
  EXPECT_NE(found.find("element 0 of gradient 0 is nan"), std::string::npos) << found;
}

}  // namespace
}  // namespace penstock::folding_test
