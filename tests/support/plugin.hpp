// Loads a plugin without the core: a host of its own, option values from a short list, and
// instances that destroy themselves.
#pragma once

#include <gtest/gtest.h>
#include <penstock/plugin.h>
#include <penstock/workers.h>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::test {

// A host that keeps its statuses on the heap and counts them. Any test that ends with more live
// statuses than it began with fails (a listener looks after each test).
const penstock_host* test_host();
int64_t live_statuses();
// What code_path answers from now on; empty lets plugins choose.
void set_code_path(const std::string& path);
// What plugins find as penstock.workers/1 from now on; null: nothing.
void set_workers(const penstock_workers* workers);

// A status, read and freed.
struct Outcome {
  uint32_t code = PENSTOCK_OK;
  std::string message;
  bool ok() const { return code == PENSTOCK_OK; }
};
Outcome take(penstock_status* status);
::testing::AssertionResult succeeds(penstock_status* status);
// True for an error of `code` whose message contains `part`.
::testing::AssertionResult fails_with(penstock_status* status, uint32_t code,
                                      const std::string& part);

#define PENSTOCK_EXPECT_OK(call) EXPECT_TRUE(::penstock::test::succeeds(call))
#define PENSTOCK_ASSERT_OK(call) ASSERT_TRUE(::penstock::test::succeeds(call))

// What a test sets, by name; every other option has its declared default.
using OptionSetting = std::variant<bool, int, double, const char*>;
using OptionSettings = std::vector<std::pair<std::string, OptionSetting>>;

// Complete option values in the order of declaration. Throws std::invalid_argument for a name that
// was not declared, a value of the wrong type or out of range: mistakes of the test.
class OptionValues {
 public:
  OptionValues(const penstock_module& module, const OptionSettings& settings);
  const penstock_option_value* const* data() const { return pointers_.data(); }
  uint64_t size() const { return pointers_.size(); }

 private:
  std::deque<std::string> texts_;
  std::deque<penstock_option_value> values_;
  std::vector<const penstock_option_value*> pointers_;
};

// A loaded plugin; never unmapped. Copies share it.
struct LoadedPlugin {
  const penstock_plugin_record* record = nullptr;
  const penstock_module* module = nullptr;

  const penstock_compressor& compressor() const;
  const penstock_memory& memory() const;
  const penstock_collective& collective() const;
  const penstock_scheduler& scheduler() const;
};
// `file`: a path, or the name of a file in the folder this build puts its plugins in
// (PENSTOCK_PLUGIN_DIRECTORY). Throws std::runtime_error when it does not load.
LoadedPlugin load_plugin(const std::string& file);
// By kind and name, from that folder.
LoadedPlugin load_plugin(const std::string& kind, const std::string& name);

// An instance of a compressor or memory. Throws std::runtime_error when create fails.
template <typename Table>
class Instance {
 public:
  Instance(const Table& table, const penstock_module& module, const OptionSettings& settings = {})
      : table_(&table) {
    const OptionValues values(module, settings);
    const Outcome outcome = take(table.create(values.data(), values.size(), &self_));
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  }
  Instance(Instance&& other) noexcept
      : table_(other.table_), self_(std::exchange(other.self_, nullptr)) {}
  Instance& operator=(Instance&&) = delete;
  ~Instance() {
    if (self_ != nullptr) table_->destroy(self_);
  }
  const Table& table() const { return *table_; }
  void* self() const { return self_; }

 private:
  const Table* table_;
  void* self_ = nullptr;
};
using CompressorInstance = Instance<penstock_compressor>;
using MemoryInstance = Instance<penstock_memory>;

}  // namespace penstock::test
