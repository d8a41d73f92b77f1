// One gradient on one simulated rank: the item that plugins see, in storage with guards.
#pragma once

#include <deque>
#include <testing/need.hpp>

namespace penstock::test {

using Shape = std::vector<int64_t>;

uint64_t numel_of(const Shape& shape);
std::string text_of(const Shape& shape);  // "33x65"
// 0, 1, 2, 3, 7, 64, 1000 and 65537 entries; 1x1, 1x7, 7x1, 33x65.
const std::vector<Shape>& awkward_shapes();

// An item on the CPU without storage or states. `shape` and `name` must outlive it.
penstock_item describe_item(const Shape& shape, const std::string& name, uint64_t index);
penstock_exec cpu_exec();

// One state tensor, zero at first.
struct SimulatedState {
  explicit SimulatedState(const penstock_state_declaration& declared);
  SimulatedState(const SimulatedState&) = delete;
  SimulatedState& operator=(const SimulatedState&) = delete;

  std::string name;
  uint32_t state_class;
  Guarded<unsigned char> bytes;
  int64_t shape[2];
  penstock_tensor tensor{};
};

// States of one plugin for one item, and the array of their tensors.
class StateTensors {
 public:
  void add(const PlannedStates& declared);
  const penstock_tensor* const* data() const { return pointers_.data(); }
  uint64_t size() const { return states_.size(); }
  SimulatedState& operator[](uint64_t i) { return states_[i]; }
  const SimulatedState& operator[](uint64_t i) const { return states_[i]; }
  // The content of a state. Throws std::invalid_argument if there is no state of this name.
  std::vector<float> named(const std::string& name) const;
  bool intact() const;
  // Copies the contents of all states, and restores them, so that a step between is forgotten.
  std::vector<std::vector<unsigned char>> copy() const;
  void put_back(const std::vector<std::vector<unsigned char>>& contents);

 private:
  std::deque<SimulatedState> states_;
  std::vector<const penstock_tensor*> pointers_;
};

struct SimulatedItem {
  SimulatedItem(const Shape& shape, std::string name, uint64_t index);
  SimulatedItem(const SimulatedItem&) = delete;
  SimulatedItem& operator=(const SimulatedItem&) = delete;

  // Gives storage to grad, work and out, as the engine does: `out` is the gradient's storage, and
  // the memory decides the storage of work. `own_work`: the rest in work is kept although no memory
  // keeps it.
  void lay_out(const penstock_memory_need& memory, bool own_work);
  float* work() const { return static_cast<float*>(c.work.data); }
  std::vector<float> work_copy() const { return {work(), work() + c.numel}; }
  // Throws BrokenPromise if `call` wrote to a guard.
  void promise_intact(const std::string& call) const;

  std::string name;
  Shape shape;
  Guarded<float> grad;
  Guarded<float> scratch_work;
  StateTensors compressor_states, memory_states;
  penstock_item c{};  // common to both views, whose `states` differ
  penstock_item for_compressor{}, for_memory{};
  PayloadPointer own;         // this rank's payload of the last round
  std::vector<float> sent;    // own, decoded
  std::vector<float> before;  // work before encode
};

}  // namespace penstock::test
