#include "selecting.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace espresso {

namespace {

// So much shorter is no rounding.
bool is_less(double a_us, double b_us) {
  return a_us < b_us * (1 - 1e-9);
}

class Search {
 public:
  explicit Search(const Strategies& strategies) : strategies_(strategies) {}

  Selection run() {
    begin_with_dense();
    const Selection uniform = best_uniform();
    // What is hidden behind backward is told apart once more when the rest is shorter.
    for (int pass = 0; pass < 2 && best_.exposed_us > 0; ++pass)
      if (!improve()) break;
    if (is_less(uniform.exposed_us, best_.exposed_us)) {
      best_.strategy = uniform.strategy;
      best_.exposed_us = uniform.exposed_us;
    }
    return best_;
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

  bool improve() {
    bool any = false;
    const size_t hidden = strategies_.n_hidden(best_.strategy);
    std::map<int, std::vector<size_t>, std::greater<>> classes;  // by size, ready last first
    for (size_t unit = strategies_.units().size(); unit > hidden; --unit)
      classes[std::bit_width(strategies_.units()[unit - 1].numel)].push_back(unit - 1);
    for (auto& [size, units] : classes) any = improve(std::move(units)) || any;
    return any;
  }

  // All of a class together; where that does not help, the half and the quarter ready last.
  bool improve(std::vector<size_t> units) {
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
  Selection best_;
  size_t dense_way_ = 0;
};

}  // namespace

Selection select(const Strategies& strategies) {
  return Search(strategies).run();
}

}  // namespace espresso
