// One gradient of a set: what was declared, and where it stands in the current step.
#pragma once

#include "core/base/buffer.hpp"
#include "core/bucket/on_device/sides.hpp"
#include "core/fit/gradient.hpp"

namespace penstock {

class WorkPlace;

struct Gradient : DeclaredGradient {
  explicit Gradient(DeclaredGradient declared) : DeclaredGradient(std::move(declared)) {}

  // What a replaced memory left over, in true units, to be added to the next step's gradient;
  // mostly empty. [engine]
  Buffer carry;
  bool has_carry = false;
  bool carry_stays = false;  // while a step ends: some of it still waits

  // Guarded by the set's mutex.
  enum class Progress { open, ready, done };
  Progress progress = Progress::open;
  uint32_t pieces_left = 0;  // pieces of this step whose bucket has not ended
  uint32_t waiters = 0;      // threads that wait for it
  double learning_rate = 0;
  bool waited_for = false;  // or a stream was made to wait, in this step
  uint64_t ready_us = 0;    // on a device: when it was seen to have arrived
  uint64_t place = 0;       // in the order in which gradients were handed in, in the last step

  WorkPlace* work_place = nullptr;  // where it is worked on; null: on the host
  GradientOnDevice on_device;

  // Written by the application before it makes a bucket ready; read by the engine after.
  void* data = nullptr;  // contiguous, numel elements of dtype: its own storage, or the mirror
  Buffer unclaimed;      // stands in where the application gave no storage
};

}  // namespace penstock
