// Decides for each gradient whether the result of a step was applied, from the frontend's reports
// on optimizers and gradients.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

class Outcome {
 public:
  enum class Moment { begins, ends, leaves_out };

  void resize(size_t n_gradients) { gradients_.resize(n_gradients); }
  // A step begins, with all gradients undecided. Reports up to the next begin() are about this
  // step.
  void begin();
  // [application] See runtime.h for these functions. `gone` may be empty: no result is gone.
  // `has_results`: a step has begun, and the optimizer uses its results.
  void optimizer(std::span<const uint64_t> gradients, std::span<const uint8_t> gone, Moment moment,
                 bool has_results);
  void results_gone(std::span<const uint8_t> gone);
  // True if a gradient is undecided and a call of `results_gone` would decide it.
  bool is_open() const;

  // Sets forgotten[i] to 1 if the result of gradient i was not applied, else to 0. `any_void`: the
  // step has a void bucket.
  void decide(bool any_void, std::span<uint8_t> forgotten) const;

 private:
  enum class Fate : uint8_t { open, applied, forgotten };
  struct Seen {
    bool has_optimizer = false;  // in this step or an earlier one
    bool is_inside = false;      // a step of the optimizer has begun and not ended
    bool looked_at = false;
    bool was_used = false;  // by a step of the optimizer that has ended
    Fate fate = Fate::open;
  };

  std::vector<Seen> gradients_;
};

}  // namespace penstock
