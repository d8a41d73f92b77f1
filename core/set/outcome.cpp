#include "core/set/outcome.hpp"

#include <algorithm>

namespace penstock {

void Outcome::begin() {
  for (Seen& gradient : gradients_) {
    gradient.fate = Fate::open;
    gradient.looked_at = gradient.was_used = false;
  }
}

void Outcome::optimizer(std::span<const uint64_t> gradients, std::span<const uint8_t> gone,
                        Moment moment, bool has_results) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    Seen& gradient = gradients_[gradients[i]];
    gradient.has_optimizer = true;
    gradient.is_inside = moment == Moment::begins;
    if (!has_results) continue;
    const bool is_gone = !gone.empty() && gone[i] != 0;
    // A used result stays used, even if later reports differ.
    if (moment == Moment::leaves_out && !gradient.was_used)
      gradient.fate = Fate::forgotten;
    else if (gradient.fate == Fate::open)
      gradient.fate = is_gone ? Fate::forgotten : Fate::applied;
    if (moment == Moment::ends) gradient.was_used = gradient.fate == Fate::applied;
  }
}

void Outcome::results_gone(std::span<const uint8_t> gone) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    Seen& gradient = gradients_[i];
    if (gradient.fate != Fate::open || gradient.is_inside) continue;
    gradient.looked_at = true;
    if (gone[i] != 0 && gradient.has_optimizer) gradient.fate = Fate::forgotten;
  }
}

// A gradient without a known optimizer is open too, because the frontend's inspection may find one.
bool Outcome::is_open() const {
  return std::any_of(gradients_.begin(), gradients_.end(), [](const Seen& gradient) {
    return gradient.fate == Fate::open && !gradient.is_inside && !gradient.looked_at;
  });
}

void Outcome::decide(bool any_void, std::span<uint8_t> forgotten) const {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const Seen& gradient = gradients_[i];
    const bool unseen = gradient.fate == Fate::open && !gradient.has_optimizer;
    forgotten[i] = gradient.fate == Fate::forgotten || (unseen && any_void) ? 1 : 0;
  }
}

}  // namespace penstock
