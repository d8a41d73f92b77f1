// The C interface of the runtime, wrapped for C++.

#include "door.hpp"

#include <penstock/scheduler.h>

#include <cstddef>
#include <utility>

namespace penstock::torch {

void check(penstock_status* status) {
  if (status == nullptr) return;
  const penstock_str said = penstock_error_message(status);
  const Error error(penstock_error_code(status), std::string(said.data, said.size));
  penstock_error_free(status);
  throw error;
}

void refuse_argument(const std::string& message) {
  throw Error(PENSTOCK_INVALID_ARGUMENT, message);
}

void refuse_moment(const std::string& message) {
  throw Error(PENSTOCK_FAILED_PRECONDITION, message);
}

void take_text(void* text, penstock_str part) {
  static_cast<std::string*>(text)->append(part.data, part.size);
}

penstock_tensor tensor_view(void* data, const std::vector<std::int64_t>& shape, std::uint32_t dtype,
                            const Place& place) {
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.data = data;
  tensor.shape = shape.data();
  tensor.n_dims = shape.size();
  tensor.numel = 1;
  for (const std::int64_t extent : shape) tensor.numel *= static_cast<std::uint64_t>(extent);
  tensor.dtype = dtype;
  tensor.device_type = place.device_type;
  tensor.device_id = place.device_id;
  return tensor;
}

// ---- Sets ----

GradientSet::GradientSet(penstock_runtime* runtime, std::string name,
                         const std::vector<GradientSpec>& gradients, std::uint32_t flags,
                         const std::string& scheme, const Ranks& ranks,
                         const std::string& agreement)
    : name_(std::move(name)), n_gradients_(gradients.size()) {
  std::vector<penstock_gradient_declaration> declared(gradients.size());
  std::vector<const penstock_gradient_declaration*> pointers(gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    penstock_gradient_declaration& one = declared[i];
    one.struct_size = sizeof one;
    one.name = view(gradients[i].name);
    one.shape = gradients[i].shape.data();
    one.n_dims = gradients[i].shape.size();
    one.dtype = gradients[i].dtype;
    one.device_type = gradients[i].place.device_type;
    one.device_id = gradients[i].place.device_id;
    one.given_bucket = PENSTOCK_NO_BUCKET;
    pointers[i] = &one;
  }
  penstock_set_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = view(name_);
  declaration.gradients = pointers.data();
  declaration.n_gradients = pointers.size();
  declaration.scheme = view(scheme);
  declaration.flags = flags;
  declaration.ranks = ranks.data();
  declaration.n_ranks = ranks.size();
  declaration.agreement = view(agreement);
  check(penstock_set_create(runtime, &declaration, &handle_));
}

penstock_set* GradientSet::handle() const {
  if (handle_ == nullptr)
    refuse_argument("set " + name_ +
                    " is gone: the runtime was shut down; make the optimizer anew after init()");
  return handle_;
}

GradientSet::Step GradientSet::step() const {
  Step step;
  std::uint32_t has_come = 0;
  if (handle_ != nullptr) check(penstock_set_phase(handle_, &step.phase, &has_come));
  step.has_come = has_come != 0;
  return step;
}

std::vector<std::uint64_t> GradientSet::rest() const {
  std::vector<std::uint64_t> gradients(n_gradients_);
  std::uint64_t count = 0;
  call(penstock_step_rest, gradients.data(), &count);
  gradients.resize(count);
  return gradients;
}

std::vector<std::uint8_t> GradientSet::save() const {
  std::vector<std::uint8_t> state;
  const auto sink = [](void* context, const void* data, std::uint64_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    auto* target = static_cast<std::vector<std::uint8_t>*>(context);
    target->insert(target->end(), bytes, bytes + size);
  };
  void (*const pointer)(void*, const void*, std::uint64_t) = sink;
  call(penstock_set_save, &state, pointer);
  return state;
}

void GradientSet::load(const std::vector<std::uint8_t>& state) const {
  call(penstock_set_load, state.data(), std::uint64_t{state.size()});
}

Counters GradientSet::counters() const {
  penstock_counters found{};
  found.struct_size = sizeof found;
  call(penstock_set_counters, &found);
  return {found.steps,       found.gradient_bytes,    found.payload_bytes,
          found.messages,    found.void_buckets,      found.wait_us,
          found.moved_bytes, found.dense_moved_bytes, found.forgotten_steps};
}

bool GradientSet::comparison_due() const {
  std::uint32_t due = 0;
  call(penstock_set_comparison_due, &due);
  return due != 0;
}

std::string GradientSet::report() const {
  std::string text;
  call(penstock_set_report, &text, take_text);
  return text;
}

void GradientSet::destroy() noexcept {
  penstock_set_destroy(std::exchange(handle_, nullptr));
}

// ---- Operations ----

Operation::Operation(penstock_runtime* runtime, const penstock_operation_declaration& declaration) {
  penstock_operation* started = nullptr;
  check(penstock_operation_submit(runtime, &declaration, &started));
  handle_.reset(started);
}

std::pair<const void*, std::uint64_t> Operation::result() const {
  const void* data = nullptr;
  const std::uint64_t* rows = nullptr;
  std::uint64_t bytes = 0, n_rows = 0;
  check(penstock_operation_result(handle_.get(), &data, &bytes, &rows, &n_rows));
  return {data, bytes};
}

Operation start_broadcast(penstock_runtime* runtime, const std::string& name,
                          const penstock_tensor& tensor, std::uint32_t root, const Ranks& ranks) {
  penstock_operation_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = view(name);
  declaration.input = declaration.output = &tensor;
  declaration.ranks = ranks.data();
  declaration.n_ranks = ranks.size();
  declaration.prescale = declaration.postscale = 1.0;
  declaration.pattern = PENSTOCK_BROADCAST;
  declaration.reduction = PENSTOCK_REDUCE_SUM;
  declaration.root = root;
  return {runtime, declaration};
}

}  // namespace penstock::torch
