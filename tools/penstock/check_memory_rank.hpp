// Steps of a memory on one simulated rank, with a compressor that takes out every third entry, or
// all of them.
#pragma once

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
  // All that is kept arrives in out; states of mass are zero after it.
  Status drain();
  // Indices out of range and wrong counts: an error, and nothing written beside the buffers.
  Status faulty_give_back();

  const std::vector<double>& compressed() const { return compressed_; }
  bool works_on_gradient() const { return need_.work_is == PENSTOCK_WORK_IS_GRAD; }

 private:
  explicit MemoryRank(const Shape& shape) : shape_(shape) {}
  Status plan(const penstock_compressor_need& compressor);
  Status check_walls() const;
  // What the published form makes of states and gradient; empty where the form is opaque.
  std::vector<double> expected_work() const;
  float* work() const { return static_cast<float*>(item_.work.data); }

  const Shape& shape_;
  std::unique_ptr<MemoryInstance> instance_;
  penstock_item item_{};
  const penstock_item* items_[1] = {&item_};
  penstock_memory_need need_{};
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
};

}  // namespace penstock::command
