// Writing a memory in C++: a plain class. Its members decide which functions the table offers.
//
//   namespace sdk = penstock::sdk;
//   class Residual {
//    public:
//     static inline const sdk::OptionList options{};
//     explicit Residual(const sdk::Options& values);
//     void plan(const sdk::Item& item, const penstock_compressor_need& compressor,
//               sdk::MemoryNeed& need);
//     void compensate(const sdk::Call& call, const sdk::Item& item,
//                     std::span<const float> summed);
//     // optional, one item at a time:
//     void describe(penstock_memory_traits& traits) const;
//     void measure(const sdk::Call& call, const sdk::Item& item, std::span<float> scalars);
//     void record(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& taken);
//     void give_back(const sdk::Call& call, const sdk::Item& item,
//                    const sdk::PayloadReader& payload);
//     void finish(const sdk::Call& call, const sdk::Item& item);
//     void drain(const sdk::Call& call, const sdk::Item& item);
//   };
//   PENSTOCK_MEMORY(Residual, "memory/residual", "0.1.0", "one sentence", "paper");
//
// The layer never calls record and give_back with an absent payload. If a composite refused
// entries, give_back receives them before record. For a void bucket record and finish are not
// called; if work is a state, give_back receives the own payload of the last round instead. A
// forgotten step needs no call, because the core drops its changes of states. In a call on a device
// `scalars` lies on the device, and `summed` in host memory.
#pragma once

#include <penstock/arguments.hpp>
#include <penstock/kernels.hpp>
#include <penstock/need.hpp>
#include <penstock/record.hpp>

namespace penstock::sdk {

template <typename T>
concept MemoryClass = requires(T memory, const Call& call, const Item& item,
                               const penstock_compressor_need& compressor, MemoryNeed& need,
                               std::span<const float> summed) {
  T::options;
  memory.plan(item, compressor, need);
  memory.compensate(call, item, summed);
}
&&std::constructible_from<T, const Options&>;

template <typename T>
class MemoryTable {
  static_assert(
      MemoryClass<T>,
      "a memory needs: static options, a constructor from Options, plan() and compensate()");

  struct Instance {
    explicit Instance(const Options& options) : memory(options) {}
    T memory;
    std::deque<MemoryNeed> needs;
    uint32_t n_scalars = 0;  // per item; equal for all items of an instance
    bool planned = false;
    OneAtATime one_at_a_time;
  };

  static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                                 void** instance) noexcept {
    return guarded([&] {
      check_options(options, n_options);
      *instance = new Instance(Options(options, n_options));
    });
  }
  static void destroy(void* instance) noexcept { delete static_cast<Instance*>(instance); }

  static penstock_status* describe(void* instance, penstock_memory_traits* traits) noexcept {
    return guarded([&] {
      traits->device_types = 1u << PENSTOCK_DEVICE_CPU;
      if constexpr (requires(const T& memory) { memory.describe(*traits); })
        static_cast<Instance*>(instance)->memory.describe(*traits);
    });
  }

  static penstock_status* plan(void* instance, const penstock_item* const* items, uint64_t n_items,
                               const penstock_compressor_need* const* compressor_needs,
                               penstock_memory_need* const* needs) noexcept {
    return guarded([&] {
      Instance& self = *static_cast<Instance*>(instance);
      OneAtATime::Guard guard(self.one_at_a_time);
      check_items(items, n_items);
      load_kernels_for(items, n_items);
      self.needs.clear();
      for (uint64_t i = 0; i < n_items; ++i) {
        check_need(*compressor_needs[i]);
        MemoryNeed& need = self.needs.emplace_back();
        self.memory.plan(Item(items[i]), *compressor_needs[i], need);
        need.publish(needs[i]);
        if (self.planned && need.n_scalars != self.n_scalars)
          throw internal("a memory asks for ", need.n_scalars, " scalars for one gradient and ",
                         self.n_scalars, " for another; all gradients must have an equal number");
        self.n_scalars = need.n_scalars;
        self.planned = true;
      }
    });
  }

  template <typename Body>
  static penstock_status* each(void* instance, const penstock_exec* exec, const penstock_step* step,
                               const penstock_item* const* items, uint64_t n_items,
                               Body&& body) noexcept {
    return guarded([&] {
      Instance& self = *static_cast<Instance*>(instance);
      OneAtATime::Guard guard(self.one_at_a_time);
      check_call(exec, step, items, n_items);
      const Call call{exec, step};
      for (uint64_t i = 0; i < n_items; ++i) body(self, call, Item(items[i]), i);
    });
  }

