// Steps of a memory on one simulated rank, with a compressor that takes out every third entry, or
// all of them.
#pragma once

#include "core/fit/needs.hpp"
#include "tools/penstock/check_guard.hpp"
#include "tools/penstock/checks.hpp"

#include <deque>

namespace penstock::command {

class MemoryRank {
 public:
  // `lossless`: the item's compressor loses nothing.
  static Result<std::unique_ptr<MemoryRank>> make(const Subject& subject, const Shape& shape,
                                                  bool lossless);

  // measure and compensate, held against the form that the memory publishes.
  Status compensate(uint64_t index, Input input, double grad_scale);
  // The compressor's part: what is sent leaves work. Dense or sparse.
  Status take(bool dense);
  Status record();
  Status give_back();
  Status finish();
  // What work holds between steps is what was compressed less what was sent for good.
  Status check_kept() const;
  Status check_finite() const;
  // All that is kept arrives in out; states of mass are zero after it. A shift is owed to nobody
  // and need not arrive.
  Status drain();

  // A memory that compresses the difference from a shift (EF21, DIANA) has another law: not work,
  // but the shift moves, by what was sent. After record: whether some state did that.
  bool found_shift();
  // As `other` has found it, with another gradient.
  void take_shift(const MemoryRank& other) {
    shift_ = other.shift_;
    shift_share_ = other.shift_share_;
  }
  // After record, or after give_back: the shift is where what was sent has moved it, or back.
  Status check_shift(bool given_back) const;
  // Indices out of range and wrong counts: an error, and nothing written beside the buffers.
  Status faulty_give_back();

  const std::vector<double>& compressed() const { return compressed_; }
  bool has_give_back() const {
    return PENSTOCK_HAS_MEMBER(instance_->table(), penstock_memory, give_back);
  }
  bool works_on_gradient() const { return need().work_is == PENSTOCK_WORK_IS_GRAD; }

 private:
  explicit MemoryRank(const Shape& shape) : shape_(shape) {}
  Status plan(bool lossless);
  Status check_walls() const;
  bool stands_for_gradient(size_t state) const;  // float32 of its size, and not work
  const penstock_memory_need& need() const { return needs_[0].c; }
  bool keeps_in_work() const { return need().work_is == PENSTOCK_WORK_IS_STATE; }
  // What the published form makes of states and gradient; empty where the form is opaque.
  std::vector<double> expected_work() const;
  float* work() const { return static_cast<float*>(item_.work.data); }

  const Shape& shape_;
  std::unique_ptr<MemoryInstance> instance_;
  penstock_item item_{};
  const penstock_item* items_[1] = {&item_};
  MemoryNeeds needs_;  // of the one item
  penstock_step step_{};
  penstock_exec exec_{};
  GuardedBuffer grad_, scratch_work_;
  std::vector<GuardedBuffer> states_;
  std::vector<uint32_t> classes_;
  std::deque<penstock_tensor> tensors_;
  std::vector<const penstock_tensor*> pointers_;
  RoundNeed sparse_round_, dense_round_;
  GuardedPayload taken_;
  bool dense_ = false;
  bool keeps_ = false;              // declares states of mass
  std::vector<double> compressed_;  // work after compensate
  std::vector<double> kept_;        // what must be left of it
  std::vector<double> sent_;
  std::vector<std::vector<float>> before_;  // states of the gradient's size, after compensate
  int shift_ = -1;                          // index of the state that is one
  double shift_share_ = 0;                  // how much of what is sent it moves by
};

}  // namespace penstock::command
