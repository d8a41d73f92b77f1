// A state tensor in two generations: a step writes the next one, and its end makes that the current
// one, or drops it. So what a forgotten step has changed is, to the bit, as it was, whatever
// plugins have done; no plugin takes part.
//
// Threads: a step's calls come from the engine; all else from who owns the set's plan, between
// jobs.
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
  // The second one only where steps may be forgotten.
  StateMemory memory;
  std::optional<StateMemory> other;
  bool other_is_current = false;
  // Of the next generation, bytes that the step under way writes, or has copied.
  struct Range {
    uint64_t first, end;
  };
  std::vector<Range> written;

  StateMemory& current() { return other_is_current ? *other : memory; }
  const StateMemory& current() const { return other_is_current ? *other : memory; }
  StateMemory& next() { return other && !other_is_current ? *other : memory; }
  uint64_t bytes() const { return memory.bytes() * (other ? 2 : 1); }

  bool is_written(const Range& range) const;
  // The step is over: what it has not written of the next generation is copied, and that is the
  // current one.
  Status advance();
  void drop() { written.clear(); }

 private:
  Status copy(const Range& range) {
    return next().copy_from(current(), range.first, range.end - range.first);
  }
};

// What one item sees of a tensor: all of it, or its range of elements. Stays where it is as long as
// the store.
class StateView {
 public:
  StateView(Generations& tensor, const penstock_state_declaration& declared, uint64_t first_byte);
  StateView(const StateView&) = delete;
  StateView& operator=(const StateView&) = delete;

  // Between steps the current generation; in a step, once it is open, the next one.
  const penstock_tensor* c() const { return &c_; }
  // In a step: the same of the current generation, or null where there is one only.
  const penstock_tensor* before() const { return tensor_.other ? &before_ : nullptr; }

  // The step is about to use it. A copy of the current generation is made in the next one.
  Status open();
  // Instead: whoever calls writes every element, from before().
  void open_unwritten();
  // Who has not written after all.
  Status copy_after_all();
  // The step is over, or is dropped.
  void close();
  const Generations& tensor() const { return tensor_; }

 private:
  Generations& tensor_;
  const Generations::Range range_;
  int64_t shape_[2];
  penstock_tensor c_{}, before_{};
};

}  // namespace penstock
