// Steps of a memory on one simulated rank, without a compressor: the rig takes out every third
// entry, or half of all of them.
//
//   MemoryRig rig(load_plugin("build/memory-mine.so"), {}, {1000}, false);
//   rig.compensate(0, heavy_tailed(1000, 1), 1);  // held against the form that the memory
//   publishes rig.take(false); rig.record(); rig.finish(); rig.promise_kept();  // what was
//   compressed less what was sent
//
// Every call throws BrokenPromise for an error and for a write beside the buffers.
#pragma once

#include <functional>
#include <testing/item.hpp>

namespace penstock::test {

class MemoryRig {
 public:
  // `lossless`: the item's compressor loses nothing. Throws as ask_needs does.
  MemoryRig(const LoadedPlugin& memory, const OptionSettings& options, const Shape& shape,
            bool lossless);

  // measure and compensate; `gradient` in true units.
  void compensate(uint64_t step, const std::vector<float>& gradient, double grad_scale);
  // The compressor's part: what is sent leaves work. Dense or sparse.
  void take(bool dense);
  // A collective refuses some of the entries, where it may: what record then gets is the rest.
  void refuse();
  void record();
  // The bucket is void: all that was taken comes back, and record and finish are not called.
  void give_back();
  void finish();
  // The step's results are thrown away: every state is what it was before compensate.
  void forget();
  // What work holds between steps is what was compressed less what was sent for good.
  void promise_kept() const;
  void promise_finite() const;
  // All that is kept arrives in out; states of mass are zero after it. A shift is owed to nobody
  // and need not arrive.
  void drain();

  // A memory that compresses the difference from a shift (EF21, DIANA) has another law: not work,
  // but the shift moves, by what was sent. After record: whether some state did that.
  bool found_shift();
  // As `other` has found it, with another gradient.
  void take_shift(const MemoryRig& other);
  // After record: the shift is where what was sent has moved it; of a void bucket, where it was.
  void promise_shift(bool is_void) const;
  // Indices out of range and wrong counts: an error, and nothing written beside the buffers.
  void faulty_give_back();

  uint64_t numel() const { return item_.c.numel; }
  const std::vector<double>& compressed() const { return compressed_; }
  std::vector<float> out() const { return item_.grad.copy(); }
  bool says_it_shifts() const { return (need().flags & PENSTOCK_MEMORY_SHIFTS) != 0; }
  bool works_on_gradient() const { return need().work_is == PENSTOCK_WORK_IS_GRAD; }

 private:
  void call(const std::string& name, const std::function<Outcome()>& made);
  bool shift_moved(bool is_void, std::string& what) const;
  bool stands_for_gradient(uint64_t state) const;  // float32 of its size, and not work
  const penstock_memory_need& need() const { return planned_.c; }
  bool keeps_in_work() const { return need().work_is == PENSTOCK_WORK_IS_STATE; }
  const float* state(uint64_t index) const;
  // What the published form makes of states and gradient; empty where the form is opaque.
  std::vector<double> expected_work() const;

  MemoryInstance memory_;
  SimulatedItem item_;
  ItemViews items_;
  PlannedMemory planned_;
  penstock_step step_{};
  penstock_exec exec_ = cpu_exec();
  PayloadPointer taken_;
  std::vector<std::vector<unsigned char>> states_before_;  // compensate
  bool keeps_ = false;                                     // declares states of mass
  std::vector<double> compressed_;                         // work after compensate
  std::vector<double> kept_;                               // what must be left of it
  std::vector<double> sent_;
  std::vector<std::vector<float>> before_;  // states of the gradient's size, after compensate
  int64_t shift_ = -1;                      // index of the state that is one
  double shift_share_ = 0;                  // how much of what is sent it moves by
};

}  // namespace penstock::test
