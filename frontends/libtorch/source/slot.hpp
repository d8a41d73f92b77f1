// Slot: the gradient of one parameter, from backward to the core and back.
#ifndef PENSTOCK_LIBTORCH_SLOT_HPP
#define PENSTOCK_LIBTORCH_SLOT_HPP

#include "devices.hpp"
#include "door.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>

namespace penstock::torch {

// The number of an element type in the C interface; empty for a type that the core does not have.
std::optional<std::uint32_t> door_dtype(at::ScalarType type);

// "float32 [3, 5]", for messages.
std::string shape_text(const at::Tensor& tensor);

// A gradient of a set. If the gradient is readable by address (memory.hpp), the core works in it;
// otherwise the core works in a copy. Not thread-safe: a parameter's hook never overlaps with
// itself or with waits.
class Slot {
 public:
  // `index`: number of the gradient in the set. `group`: number of the parameter's group in the
  // optimizer. Throws for an element type or a device that the frontend cannot exchange.
  Slot(std::uint64_t index, std::string name, at::Tensor parameter, std::size_t group);

  GradientSpec spec() const { return {name, shape_, dtype_, place_}; }
  bool is_on_device() const { return !place_.is_cpu(); }

  // Throws if the gradient that backward has just completed cannot be exchanged.
  void check_gradient() const;
  // Remembers the gradient for check_untouched().
  void note();
  // Throws if the gradient was changed or replaced since note().
  void check_untouched() const;

  // Hands the complete gradient to the core. From now on only the core may touch it.
  void submit(const GradientSet& set);
  // For a parameter that backward did not reach: sends zeros as its gradient. The parameter
  // receives the result.
  void submit_absent(const GradientSet& set);
  // Waits for the result. On a device the current stream waits, not the host.
  void wait(const GradientSet& set);
  // Makes the result the parameter's gradient. Call it after wait(), with gradient mode off.
  void finish();

  // The parameter's gradient now, compared with the result that finish() stored there.
  enum class Held {
    result,   // the unchanged result
    changed,  // the tensor of the result, with changed values
    another,  // another tensor
    nothing   // no gradient, or zeroed by zero_grad()
  };
  Held held() const;
  // Notes that the gradient's values have been set to zero in place.
  void note_zeroed();
  // True if the result of finish() is known to have been zero in every element.
  bool came_as_zeros = false;

  // Defers the update: the gradient stays here until then, and the parameter has no gradient.
  void put_off();
  // Waits for the result of a deferred gradient, which then holds it. A second call does nothing.
  void arrive(const GradientSet& set);
  // Returns the result; the slot is free for the next step.
  at::Tensor take_result();

  // Turns check_untouched() off for this step: its result will be dropped, so changes are harmless.
  void forget_given() { given_.reset(); }
  // Clears the slot after a step that is over or lost.
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
  at::Tensor wire_;          // the tensor that the core works in: gradient_ or staging_
  at::Tensor staging_;       // a contiguous copy, kept from step to step
  at::Tensor given_;         // the gradient as note() saw it
  bool is_put_off_ = false;  // deferred, and the result has not arrived
  std::int64_t given_version_ = 0;

  // The last result, recognized by the address of its tensor object. The weak pointer keeps that
  // address in use but does not keep the tensor's data.
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::optional<Weak> result_;
  std::int64_t result_version_ = 0;
  std::optional<std::int64_t> zeroed_version_;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_SLOT_HPP
