// See item.hpp.
#include <penstock/views.hpp>
#include <stdexcept>
#include <testing/item.hpp>

namespace penstock::test {

uint64_t numel_of(const Shape& shape) {
  uint64_t numel = 1;
  for (const int64_t size : shape) numel *= static_cast<uint64_t>(size);
  return numel;
}

std::string text_of(const Shape& shape) {
  std::string all;
  for (const int64_t size : shape) {
    if (!all.empty()) all += 'x';
    all += std::to_string(size);
  }
  return all;
}

const std::vector<Shape>& awkward_shapes() {
  static const std::vector<Shape> shapes{{0},    {1},     {2},    {3},    {7},    {64},
                                         {1000}, {65537}, {1, 1}, {1, 7}, {7, 1}, {33, 65}};
  return shapes;
}

penstock_item describe_item(const Shape& shape, const std::string& name, uint64_t index) {
  penstock_item item{};
  item.struct_size = sizeof item;
  item.name = sdk::str(name);
  item.gradient = index;
  item.numel = numel_of(shape);
  const bool matrix = shape.size() >= 2 && shape[0] > 0;
  item.rows = matrix ? static_cast<uint64_t>(shape[0]) : item.numel;
  item.cols = matrix ? item.numel / item.rows : 1;
  item.n_dims = shape.size();
  item.shape = shape.data();
  penstock_tensor& tensor = item.grad;
  tensor.struct_size = sizeof tensor;
  tensor.shape = shape.data();
  tensor.n_dims = shape.size();
  tensor.numel = item.numel;
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  item.work = item.out = tensor;
  return item;
}

penstock_exec cpu_exec() {
  penstock_exec exec{};
  exec.struct_size = sizeof exec;
  exec.device_type = PENSTOCK_DEVICE_CPU;
  return exec;
}

SimulatedState::SimulatedState(const penstock_state_declaration& declared)
    : name(sdk::view(declared.name)),
      state_class(declared.state_class),
      bytes(declared.rows * declared.cols * sdk::dtype_bytes(declared.dtype)),
      shape{static_cast<int64_t>(declared.rows), static_cast<int64_t>(declared.cols)} {
  tensor.struct_size = sizeof tensor;
  tensor.data = bytes.data();
  tensor.shape = shape;
  tensor.n_dims = 2;
  tensor.numel = declared.rows * declared.cols;
  tensor.dtype = declared.dtype;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
}

void StateTensors::add(const PlannedStates& declared) {
  for (const penstock_state_declaration& state : declared.states)
    pointers_.push_back(&states_.emplace_back(state).tensor);
}

std::vector<float> StateTensors::named(const std::string& name) const {
  for (const SimulatedState& state : states_) {
    if (state.name != name) continue;
    const auto* data = static_cast<const float*>(state.tensor.data);
    return {data, data + state.tensor.numel};
  }
  throw std::invalid_argument("no state is named '" + name + "'");
}

std::vector<std::vector<unsigned char>> StateTensors::copy() const {
  std::vector<std::vector<unsigned char>> contents;
  for (const SimulatedState& state : states_) contents.push_back(state.bytes.copy());
  return contents;
}

void StateTensors::put_back(const std::vector<std::vector<unsigned char>>& contents) {
  for (size_t s = 0; s < states_.size(); ++s)
    std::copy(contents[s].begin(), contents[s].end(), states_[s].bytes.begin());
}

bool StateTensors::intact() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](const SimulatedState& state) { return state.bytes.intact(); });
}

SimulatedItem::SimulatedItem(const Shape& shape, std::string name, uint64_t index)
    : name(std::move(name)),
      shape(shape),
      grad(numel_of(shape)),
      scratch_work(numel_of(shape)),
      c(describe_item(this->shape, this->name, index)) {}

void SimulatedItem::lay_out(const penstock_memory_need& memory, bool own_work) {
  c.grad.data = c.out.data = grad.data();
  c.work.data =
      own_work || memory.work_is != PENSTOCK_WORK_IS_GRAD ? scratch_work.data() : grad.data();
  if (memory.work_is == PENSTOCK_WORK_IS_STATE)
    c.work.data = memory_states[memory.work_state].tensor.data;
  const bool keeps = own_work || memory.work_is == PENSTOCK_WORK_IS_STATE;
  if (keeps) c.flags |= PENSTOCK_ITEM_KEEP;
  if (keeps || (memory.flags & PENSTOCK_MEMORY_ADDS_REST) != 0)
    c.flags |= PENSTOCK_ITEM_REST_FOLLOWS;
  for_compressor = for_memory = c;
  for_compressor.states = compressor_states.data();
  for_compressor.n_states = compressor_states.size();
  for_memory.states = memory_states.data();
  for_memory.n_states = memory_states.size();
}

void SimulatedItem::promise_intact(const std::string& call) const {
  promise(grad.intact() && scratch_work.intact(), call, " wrote beyond work or out of '", name,
          "' of ", text_of(shape), " floats: a buffer was overrun");
  promise(compressor_states.intact() && memory_states.intact(), call, " wrote beyond a state of '",
          name, "' of ", text_of(shape), " floats: a buffer was overrun");
}

}  // namespace penstock::test
