// Tests that the rig finds broken promises: plugins that break one promise each, and the failure
// that the rig reports.
#include <penstock/compressor.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

enum class Fault {
  kNone,
  kOverrun,
  kChangesWork,
  kSendsOther,
  kRankResult,
  kNoCount,
  kDescends,
  kReplica
};
Fault fault;

// Sends all entries as pairs, and breaks the promise that `fault` names.
class Faulty {
 public:
  static inline const sdk::OptionList options{};
  explicit Faulty(const sdk::Options&) {}
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, item.numel())
        .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel());
    need.states.add("replica", 1, 1, PENSTOCK_STATE_REPLICATED);
  }
  void encode(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const auto n = static_cast<uint32_t>(work.size());
    for (uint32_t i = 0; i < n; ++i) {
      payload.room<uint32_t>(0)[i] = fault == Fault::kDescends ? n - 1 - i : i;
      payload.room<float>(1)[i] = work[i];
    }
    if (fault == Fault::kOverrun) payload.room<float>(1).data()[n] = 1;
    if (item.keeps() || fault == Fault::kChangesWork)
      for (float& value : work) value = fault == Fault::kSendsOther ? 0.125f : 0;
    payload.kind(PENSTOCK_PAYLOAD_SPARSE);
    payload.count(0, fault == Fault::kNoCount ? n - 1 : n);
    payload.count(1, n);
  }
  void decode_add(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const auto values = payload.section<float>(1);
    for (uint64_t i = 0; i < values.size(); ++i) item.out()[i] += values[i];
    if ((call.flags & PENSTOCK_DECODE_OWN) != 0) return;
    if (fault == Fault::kRankResult) item.out()[0] += static_cast<float>(call.step->rank);
    if (fault == Fault::kReplica) item.state(0)[0] = static_cast<float>(call.step->rank);
  }
};

LoadedPlugin faulty() {
  sdk::host_slot() = test_host();
  static const penstock_plugin_record record = [] {
    penstock_plugin_record made{};
    made.kind = PENSTOCK_KIND_COMPRESSOR;
    return made;
  }();
  static const penstock_module module{sizeof(penstock_module), &sdk::CompressorTable<Faulty>::table,
                                      nullptr, 0};
  return {&record, &module};
}

// The text of the error that a step with the fault throws.
std::string failure_with(Fault which, bool keep) {
  fault = which;
  try {
    CompressorRig rig({.ranks = 2, .check_mass = true, .check_sums = true, .keep = keep}, {{5}},
                      faulty());
    rig.step(draw_gradients(heavy_tailed, 2, {5}, 0));
  } catch (const BrokenPromise& broken) {
    return broken.what();
  }
  return "";
}

TEST(Rig, FindsNoFaultWhereThereIsNone) {
  EXPECT_EQ(failure_with(Fault::kNone, false), "");
  EXPECT_EQ(failure_with(Fault::kNone, true), "");
}

TEST(Rig, SeesEachBrokenPromise) {
  const auto reports = [](Fault which, bool keep, const char* what) {
    const std::string all = failure_with(which, keep);
    EXPECT_NE(all.find(what), std::string::npos) << "expected '" << what << "' in: " << all;
  };
  reports(Fault::kOverrun, false, "was overrun");
  reports(Fault::kChangesWork, false, "although nothing is kept of it");
  reports(Fault::kSendsOther, true, "took out something else than it sent");
  reports(Fault::kRankResult, false, "has another result");
  reports(Fault::kNoCount, false, "section 0 of gradient0");
  reports(Fault::kDescends, false, "do not ascend");
  reports(Fault::kReplica, false, "replicated state 'replica' differs");
}

TEST(Rig, StatusesThatAreLeftBehindAreCounted) {
  const int64_t before = live_statuses();
  penstock_status* status = test_host()->status_new(nullptr, PENSTOCK_INTERNAL, {"x", 1});
  EXPECT_EQ(live_statuses(), before + 1);
  EXPECT_EQ(take(status).message, "x");
  EXPECT_EQ(live_statuses(), before);
}

}  // namespace
}  // namespace penstock::test
