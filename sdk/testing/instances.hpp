// Owners of plugin instances, with the calls of their tables as functions that take vectors, and
// that read and free the statuses.
#pragma once

#include <planning/plan.hpp>
#include <testing/plugin.hpp>

namespace penstock::test {

using ItemViews = std::vector<penstock_item*>;

// One instance, made with the test's options. Throws std::runtime_error when create fails.
template <typename Table>
class Instance {
 public:
  Instance(const Table& table, const penstock_module& module, const OptionSettings& settings = {})
      : table_(&table) {
    const OptionValues values(module, settings);
    about_to("create");
    const Outcome outcome = take(table.create(values.data(), values.size(), &self_));
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  }
  // Throws std::invalid_argument for a plugin of another kind.
  explicit Instance(const LoadedPlugin& plugin, const OptionSettings& settings = {})
      : Instance(plugin.table<Table>(), *plugin.module, settings) {}
  Instance(Instance&& other) noexcept
      : table_(other.table_), self_(std::exchange(other.self_, nullptr)) {}
  Instance& operator=(Instance&&) = delete;
  ~Instance() {
    if (self_ != nullptr) table_->destroy(self_);
  }
  const Table& table() const { return *table_; }
  void* self() const { return self_; }
  // Whether the plugin's table has the member and it is not null: has(&penstock_memory::record).
  template <typename Function>
  bool has(Function Table::*member) const {
    const auto* place = reinterpret_cast<const char*>(&(table_->*member));
    const auto* begin = reinterpret_cast<const char*>(table_);
    return place + sizeof(Function) <= begin + table_->struct_size && table_->*member != nullptr;
  }

 protected:
  template <typename Traits>
  Traits traits_of() const {
    Traits traits{};
    traits.struct_size = sizeof traits;
    require(take(table_->describe(self_, &traits)), "describe");
    return traits;
  }

 private:
  const Table* table_;
  void* self_ = nullptr;
};

// A compressor. Throws BrokenPromise if describe fails.
class CompressorInstance : public Instance<penstock_compressor> {
 public:
  using Instance::Instance;
  penstock_compressor_traits describe() const { return traits_of<penstock_compressor_traits>(); }
  Outcome encode(const penstock_exec& exec, const penstock_step& step, uint32_t round,
                 const ItemViews& items, const std::vector<penstock_payload*>& payloads) const {
    return take(
        table().encode(self(), &exec, &step, round, items.data(), items.size(), payloads.data()));
  }
  // `payloads`: item by item, `n_ranks` each.
  Outcome decode(const penstock_exec& exec, const penstock_step& step, uint32_t round,
                 const ItemViews& items, const std::vector<const penstock_payload*>& payloads,
                 uint64_t n_ranks, uint32_t flags) const {
    return take(table().decode(self(), &exec, &step, round, items.data(), items.size(),
                               payloads.data(), n_ranks, flags));
  }
};

// A memory. If it lacks an optional member, the call of that member succeeds and does nothing.
class MemoryInstance : public Instance<penstock_memory> {
 public:
  using Instance::Instance;
  penstock_memory_traits describe() const { return traits_of<penstock_memory_traits>(); }
  Outcome measure(const penstock_exec& exec, const penstock_step& step, const ItemViews& items,
                  float* scalars) const {
    return take(table().measure(self(), &exec, &step, items.data(), items.size(), scalars));
  }
  // `summed`: null if the memory asks for no scalars.
  Outcome compensate(const penstock_exec& exec, const penstock_step& step, const ItemViews& items,
                     const float* summed) const {
    return take(table().compensate(self(), &exec, &step, items.data(), items.size(), summed));
  }
  Outcome record(const penstock_exec& exec, const penstock_step& step, const ItemViews& items,
                 const std::vector<const penstock_payload*>& taken) const {
    if (!has(&penstock_memory::record)) return {};
    return take(table().record(self(), &exec, &step, items.data(), items.size(), taken.data()));
  }
  Outcome give_back(const penstock_exec& exec, const penstock_step& step, const ItemViews& items,
                    const std::vector<const penstock_payload*>& payloads) const {
    if (!has(&penstock_memory::give_back)) return {};
    return take(
        table().give_back(self(), &exec, &step, items.data(), items.size(), payloads.data()));
  }
  Outcome finish(const penstock_exec& exec, const penstock_step& step,
                 const ItemViews& items) const {
    if (!has(&penstock_memory::finish)) return {};
    return take(table().finish(self(), &exec, &step, items.data(), items.size()));
  }
  Outcome drain(const penstock_exec& exec, const ItemViews& items) const {
    if (!has(&penstock_memory::drain)) return {};
    return take(table().drain(self(), &exec, items.data(), items.size()));
  }
};

class CollectiveInstance : public Instance<penstock_collective> {
 public:
  using Instance::Instance;
  penstock_collective_traits describe() const { return traits_of<penstock_collective_traits>(); }
};

class SchedulerInstance : public Instance<penstock_scheduler> {
 public:
  using Instance::Instance;
  penstock_scheduler_traits describe() const { return traits_of<penstock_scheduler_traits>(); }
  // Throws BrokenPromise if plan refuses the model.
  planning::Plan plan(const penstock_model& model) const {
    planning::PlanRecorder recorder;
    require(take(table().plan(self(), &model, recorder.sink())), "plan");
    return recorder.plan();
  }
};

}  // namespace penstock::test
