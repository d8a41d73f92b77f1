// Slot: the gradient of one parameter, from backward to the core and back.

#include "slot.hpp"

#include <ATen/Functions.h>

#include <sstream>
#include <utility>

#include "memory.hpp"

namespace penstock::torch {

std::optional<std::uint32_t> door_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return PENSTOCK_FLOAT32;
    case at::kHalf:
      return PENSTOCK_FLOAT16;
    case at::kBFloat16:
      return PENSTOCK_BFLOAT16;
    case at::kDouble:
      return PENSTOCK_FLOAT64;
    case at::kChar:
      return PENSTOCK_INT8;
    case at::kByte:
      return PENSTOCK_UINT8;
    case at::kShort:
      return PENSTOCK_INT16;
    case at::kInt:
      return PENSTOCK_INT32;
    case at::kLong:
      return PENSTOCK_INT64;
    default:
      return std::nullopt;
  }
}

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << ' ';
  if (tensor.is_nested())
    text << "nested";
  else
    text << tensor.sizes();
  return text.str();
}

Slot::Slot(std::uint64_t index, std::string name, at::Tensor parameter, std::size_t group)
    : index(index), name(std::move(name)), parameter(std::move(parameter)), group(group) {
  const auto place = place_of(this->parameter.device());
  if (!place)
    refuse_argument(
        "parameter " + this->name + " is on " + this->parameter.device().str() +
        ", expected the CPU or CUDA: the libtorch frontend exchanges nothing else yet; move the "
        "module there with module->to(torch::kCPU) before the optimizer is made");
  place_ = *place;
  const auto dtype = door_dtype(this->parameter.scalar_type());
  if (!dtype)
    refuse_argument("gradient " + this->name + ": element type of " + shape_text(this->parameter) +
                    " is not supported");
  dtype_ = *dtype;
  shape_ = this->parameter.sizes().vec();
}

void Slot::check_gradient() const {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.requires_grad())
    refuse_moment("gradient " + name +
                  " records history (create_graph), which cannot be averaged over ranks");
  if (gradient.layout() != at::kStrided)
    refuse_argument("gradient " + name +
                    " is sparse, which the libtorch frontend does not exchange yet; make it dense, "
                    "for an embedding with EmbeddingOptions(...).sparse(false)");
}

void Slot::note() {
  given_ = parameter.grad();
  given_version_ = given_._version();
}

void Slot::check_untouched() const {
  if (!given_.defined()) return;
  if (given_.is_same(parameter.grad()) && given_._version() == given_version_) return;
  refuse_moment(
      "gradient " + name +
      " was changed after loss.backward() and before optimizer.step(), while it was on its way to "
      "the other ranks. This is prohibited as it can cause a race condition. To clip or change "
      "averaged gradients: optimizer.synchronize(), change them, then optimizer.step().");
}

void Slot::submit(const GradientSet& set) {
  load(parameter.grad());
  note();
  hand_in(set);
}

void Slot::hand_in(const GradientSet& set) {
  if (is_on_device()) relay_.default_after_current(wire_.device());
  const penstock_tensor view = tensor_view(wire_.data_ptr(), shape_, dtype_, place_);
  set.call(penstock_gradient_ready, index, &view, nullptr);
}

void Slot::submit_absent(const GradientSet& set) {
  parameter.mutable_grad() = at::zeros_like(parameter).detach();
  load(parameter.grad());
  note();
  if (is_on_device()) {
    // The zeros, and the work that used their memory before, are queued on the current stream. The
    // result must come after both.
    hand_in(set);
    return;
  }
  const penstock_tensor view = tensor_view(wire_.data_ptr(), shape_, dtype_);
  set.call(penstock_gradient_absent, index, &view);
}

void Slot::wait(const GradientSet& set) {
  if (!is_on_device()) {
    set.call(penstock_wait, index);
    return;
  }
  set.call(penstock_wait_stream, index, nullptr);
  relay_.current_after_default(wire_);
}

void Slot::load(const at::Tensor& gradient) {
  if (gradient.sizes() != at::IntArrayRef(shape_) || door_dtype(gradient.scalar_type()) != dtype_ ||
      place_of(gradient.device()) != place_)
    refuse_argument("gradient " + name + " is " + shape_text(gradient) + " on " +
                    gradient.device().str() +
                    ", but the parameter had another shape, element type "
                    "or device when the DistributedOptimizer was made; make it anew on every rank, "
                    "and leave the grad_dtype of parameters as torch sets it");
  gradient_ = wire_ = gradient;
  if (readable_by_address(gradient)) return;
  if (gradient.is_inference() || !may_be_written(gradient)) {  // the result needs other memory
    gradient_ = wire_ = plain_copy(gradient, gradient.device());
    parameter.mutable_grad() = gradient_;
    return;
  }
  if (!staging_.defined()) staging_ = at::empty(at::IntArrayRef(shape_), gradient.options());
  staging_.copy_(gradient);
  wire_ = staging_;
}

void Slot::finish() {
  receive();
  if (!parameter.grad().is_same(gradient_)) parameter.mutable_grad() = gradient_;
  result_.emplace(gradient_.getIntrusivePtr());
  result_version_ = gradient_._version();
  zeroed_version_.reset();
  came_as_zeros = false;
  rewind();
}

Slot::Held Slot::held() const {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return Held::nothing;
  if (!result_ || result_->_unsafe_get_target() != gradient.unsafeGetTensorImpl())
    return Held::another;
  const std::int64_t version = gradient._version();
  if (version == zeroed_version_) return Held::nothing;
  return version == result_version_ ? Held::result : Held::changed;
}

void Slot::note_zeroed() {
  if (parameter.grad().defined()) zeroed_version_ = parameter.grad()._version();
}

void Slot::put_off() {
  parameter.mutable_grad().reset();
  given_.reset();
  is_put_off_ = true;
}

void Slot::arrive(const GradientSet& set) {
  if (!std::exchange(is_put_off_, false)) return;
  wait(set);
  receive();
}

// Copies the result into the gradient if it lies in the staging tensor. Call it after wait().
void Slot::receive() {
  if (!wire_.is_same(gradient_)) gradient_.copy_(wire_);
  wire_ = gradient_;
}

at::Tensor Slot::take_result() {
  wire_.reset();
  return std::exchange(gradient_, {});
}

void Slot::rewind() {
  gradient_.reset();
  wire_.reset();
  given_.reset();
  is_put_off_ = false;
}

}  // namespace penstock::torch
