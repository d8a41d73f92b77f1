// One parameter's gradient on its way to the core and back.
#ifndef PENSTOCK_LIBTORCH_SLOT_HPP
#define PENSTOCK_LIBTORCH_SLOT_HPP

#include "devices.hpp"
#include "door.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>

namespace penstock::torch {

// The number of an element type in the door's headers; empty for one that the core does not know.
std::optional<std::uint32_t> door_dtype(at::ScalarType type);

// "float32 [3, 5]", for messages.
std::string shape_text(const at::Tensor& tensor);

// A gradient of a set. The core works in the gradient's own memory where that is contiguous, else
// in a copy beside it. Not thread-safe: a parameter's hook never overlaps with itself or with
// waits.
class Slot {
 public:
  // `index`: in the set; `group`: number of the parameter's group in the optimizer. Throws for an
  // element type or a device that cannot be exchanged.
  Slot(std::uint64_t index, std::string name, at::Tensor parameter, std::size_t group);

  GradientSpec spec() const { return {name, shape_, dtype_, place_}; }
  bool is_on_device() const { return !place_.is_cpu(); }

  // Throws where the gradient that backward has just completed cannot be exchanged.
  void check_gradient() const;
  // Remembers the gradient, for check_untouched.
  void note();
  // Throws when the gradient was changed or replaced since note().
  void check_untouched() const;

  // Hands the complete gradient in: from now on nobody else may touch it.
  void submit(const GradientSet& set);
  // Backward did not reach the parameter: zeros take part, and the result is received.
  void submit_absent(const GradientSet& set);
  // Waits until the result is there, or on a device until it will be for the current stream.
  void wait(const GradientSet& set);
  // After the wait: the parameter's gradient is the result. Call without recording history.
  void finish();

  // What the parameter's gradient is, beside the result that finish() left there.
  enum class Held {
    result,   // just that
    changed,  // its tensor, changed since
    another,  // another tensor
    nothing   // none, or zeroed by zero_grad()
  };
  Held held() const;
  // Somebody has zeroed the gradient where it lies.
  void note_zeroed();
  // The result of finish() was zero everywhere, or not so far as is known.
  bool came_as_zeros = false;

  // Deferral: the gradient stays here until its update, and the parameter has none.
  void put_off();
  // Waits for the result of what was put off, once: the gradient holds it then.
  void arrive(const GradientSet& set);
  // The result; the slot is free for the next step.
  at::Tensor take_result();

  // Whatever was done to the gradient: its result is dropped.
  void forget_given() { given_.reset(); }
  // The step is over, or lost.
  void rewind();

  const std::uint64_t index;
  const std::string name;
  at::Tensor parameter;
  const std::size_t group;

 private:
  void load(const at::Tensor& gradient);
  void hand_in(const GradientSet& set);
  void receive();

  std::vector<std::int64_t> shape_;
  std::uint32_t dtype_ = 0;
  Place place_;
  StreamRelay relay_;
  at::Tensor gradient_;      // the result of the step under way
  at::Tensor wire_;          // what the core works in: gradient_ or staging_
  at::Tensor staging_;       // kept from step to step
  at::Tensor given_;         // the gradient as note() saw it
  bool is_put_off_ = false;  // and has not arrived
  std::int64_t given_version_ = 0;

  // Of the last result: known by its address, which stays taken, without keeping its memory.
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::optional<Weak> result_;
  std::int64_t result_version_ = 0;
  std::optional<std::int64_t> zeroed_version_;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_SLOT_HPP
