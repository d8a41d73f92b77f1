// A threshold that serves several steps: what ADTopk remembers of a gradient's last exact
// selection, and what it learns from the next one. Constant expressions, for the CPU and CUDA
// alike.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::kernels {

// Kept as five floats.
struct ReusedThreshold {
  float threshold;  // the smallest magnitude that was selected
  float tolerance;  // changes of the threshold are judged by it
  float interval;   // steps for which a threshold serves; 0: none was found yet
  float age;        // steps since it was found
  float settled;    // 1 where the last change was below the tolerance

  static constexpr uint64_t kFloats = 5;
  static constexpr ReusedThreshold load(const float* state) {
    return {state[0], state[1], state[2], state[3], state[4]};
  }
  constexpr void store(float* state) const {
    const float fields[kFloats] = {threshold, tolerance, interval, age, settled};
    for (uint64_t i = 0; i < kFloats; ++i) state[i] = fields[i];
  }

  // Whether it is to be tried in this step.
  constexpr bool serves(bool warms_up) const { return !is_first(warms_up) && age < interval; }

  // An exact selection took the place of what does not serve, or served badly, in which case it
  // says nothing about the interval. `smallest` is the least magnitude of it.
  constexpr void learn(float smallest, bool warms_up, float first_interval) {
    if (is_first(warms_up))
      interval = first_interval;
    else if (age >= interval)
      adapt(smallest);
    threshold = smallest;
    tolerance = smallest / 10;
    age = 0;
  }

 private:
  constexpr bool is_first(bool warms_up) const { return warms_up || interval == 0; }
  // One that has hardly moved serves longer, one that jumped less long.
  constexpr void adapt(float smallest) {
    constexpr float kShortest = 5;
    const float change = threshold < smallest ? smallest - threshold : threshold - smallest;
    const float shortest = std::min(kShortest, interval);
    if (change < tolerance) {
      interval += change < tolerance / 2 ? 2 : 1;
      settled = 1;
    } else if (change > tolerance) {
      interval = std::max(interval - (change > 2 * tolerance ? 2 : 1), shortest);
      settled = 0;
    }
  }
};

}  // namespace penstock::kernels
