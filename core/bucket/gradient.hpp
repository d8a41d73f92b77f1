// One gradient of a set: its declaration, and its progress in the current step.
#pragma once

#include "core/base/buffer.hpp"
#include "core/bucket/on_device/sides.hpp"
#include "core/fit/gradient.hpp"

namespace penstock {

class WorkPlace;

struct Gradient : DeclaredGradient {
  explicit Gradient(DeclaredGradient declared) : DeclaredGradient(std::move(declared)) {}

  // The values that a replaced memory left, in true units. They are added to the next step's
  // gradient. Mostly empty. [engine]
  Buffer carry;
  bool has_carry = false;
  bool carry_stays = false;  // while a step ends: part of the carry is not applied yet

  // Guarded by the set's mutex.
  enum class Progress { open, ready, done };
  Progress progress = Progress::open;
  uint32_t pieces_left = 0;  // pieces of this step whose bucket has not ended
  uint32_t waiters = 0;      // threads that wait for it
  double learning_rate = 0;
  bool waited_for = false;  // in this step, by the application or by a stream
  uint64_t ready_us = 0;    // on a device: when it was seen to have arrived
  uint64_t place = 0;       // in the order in which the last step received gradients

  WorkPlace* work_place = nullptr;  // where it is compressed; null: on the host
  GradientOnDevice on_device;

  // Written by the application before it makes a bucket ready; read by the engine after.
  void* data = nullptr;  // contiguous, numel elements of dtype: its storage or its staging buffer
  Buffer unclaimed;      // zeros, used if the application gave no storage
};

}  // namespace penstock
