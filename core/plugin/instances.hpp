// Owning wrappers of plugin instances: created from a plugin and resolved options, destroyed with
// the object.
#pragma once

#include "core/plugin/loader.hpp"
#include "core/plugin/options.hpp"

#include <memory>
#include <string>
#include <utility>

namespace penstock {

// The traits struct of each table.
template <typename Table>
struct TableTraits;
template <>
struct TableTraits<penstock_compressor> {
  using Traits = penstock_compressor_traits;
  static constexpr Kind kKind = Kind::compressor;
};
template <>
struct TableTraits<penstock_memory> {
  using Traits = penstock_memory_traits;
  static constexpr Kind kKind = Kind::memory;
};
template <>
struct TableTraits<penstock_collective> {
  using Traits = penstock_collective_traits;
  static constexpr Kind kKind = Kind::collective;
};
template <>
struct TableTraits<penstock_scheduler> {
  using Traits = penstock_scheduler_traits;
  static constexpr Kind kKind = Kind::scheduler;
};

template <typename Table>
class Instance {
 public:
  using Traits = typename TableTraits<Table>::Traits;

  // [control] Calls create, then describe; checks that the table has the members that its traits
  // promise. Errors begin with the instance's name and its place in the TOML. A null plugin is
  // refused.
  static Result<std::unique_ptr<Instance>> make(const InstanceConfig& config,
                                                std::shared_ptr<const Plugin> plugin);
  // Wraps a table from outside (a transport borrowed from a frontend); the object does not destroy
  // it.
  static Result<std::unique_ptr<Instance>> borrow(std::string name, const Table* table, void* self);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Table* table() const { return table_; }
  const Table* operator->() const { return table_; }
  void* self() const { return self_; }
  const Traits& traits() const { return traits_; }
  const std::string& name() const { return name_; }
  const Plugin* plugin() const { return plugin_.get(); }  // null for a borrowed instance
  const OptionValues& options() const { return options_; }

 private:
  Instance() = default;
  std::shared_ptr<const Plugin> plugin_;
  const Table* table_ = nullptr;
  void* self_ = nullptr;
  Traits traits_{};
  std::string name_;
  OptionValues options_;
};

// The patterns that a collective carries for device memory.
inline uint64_t device_patterns(const penstock_collective_traits& traits) {
  return traits.device_patterns != 0 ? traits.device_patterns : traits.patterns;
}

using CompressorInstance = Instance<penstock_compressor>;
using MemoryInstance = Instance<penstock_memory>;
using CollectiveInstance = Instance<penstock_collective>;
using SchedulerInstance = Instance<penstock_scheduler>;

// True if the table's maker knew the member and set it: PENSTOCK_HAS_MEMBER(table, penstock_memory,
// record).
#define PENSTOCK_HAS_MEMBER(table, type, member) \
  (PENSTOCK_HAS_FIELD(table, type, member) && (table)->member != nullptr)

}  // namespace penstock
