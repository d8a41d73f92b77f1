// Buffers that notice when a plugin writes beside them, and the inputs of the tests.
#pragma once

#include <penstock/collective.h>

#include "core/base/status.hpp"
#include "core/fit/payload.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

// Zeroed bytes, aligned to 64, between two walls of known bytes.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(uint64_t bytes = 0);
  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }
  // False once a wall was written to.
  bool intact() const;
  std::string copy() const { return {static_cast<const char*>(data()), bytes_}; }

 private:
  std::unique_ptr<unsigned char[]> storage_;
  unsigned char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A payload with guarded sections.
class GuardedPayload {
 public:
  // Room for what the round planned, as encode finds it.
  void plan(const RoundNeed& round, int32_t rank);
  // A copy as a receiver finds it: each section holds just what was sent, with walls behind it.
  void receive(const RoundNeed& round, GuardedPayload& sent, int32_t rank);
  PayloadStorage& storage() { return storage_; }
  penstock_payload* c() { return storage_.c(); }
  // INTERNAL names the section beside which was written.
  Status check_walls() const;

 private:
  PayloadStorage storage_;
  std::vector<GuardedBuffer> buffers_;
};

// Gradients that are awkward in some way.
struct Shape {
  std::string label;  // "33x65"
  std::vector<int64_t> sizes;
  uint64_t numel() const;
};
const std::vector<Shape>& awkward_shapes();

enum class Input { heavy_tailed, zeros, spike };
inline constexpr Input kInputs[] = {Input::heavy_tailed, Input::zeros, Input::spike};
std::string_view input_name(Input input);
// Finite; a function of (input, rank, step, salt) only.
void fill_input(Input input, uint64_t rank, uint64_t step, uint64_t salt, float* values,
                uint64_t count);

// target = reduction(target, source), entry by entry, as a transport would. UNIMPLEMENTED for a
// dtype that no transport adds.
Status reduce(uint32_t dtype, uint32_t reduction, void* target, const void* source, uint64_t count);

// Fills the fields of an item that follow from its shape. Views and states are left alone.
void describe_item(penstock_item& item, const Shape& shape, std::string_view name, uint64_t index);
penstock_tensor float_tensor(const Shape& shape, void* data);

}  // namespace penstock::command
