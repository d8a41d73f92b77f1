// Steps of a memory on one simulated rank, without a compressor: in its place the rig takes every
// third entry out of work, or half of every entry.
//
//   MemoryRig rig(load_plugin("build/memory-mine.so"), {}, {1000}, false);
//   rig.compensate(0, heavy_tailed(1000, 1), 1);  // compared with the memory's published form
//   rig.take(false);
//   rig.record();
//   rig.finish();
//   rig.promise_kept();  // work is the compressed values minus the sent values
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
  // Plays the compressor: takes the sent values out of work, as a dense or sparse payload.
  void take(bool dense);
  // The collective refuses some entries if the payload is sparse and work keeps a rest; record then
  // gets the other entries.
  void refuse();
  void record();
  // The bucket is void: all taken values return, and record and finish are not called.
  void give_back();
  void finish();
  // The step's results are discarded: every state is restored to its content before compensate.
  void forget();
  // Checks that work holds, between steps, the compressed values minus the values finally sent.
  void promise_kept() const;
  void promise_finite() const;
  // Drains: all kept values must arrive in out, and states of mass must be zero afterwards. A shift
  // belongs to no result and need not arrive.
  void drain();

  // A memory that compresses the difference from a shift (EF21, DIANA) has another rule: the shift,
  // not work, changes by the sent values. After record: whether some state changed in this manner.
  bool found_shift();
  // Takes the shift that `other` has found with another gradient.
  void take_shift(const MemoryRig& other);
  // After record: checks that the shift has changed by the sent values; if void, not at all.
  void promise_shift(bool is_void) const;
  // Calls give_back with indices out of range and wrong counts: the memory must return an error and
  // must not write beside the buffers.
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
  // The work that the published form gives for states and gradient; empty if the form is opaque.
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
  std::vector<double> kept_;                               // the part that must remain
  std::vector<double> sent_;
  std::vector<std::vector<float>> before_;  // states of the gradient's size, after compensate
  int64_t shift_ = -1;                      // index of the state that is the shift
  double shift_share_ = 0;                  // the part of the sent values by which it changes
};

}  // namespace penstock::test