  static penstock_status* compensate(void* instance, const penstock_exec* exec,
                                     const penstock_step* step, const penstock_item* const* items,
                                     uint64_t n_items, const float* summed) noexcept {
    return each(instance, exec, step, items, n_items,
                [&](Instance& self, const Call& call, const Item& item, uint64_t i) {
                  std::span<const float> scalars;
                  if (summed != nullptr) scalars = {summed + i * self.n_scalars, self.n_scalars};
                  self.memory.compensate(call, item, scalars);
                });
  }
  static penstock_status* measure(void* instance, const penstock_exec* exec,
                                  const penstock_step* step, const penstock_item* const* items,
                                  uint64_t n_items, float* scalars) noexcept requires
      requires(T m, const Call& c, const Item& i, std::span<float> s) {
    m.measure(c, i, s);
  }
  {
    return each(instance, exec, step, items, n_items,
                [&](Instance& self, const Call& call, const Item& item, uint64_t i) {
                  self.memory.measure(call, item, {scalars + i * self.n_scalars, self.n_scalars});
                });
  }
  static penstock_status* record(void* instance, const penstock_exec* exec,
                                 const penstock_step* step, const penstock_item* const* items,
                                 uint64_t n_items,
                                 const penstock_payload* const* taken) noexcept requires
      requires(T m, const Call& c, const Item& i, const PayloadReader& p) {
    m.record(c, i, p);
  }
  {
    return each(instance, exec, step, items, n_items,
                [&](Instance& self, const Call& call, const Item& item, uint64_t i) {
                  check_payloads(&taken[i], 1);
                  const PayloadReader reader(taken[i], item);
                  if (!reader.absent()) self.memory.record(call, item, reader);
                });
  }
  static penstock_status* give_back(void* instance, const penstock_exec* exec,
                                    const penstock_step* step, const penstock_item* const* items,
                                    uint64_t n_items,
                                    const penstock_payload* const* payloads) noexcept requires
      requires(T m, const Call& c, const Item& i, const PayloadReader& p) {
    m.give_back(c, i, p);
  }
  {
    return each(instance, exec, step, items, n_items,
                [&](Instance& self, const Call& call, const Item& item, uint64_t i) {
                  check_payloads(&payloads[i], 1);
                  const PayloadReader reader(payloads[i], item);
                  if (!reader.absent()) self.memory.give_back(call, item, reader);
                });
  }
  static penstock_status* finish(void* instance, const penstock_exec* exec,
                                 const penstock_step* step, const penstock_item* const* items,
                                 uint64_t n_items) noexcept requires
      requires(T m, const Call& c, const Item& i) {
    m.finish(c, i);
  }
  {
    return each(instance, exec, step, items, n_items,
                [&](Instance& self, const Call& call, const Item& item, uint64_t) {
                  self.memory.finish(call, item);
                });
  }
  static penstock_status* drain(void* instance, const penstock_exec* exec,
                                const penstock_item* const* items,
                                uint64_t n_items) noexcept requires
      requires(T m, const Call& c, const Item& i) {
    m.drain(c, i);
  }
  {
    return each(instance, exec, nullptr, items, n_items,
                [&](Instance& self, const Call& call, const Item& item, uint64_t) {
                  self.memory.drain(call, item);
                });
  }
  static const void* extension(void*, penstock_str) noexcept { return nullptr; }

  static constexpr penstock_memory make() {
    penstock_memory table{};
    table.struct_size = sizeof table;
    table.create = create;
    table.destroy = destroy;
    table.describe = describe;
    table.plan = plan;
    table.compensate = compensate;
    table.extension = extension;
    if constexpr (requires { &MemoryTable::measure; }) table.measure = measure;
    if constexpr (requires { &MemoryTable::record; }) table.record = record;
    if constexpr (requires { &MemoryTable::give_back; }) table.give_back = give_back;
    if constexpr (requires { &MemoryTable::finish; }) table.finish = finish;
    if constexpr (requires { &MemoryTable::drain; }) table.drain = drain;
    return table;
  }

 public:
  static constexpr penstock_memory table = make();
};

}  // namespace penstock::sdk

#define PENSTOCK_MEMORY(Type, ...) \
  PENSTOCK_DEFINE_PLUGIN(PENSTOCK_KIND_MEMORY, MemoryTable, Type, __VA_ARGS__)
