#include "core/set/outcome.hpp"

namespace penstock {

void Outcome::begin() {
  for (Seen& gradient : gradients_) {
    gradient.fate = Fate::open;
    gradient.looked_at = false;
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
    if (moment == Moment::leaves_out)
      gradient.fate = Fate::forgotten;
    else if (gradient.fate == Fate::open)  // what was used stays used, whatever comes later
      gradient.fate = is_gone ? Fate::forgotten : Fate::applied;
  }
}

void Outcome::results_gone(std::span<const uint8_t> gone) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    Seen& gradient = gradients_[i];
    if (gradient.fate != Fate::open || gradient.is_inside || !gradient.has_optimizer) continue;
    gradient.looked_at = true;
    if (gone[i] != 0) gradient.fate = Fate::forgotten;
  }
}

bool Outcome::is_open() const {
  for (const Seen& gradient : gradients_)
    if (gradient.fate == Fate::open && !gradient.is_inside && !gradient.looked_at) return true;
  return false;
}

std::vector<uint8_t> Outcome::forgotten(bool any_void) const {
  std::vector<uint8_t> all;
  for (const Seen& gradient : gradients_) {
    const bool unseen = gradient.fate == Fate::open && !gradient.has_optimizer;
    all.push_back(gradient.fate == Fate::forgotten || (unseen && any_void));
  }
  return all;
}

}  // namespace penstock
