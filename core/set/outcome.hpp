// What became of a step's results, gradient by gradient: decided from what frontends see of the
// optimizers and of the gradients.
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
  // A step begins: nothing of it is decided. What is told between is of this step.
  void begin();
  // [application] See runtime.h for these. `gone` may be empty: none is. `has_results`: a step has
  // begun, whose results the optimizer uses.
  void optimizer(std::span<const uint64_t> gradients, std::span<const uint8_t> gone, Moment moment,
                 bool has_results);
  void results_gone(std::span<const uint8_t> gone);
  // It is not known of some gradient whether it was applied, and `results_gone` would tell.
  bool is_open() const;

  // forgotten[i] becomes 1 where the result of gradient i was not applied, else 0. `any_void`: of
  // the step.
  void decide(bool any_void, std::span<uint8_t> forgotten) const;

 private:
  enum class Fate : uint8_t { open, applied, forgotten };
  struct Seen {
    bool has_optimizer = false;  // in this step or an earlier one
    bool is_inside = false;      // a step of that optimizer has begun and not ended
    bool looked_at = false;
    bool was_used = false;  // by a step that has ended
    Fate fate = Fate::open;
  };

  std::vector<Seen> gradients_;
};

}  // namespace penstock
