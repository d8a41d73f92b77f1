// A threshold that serves several steps: ADTopk remembers it from a gradient's last exact
// selection, and adapts it after the next exact selection. All functions are constexpr, for the CPU
// and for CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::kernels {

// It is stored as five floats.
struct ReusedThreshold {
  float threshold;  // the smallest magnitude that was selected
  float tolerance;  // a change above it shortens the interval
  float interval;   // steps for which a threshold serves; 0: none was found yet
  float age;        // steps since the threshold was found
  float settled;    // 1 if the last change was below the tolerance

  static constexpr uint64_t kFloats = 5;
  static constexpr ReusedThreshold load(const float* state) {
    return {state[0], state[1], state[2], state[3], state[4]};
  }
  constexpr void store(float* state) const {
    const float fields[kFloats] = {threshold, tolerance, interval, age, settled};
    for (uint64_t i = 0; i < kFloats; ++i) state[i] = fields[i];
  }

  // Whether to try the threshold in this step.
  constexpr bool serves(bool warms_up) const { return !is_first(warms_up) && age < interval; }

  // Takes the result of an exact selection, which ran because the threshold did not serve or served
  // badly; in the second case the interval stays. `smallest` is the least selected magnitude.
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
  // A threshold that hardly moved serves longer; a threshold that jumped serves for fewer steps.
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
