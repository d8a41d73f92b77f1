// A state tensor in two generations. A step writes the next generation; the end of the step makes
// it the current generation or drops it. So a forgotten step leaves the state bit for bit as it
// was, without any help from plugins.
//
// Threads: the engine makes the calls of a step; the thread that owns the set's plan makes all
// other calls, between jobs.
#pragma once

#include "core/state/state_memory.hpp"

#include <penstock/item.h>

#include <optional>
#include <vector>

namespace penstock {

struct Generations {
  Generations(uint64_t rows, uint64_t cols, uint32_t dtype, StateMemory memory)
      : rows(rows), cols(cols), dtype(dtype), memory(std::move(memory)) {}

  uint64_t rows = 0, cols = 0;
  uint32_t dtype = 0;
  // `other` is set only if steps may be forgotten.
  StateMemory memory;
  std::optional<StateMemory> other;
  bool other_is_current = false;
  // Bytes of the next generation that the step under way writes or has copied.
  struct Range {
    uint64_t first, end;
  };
  std::vector<Range> written;

  StateMemory& current() { return other_is_current ? *other : memory; }
  const StateMemory& current() const { return other_is_current ? *other : memory; }
  StateMemory& next() { return other && !other_is_current ? *other : memory; }
  uint64_t bytes() const { return memory.bytes() * (other ? 2 : 1); }

  bool is_written(const Range& range) const;
  // Ends the step: copies to the next generation all bytes that the step has not written there, and
  // makes this generation current.
  Status advance();
  void drop() { written.clear(); }

 private:
  Status copy(const Range& range) {
    return next().copy_from(current(), range.first, range.end - range.first);
  }
};

// The part of a tensor that one item sees: the whole tensor, or its range of elements. Its address
// does not change while the store lives.
class StateView {
 public:
  StateView(Generations& tensor, const penstock_state_declaration& declared, uint64_t first_byte);
  StateView(const StateView&) = delete;
  StateView& operator=(const StateView&) = delete;

  // Between steps the current generation; in a step, after open, the next generation.
  const penstock_tensor* c() const { return &c_; }
  // In a step: this part of the current generation, or null if there is only one generation.
  const penstock_tensor* before() const { return tensor_.other ? &before_ : nullptr; }

  // The step is about to use the state: copies the current generation to the next.
  Status open();
  // Instead of open(), if the caller writes every element, computed from before().
  void open_unwritten();
  // Copies after open_unwritten(), if the caller did not write the elements.
  Status copy_after_all();
  // The step has ended or is dropped.
  void close();
  const Generations& tensor() const { return tensor_; }

 private:
  Generations& tensor_;
  const Generations::Range range_;
  int64_t shape_[2];
  penstock_tensor c_{}, before_{};
};

}  // namespace penstock
