// The C interface of the runtime (the "door") for C++: statuses become exceptions, and handles have
// owners. This file does not use torch's tensors.
#ifndef PENSTOCK_LIBTORCH_DOOR_HPP
#define PENSTOCK_LIBTORCH_DOOR_HPP

#include <penstock/runtime.h>
#include <penstock/torch.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::torch {

// Frees the status that a call returned, and throws an Error with its content. Null is success.
void check(penstock_status* status);

// Throw an Error about a mistake of this rank alone: a wrong argument, or a call at the wrong
// moment.
[[noreturn]] void refuse_argument(const std::string& message);
[[noreturn]] void refuse_moment(const std::string& message);

// A view of text that lives as long as `text`.
inline penstock_str view(std::string_view text) {
  return {text.data(), text.size()};
}

// A sink for penstock_*_report. `text` is a std::string*, to which the sink appends `part`.
void take_text(void* text, penstock_str part);

// The place of memory: device type and device number, as in the C interface.
struct Place {
  std::int32_t device_type = PENSTOCK_DEVICE_CPU;
  std::int32_t device_id = 0;
  bool is_cpu() const { return device_type == PENSTOCK_DEVICE_CPU; }
  bool operator==(const Place&) const = default;
};

struct GradientSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint32_t dtype;
  Place place;
};

// A view of contiguous memory; `shape` is borrowed.
penstock_tensor tensor_view(void* data, const std::vector<std::int64_t>& shape, std::uint32_t dtype,
                            const Place& place = {});

// The set of one optimizer's gradients. Calls must come from one thread at a time, except
// penstock_gradient_ready and penstock_gradient_came.
class GradientSet {
 public:
  // Collective. agreement: lines that must be equal on all ranks of the set.
  GradientSet(penstock_runtime* runtime, std::string name,
              const std::vector<GradientSpec>& gradients, std::uint32_t flags,
              const std::string& scheme, const Ranks& ranks, const std::string& agreement = {});
  ~GradientSet() { destroy(); }
  GradientSet(const GradientSet&) = delete;
  GradientSet& operator=(const GradientSet&) = delete;

  const std::string& name() const { return name_; }
  bool alive() const { return handle_ != nullptr; }

  // Calls a function of the C interface with the set and `arguments`. Throws the Error that it
  // reports. Also throws if the set has been destroyed.
  template <typename Function, typename... Arguments>
  void call(Function function, Arguments... arguments) const {
    check(function(handle(), arguments...));
  }

  // The phase of the step (PENSTOCK_PHASE_*), and whether backward has completed a gradient since
  // the last wait for the step's results. A destroyed set reports PENSTOCK_PHASE_IDLE and false.
  struct Step {
    std::uint32_t phase = PENSTOCK_PHASE_IDLE;
    bool has_come = false;
  };
  Step step() const;
  // The gradients that are not handed in yet when backward is over. Hand them in, in this order.
  std::vector<std::uint64_t> rest() const;

  // Whether check_parameters_every of [runtime] asks for a comparison before the next step.
  bool comparison_due() const;

  // The state of compression on this rank, and the return to such a state.
  std::vector<std::uint8_t> save() const;
  void load(const std::vector<std::uint8_t>& state) const;

  Counters counters() const;
  std::string report() const;

  // Destroys the set. A second call does nothing.
  void destroy() noexcept;

 private:
  penstock_set* handle() const;

  std::string name_;
  std::size_t n_gradients_;
  penstock_set* handle_ = nullptr;
};

// A named operation under way. Its input and output memory must stay valid until this object is
// destroyed.
class Operation {
 public:
  Operation(penstock_runtime* runtime, const penstock_operation_declaration& declaration);

  void wait() { check(penstock_operation_wait(handle_.get())); }

  // The operation's own memory and its size in bytes. Call it after wait(), for an operation that
  // was declared without an output.
  std::pair<const void*, std::uint64_t> result() const;

 private:
  struct Release {
    void operator()(penstock_operation* operation) const { penstock_operation_release(operation); }
  };
  std::unique_ptr<penstock_operation, Release> handle_;
};

// Starts a broadcast: `tensor` on rank `root` is copied into `tensor` on every other rank of
// `ranks`. Collective.
Operation start_broadcast(penstock_runtime* runtime, const std::string& name,
                          const penstock_tensor& tensor, std::uint32_t root, const Ranks& ranks);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_DOOR_HPP
