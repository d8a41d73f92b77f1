// Loads a plugin without the core: a test host, option values from a short list, and owners of
// instances.
//
// No function here needs a test framework: errors are thrown. For GoogleTest there is gtest.hpp.
#pragma once

#include <penstock/plugin.h>
#include <penstock/workers.h>
#include <penstock/error.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::test {

// A plugin broke a promise of the headers; the text names the promise, the place and the cause. It
// is a std::runtime_error, so that any framework reports it.
struct BrokenPromise : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Throws BrokenPromise of the joined `parts` unless `kept`.
template <typename... Parts>
void promise(bool kept, const Parts&... parts) {
  if (!kept) throw BrokenPromise(sdk::text(parts...));
}

// Registers a listener, which is notified of each plugin call before the kit makes it, so that a
// program that survives a crash can name the call. Null: no listener. There is one per process.
void tell_calls_to(void (*listener)(const std::string& call));
void about_to(const std::string& call);

// A host that keeps its statuses on the heap and counts them. Under gtest.hpp any test that ends
// with more live statuses than it began with fails.
const penstock_host* test_host();
int64_t live_statuses();
// Sets the answer of the host's code_path; empty lets plugins choose.
void set_code_path(const std::string& path);
// Sets the extension penstock.workers/1 that plugins find; null: no extension.
void set_workers(const penstock_workers* workers);

// A status, read and freed.
struct Outcome {
  uint32_t code = PENSTOCK_OK;
  std::string message;
  bool ok() const { return code == PENSTOCK_OK; }
};
Outcome take(penstock_status* status);
// Throws BrokenPromise, "CALL: MESSAGE", for an error.
void require(const Outcome& outcome, const std::string& call);

// The options that a test sets, by name; every other option has its declared default.
using OptionSetting = std::variant<bool, int, double, const char*>;
using OptionSettings = std::vector<std::pair<std::string, OptionSetting>>;

// Complete option values in the order of declaration. A required option that the test does not set
// gets a legal value. Throws std::invalid_argument for mistakes of the test: a name that was not
// declared, or a value of the wrong type or out of range.
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

  // Throw std::invalid_argument for a plugin of another kind.
  const penstock_compressor& compressor() const;
  const penstock_memory& memory() const;
  const penstock_collective& collective() const;
  const penstock_scheduler& scheduler() const;
  template <typename Table>
  const Table& table() const {
    if constexpr (std::is_same_v<Table, penstock_compressor>) return compressor();
    if constexpr (std::is_same_v<Table, penstock_memory>) return memory();
    if constexpr (std::is_same_v<Table, penstock_collective>) return collective();
    if constexpr (std::is_same_v<Table, penstock_scheduler>) return scheduler();
  }
};
// Loads `file`: a path, or the name of a file in the plugin folder of this build
// (PENSTOCK_PLUGIN_DIRECTORY). Throws std::runtime_error if it does not load.
LoadedPlugin load_plugin(const std::string& file);
// Loads a plugin by kind and name from the plugin folder of this build.
LoadedPlugin load_plugin(const std::string& kind, const std::string& name);

}  // namespace penstock::test
