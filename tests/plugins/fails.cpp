// A plugin that fails in call number `fail_at`, counted over all instances with one label. The
// compressor sends half of every entry and fails when it is made or plans. With MEMORY the plugin
// is a memory that keeps unsent values. The memory also fails when it hands over its values.
#include <penstock/compressor.hpp>
#include <penstock/memory.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace penstock::sdk {
namespace {

class Counted {
 public:
  static Option label() { return string_option("label", "").rank_local(); }
  static Option fail_at() { return integer_option("fail_at", 0).rank_local(); }
  explicit Counted(const Options& values)
      : label_(values.string("label")), fail_at_(values.integer("fail_at")) {
    count("being made");
  }
  void count(const char* what) const {
    static std::mutex mutex;
    static std::map<std::string, int64_t> calls;
    std::lock_guard lock(mutex);
    if (++calls[label_] == fail_at_)
      throw invalid_argument("this plugin fails in ", what, ", call ", fail_at_);
  }

 private:
  std::string label_;
  int64_t fail_at_;
};

}  // namespace

#ifndef MEMORY
class Fails : Counted {
 public:
  static inline const OptionList options{Counted::label(), Counted::fail_at()};
  explicit Fails(const Options& values) : Counted(values) {}
  void plan(const PlanCall&, const Item& item, CompressorNeed& need) {
    count("plan");
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel());
    need.part_alignment = 1;
  }
  void encode(const Call&, const Item& item, PayloadWriter& payload) {
    const auto values = payload.room<float>(0);
    for (uint64_t i = 0; i < item.numel(); ++i) {
      values[i] = item.work()[i] / 2;
      if (item.keeps()) item.work()[i] -= values[i];
    }
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, item.numel());
  }
  void decode_add(const Call&, const Item& item, const PayloadReader& payload) {
    const auto values = payload.section<float>(0);
    for (uint64_t i = 0; i < values.size(); ++i) item.out()[i] += values[i];
  }
};
PENSTOCK_COMPRESSOR(Fails, "compressor/fails", "1.0.0", "Fails when it is told to.", "");
#else
class Fails : Counted {
 public:
  static inline const OptionList options{Counted::label(), Counted::fail_at()};
  explicit Fails(const Options& values) : Counted(values) {}
  void plan(const Item& item, const penstock_compressor_need&, MemoryNeed& need) {
    count("plan");
    need.work_state = need.states.add("kept", item.rows(), item.cols(), PENSTOCK_STATE_MASS);
    need.work_is = PENSTOCK_WORK_IS_STATE;
  }
  void compensate(const Call& call, const Item& item, std::span<const float>) {
    for (uint64_t i = 0; i < item.numel(); ++i)
      item.work()[i] += static_cast<float>(item.grad()[i] / call.step->grad_scale);
  }
  void give_back(const Call&, const Item&, const PayloadReader&) {}
  void drain(const Call&, const Item& item) {
    const std::span<float> kept = item.state(0);
    // Half of the values are handed over before this fails.
    for (uint64_t i = 0; i < kept.size(); ++i) {
      if (i == kept.size() / 2) count("drain");
      item.out()[i] += kept[i];
      kept[i] = 0;
    }
  }
};
PENSTOCK_MEMORY(Fails, "memory/fails", "1.0.0", "Fails when it is told to.", "");
#endif

}  // namespace penstock::sdk
