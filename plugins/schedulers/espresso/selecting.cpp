#include "selecting.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace espresso {

namespace {

// How many units of a class are tried one by one, or exchange their ways. The time of a forecast
// grows with the number of units, so fewer are tried if there are many units: all in up to ten
// units, two from 256 units on.
size_t most_of(size_t n_units, size_t work, size_t most) {
  return std::clamp(work / std::max<size_t>(n_units, 1), size_t{2}, most);
}

// Whether a is shorter than b by more than rounding errors.
bool is_less(double a_us, double b_us) {
  return a_us < b_us * (1 - 1e-9);
}

class Search {
 public:
  explicit Search(const Strategies& strategies)
      : strategies_(strategies),
        most_alone_(most_of(strategies.units().size(), 512, 64)),
        most_swapped_(most_of(strategies.units().size(), 128, 12)) {}

  Selection run() {
    begin_with_dense();
    const Selection uniform = best_uniform();
    improve_twice();
    Selection from_dense = best_;
    // The greedy search from dense may not reach one way for all units, so a second search begins
    // there.
    best_.strategy = uniform.strategy;
    best_.exposed_us = uniform.exposed_us;
    improve_twice();
    from_dense.n_tried = best_.n_tried;
    return is_less(best_.exposed_us, from_dense.exposed_us) ? best_ : from_dense;
  }

 private:
  double exposed(const Strategy& strategy) {
    ++best_.n_tried;
    return strategies_.exposed_us(strategy);
  }

  void begin_with_dense() {
    for (size_t way = 0; way < strategies_.n_dense(); ++way) {
      Strategy strategy = strategies_.all(way, 0);
      const double us = exposed(strategy);
      if (way != 0 && !is_less(us, best_.exposed_us)) continue;
      dense_way_ = way;
      best_.strategy = std::move(strategy);
      best_.exposed_us = us;
    }
    best_.dense_us = best_.exposed_us;
  }

  Selection best_uniform() {
    Selection uniform = best_;
    for (size_t way = strategies_.n_dense(); way < strategies_.ways().size(); ++way) {
      Strategy strategy = strategies_.all(way, dense_way_);
      const double us = exposed(strategy);
      if (!is_less(us, uniform.exposed_us)) continue;
      uniform.strategy = std::move(strategy);
      uniform.exposed_us = us;
    }
    return uniform;
  }

  // Improves twice. The second time it also tries the units that are hidden by then, because their
  // encoding may delay others.
  void improve_twice() {
    if (best_.exposed_us > 0 && improve(strategies_.n_hidden(best_.strategy)) &&
        best_.exposed_us > 0)
      improve(0);
  }

  // Improves all units but the first `n_left`.
  bool improve(size_t n_left) {
    bool any = false;
    std::map<int, std::vector<size_t>, std::greater<>> classes;  // by size, ready last first
    for (size_t unit = strategies_.units().size(); unit > n_left; --unit)
      classes[std::bit_width(strategies_.units()[unit - 1].numel)].push_back(unit - 1);
    for (auto& [size, units] : classes) any = improve_class(units) || any;
    return any;
  }

  // Tries all units of a class together; if this does not help, the half and then the quarter that
  // is ready last. Then it tries single units: some units of equal size may be hidden, or fill a
  // free link, and others may not.
  bool improve_class(const std::vector<size_t>& units) {
    bool any = improve_parts(units);
    if (units.size() == 1) return any;
    for (size_t i = 0; i < std::min(units.size(), most_alone_); ++i)
      any = improve_together({units[i]}) || any;
    return improve_by_swaps(units) || any;
  }

  // Tries which of two units of equal size should have the way with the longer coding, because
  // their order matters.
  bool improve_by_swaps(const std::vector<size_t>& units) {
    bool any = false;
    for (size_t i = 0; i < std::min(units.size(), most_swapped_); ++i)
      for (size_t j = 0; j < i; ++j) {
        Strategy strategy = best_.strategy;
        std::swap(strategy[units[i]], strategy[units[j]]);
        if (strategy == best_.strategy || !strategies_.takes(units[i], strategy[units[i]]) ||
            !strategies_.takes(units[j], strategy[units[j]]))
          continue;
        const double us = exposed(strategy);
        if (!is_less(us, best_.exposed_us)) continue;
        best_.strategy = std::move(strategy);
        best_.exposed_us = us;
        any = true;
      }
    return any;
  }

  bool improve_parts(std::vector<size_t> units) {
    for (const size_t part : {1, 2, 4}) {
      if (part > units.size()) return false;
      units.resize((units.size() + (part > 1 ? 1 : 0)) / (part > 1 ? 2 : 1));
      if (improve_together(units)) return true;
    }
    return false;
  }

  bool improve_together(const std::vector<size_t>& units) {
    Strategy shortest;
    for (size_t way = 0; way < strategies_.ways().size(); ++way) {
      Strategy strategy = best_.strategy;
      bool changes = false;
      for (const size_t unit : units) {
        if (!strategies_.takes(unit, way) || strategy[unit] == way) continue;
        strategy[unit] = way;
        changes = true;
      }
      if (!changes) continue;
      const double us = exposed(strategy);
      if (!is_less(us, best_.exposed_us)) continue;
      best_.exposed_us = us;
      shortest = std::move(strategy);
    }
    if (shortest.empty()) return false;
    best_.strategy = std::move(shortest);
    return true;
  }

  const Strategies& strategies_;
  const size_t most_alone_;
  const size_t most_swapped_;
  Selection best_;
  size_t dense_way_ = 0;
};

}  // namespace

Selection select(const Strategies& strategies) {
  return Search(strategies).run();
}

}  // namespace espresso
