// The C door as C++ sees it: statuses become exceptions, handles have owners. Knows nothing of
// torch.
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

// Throws Error for a status that a call gave, and frees it. Null is success.
void check(penstock_status* status);

// What is wrong on this rank alone: an argument, or the moment of a call.
[[noreturn]] void refuse_argument(const std::string& message);
[[noreturn]] void refuse_moment(const std::string& message);

// A view of text that lives as long as `text`.
inline penstock_str view(std::string_view text) {
  return {text.data(), text.size()};
}

// A sink for penstock_*_report and what it gives.
void take_text(void* text, penstock_str part);

// Where memory lies, as the door says it.
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

// The gradients of one optimizer. Calls come from one thread at a time, but for gradient_ready.
class GradientSet {
 public:
  // Collective.
  GradientSet(penstock_runtime* runtime, std::string name,
              const std::vector<GradientSpec>& gradients, std::uint32_t flags,
              const std::string& scheme, const Ranks& ranks);
  ~GradientSet() { destroy(); }
  GradientSet(const GradientSet&) = delete;
  GradientSet& operator=(const GradientSet&) = delete;

  const std::string& name() const { return name_; }
  bool alive() const { return handle_ != nullptr; }

  // Calls a function of the door with the set and `arguments`. Throws what it says, and for a set
  // that is gone.
  template <typename Function, typename... Arguments>
  void call(Function function, Arguments... arguments) const {
    check(function(handle(), arguments...));
  }

  // Where the step stands (PENSTOCK_PHASE_*), and whether backward has completed a gradient since
  // its results were last waited for. Of a set that is gone: nothing is under way.
  struct Step {
    std::uint32_t phase = PENSTOCK_PHASE_IDLE;
    bool has_come = false;
  };
  Step step() const;
  // What is still to be handed in when backward is over, in this order.
  std::vector<std::uint64_t> rest() const;

  // Ends the set; twice is fine.
  void destroy() noexcept;

 private:
  penstock_set* handle() const;

  std::string name_;
  std::size_t n_gradients_;
  penstock_set* handle_ = nullptr;
};

// A named operation under way; the memory that it was given stays until it is released.
class Operation {
 public:
  Operation(penstock_runtime* runtime, const penstock_operation_declaration& declaration);

  void wait() { check(penstock_operation_wait(handle_.get())); }

  // After wait(), without an output: the operation's own memory, and its bytes.
  std::pair<const void*, std::uint64_t> result() const;

 private:
  struct Release {
    void operator()(penstock_operation* operation) const { penstock_operation_release(operation); }
  };
  std::unique_ptr<penstock_operation, Release> handle_;
};

// Starts sending what `tensor` shows on `root` into what it shows on the others of `ranks`.
// Collective.
Operation start_broadcast(penstock_runtime* runtime, const std::string& name,
                          const penstock_tensor& tensor, std::uint32_t root, const Ranks& ranks);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_DOOR_HPP
