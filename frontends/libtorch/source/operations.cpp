// Named operations on the program's own tensors.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "memory.hpp"
#include "slot.hpp"
#include "world.hpp"

namespace penstock::torch {

// The data of one operation. The operation keeps addresses of members, so a Parts never moves.
struct Pending::Parts {
  std::string name;
  at::Device home = at::kCPU;  // the device of the result
  at::Tensor input, output;    // in host memory. No output: the operation owns the result
  std::vector<std::int64_t> shape;
  penstock_tensor view{}, target{};
  std::optional<Operation> operation;
  bool waited = false;
};

namespace {

using Fill = void (*)(penstock_operation_declaration& declaration, std::uint32_t argument);

std::unique_ptr<Pending::Parts> parts_of(const at::Tensor& tensor, const std::string& name) {
  if (!tensor.defined() || !has_dense_values(tensor))
    refuse_argument(
        "operation " + name +
        ": expected a dense tensor on the CPU or CUDA: the libtorch frontend sends no other "
        "tensors yet");
  const auto dtype = door_dtype(tensor.scalar_type());
  if (!dtype)
    refuse_argument("operation " + name + ": element type of " + shape_text(tensor) +
                    " is not supported");
  auto parts = std::make_unique<Pending::Parts>();
  parts->name = name;
  parts->home = tensor.device();
  parts->input = in_host_memory(tensor.detach());
  parts->shape = tensor.sizes().vec();
  parts->view = tensor_view(parts->input.data_ptr(), parts->shape, *dtype);
  return parts;
}

void start(Pending::Parts& parts, std::uint32_t pattern, const std::vector<std::uint32_t>& ranks,
           Fill fill = nullptr, std::uint32_t argument = 0) {
  penstock_operation_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = view(parts.name);
  declaration.pattern = pattern;
  declaration.prescale = declaration.postscale = 1.0;
  declaration.reduction = PENSTOCK_REDUCE_SUM;
  declaration.ranks = ranks.data();
  declaration.n_ranks = ranks.size();
  if (parts.input.defined()) declaration.input = &parts.view;
  if (parts.output.defined()) {
    parts.target = parts.view;
    parts.target.data = parts.output.data_ptr();
    declaration.output = &parts.target;
  }
  if (fill != nullptr) fill(declaration, argument);
  parts.operation.emplace(current(), declaration);
}

// The tensors of all ranks, concatenated along the first dimension.
at::Tensor gathered(const Pending::Parts& parts) {
  const auto [data, bytes] = parts.operation->result();
  std::vector<std::int64_t> shape = parts.shape;
  if (shape.empty()) shape.push_back(1);
  std::int64_t row = parts.input.element_size();
  for (std::size_t i = 1; i < shape.size(); ++i) row *= shape[i];
  shape[0] = row == 0 ? 0 : static_cast<std::int64_t>(bytes) / row;
  at::Tensor all = at::empty(at::IntArrayRef(shape), parts.input.options());
  if (bytes > 0) std::memcpy(all.data_ptr(), data, bytes);
  return all;
}

}  // namespace

Pending::Pending(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Pending::Pending(Pending&&) noexcept = default;
Pending& Pending::operator=(Pending&&) noexcept = default;
Pending::~Pending() = default;

at::Tensor Pending::wait() {
  if (parts_->waited) refuse_moment("operation " + parts_->name + " was waited for already");
  parts_->operation->wait();
  parts_->waited = true;
  const at::NoGradGuard without_history;
  at::Tensor result = parts_->output.defined() ? parts_->output : gathered(*parts_);
  parts_->operation.reset();
  return result.to(parts_->home);
}

Pending start_allreduce(const at::Tensor& tensor, const std::string& name, bool sum, Ranks ranks) {
  auto parts = parts_of(tensor, "allreduce." + name);
  parts->output = at::empty_like(parts->input);
  start(
      *parts, PENSTOCK_ALL_REDUCE, ranks,
      [](penstock_operation_declaration& declaration, std::uint32_t average) {
        declaration.average = average;
      },
      sum ? 0 : 1);
  return Pending(std::move(parts));
}

Pending start_broadcast(const at::Tensor& tensor, const std::string& name, std::uint32_t root,
                        Ranks ranks) {
  auto parts = parts_of(tensor, "broadcast." + name);
  parts->output = at::empty_like(parts->input);
  start(
      *parts, PENSTOCK_BROADCAST, ranks,
      [](penstock_operation_declaration& declaration, std::uint32_t from) {
        declaration.root = from;
      },
      root);
  return Pending(std::move(parts));
}

Pending start_allgather(const at::Tensor& tensor, const std::string& name, Ranks ranks) {
  auto parts = parts_of(tensor, "allgather." + name);
  if (parts->shape.empty()) {
    parts->shape = {1};
    parts->view = tensor_view(parts->input.data_ptr(), parts->shape, parts->view.dtype);
  }
  start(*parts, PENSTOCK_ALL_GATHER, ranks);
  return Pending(std::move(parts));
}

at::Tensor allreduce(const at::Tensor& tensor, const std::string& name, bool sum, Ranks ranks) {
  return start_allreduce(tensor, name, sum, std::move(ranks)).wait();
}

at::Tensor broadcast(const at::Tensor& tensor, const std::string& name, std::uint32_t root,
                     Ranks ranks) {
  return start_broadcast(tensor, name, root, std::move(ranks)).wait();
}

at::Tensor allgather(const at::Tensor& tensor, const std::string& name, Ranks ranks) {
  return start_allgather(tensor, name, std::move(ranks)).wait();
}

void barrier(const std::string& name, Ranks ranks) {
  Pending::Parts parts;
  parts.name = "barrier." + name;
  start(parts, PENSTOCK_BARRIER, ranks);
  parts.operation->wait();
}

}  // namespace penstock::torch
