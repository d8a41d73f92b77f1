#include "bounds.hpp"

namespace optimal {

namespace {

// The most ways per place. More are seldom needed. If there are more, two ways are joined into a
// way that is below both, so that the results stay lower bounds.
constexpr size_t kMostWays = 8;

}  // namespace

Bounds::Bounds(const Runs& runs, double target)
    : runs_(runs),
      ways_(runs.n_parts() + 1),
      least_work_(runs.n_parts() + 1, kNever),
      least_exchange_(least_work_) {
  least_work_.back() = least_exchange_.back() = 0;
  for (uint32_t begin = runs.n_parts(); begin > 0; --begin) {
    add_up(begin - 1);
    extend(begin - 1, target);
  }
}

void Bounds::add_up(uint32_t begin) {
  double& work = least_work_[begin];
  double& exchange = least_exchange_[begin];
  for (uint32_t end = begin + 1; end <= runs_.n_parts(); ++end) {
    const Run& run = runs_.at(begin, end);
    work = std::min(work, run.encode + run.decode + least_work_[end]);
    exchange = std::min(exchange, run.exchange + least_exchange_[end]);
  }
}

void Bounds::extend(uint32_t begin, double target) {
  // Engine and link cannot be free before the gradients before this place are ready.
  const double free_at = begin == 0 ? 0 : runs_.at(begin - 1, begin).ready;
  const auto add = [&](const Way& way) {
    if (std::max({free_at + way.from_engine, free_at + way.from_link, way.from_ready}) < target)
      keep(ways_[begin], way);
  };
  const uint32_t last = runs_.n_parts();
  for (uint32_t end = begin + 1; end <= last; ++end) {
    const Run& run = runs_.at(begin, end);
    if (is_too_long(begin, run.ready + run.encode, target)) break;
    if (end == last) {
      const double from_link = run.exchange + run.decode;
      add({run.encode + from_link, from_link, run.ready + run.encode + from_link, end, 0});
      continue;
    }
    for (uint32_t next = 0; next < ways_[end].size(); ++next) {
      const Way& behind = ways_[end][next];
      const double from_link = run.exchange + behind.from_link;
      const double from_engine = run.encode + std::max(behind.from_engine, from_link);
      add({from_engine, from_link, std::max(behind.from_ready, run.ready + from_engine), end,
           next});
    }
  }
}

void Bounds::keep(std::vector<Way>& ways, const Way& way) {
  const auto is_below = [](const Way& a, const Way& b) {
    return a.from_engine <= b.from_engine && a.from_link <= b.from_link &&
           a.from_ready <= b.from_ready;
  };
  for (const Way& other : ways)
    if (is_below(other, way)) return;
  std::erase_if(ways, [&](const Way& other) { return is_below(way, other); });
  ways.push_back(way);
  if (ways.size() <= kMostWays) return;
  // Joins the two ways that lose least: neighbours by the time that they need on the link.
  const auto by_link = [](const Way& a, const Way& b) { return a.from_link < b.from_link; };
  std::sort(ways.begin(), ways.end(), by_link);
  size_t best = 0;
  for (size_t i = 0; i + 1 < ways.size(); ++i)
    if (ways[i + 1].from_link - ways[i].from_link < ways[best + 1].from_link - ways[best].from_link)
      best = i;
  ways[best].from_engine = std::min(ways[best].from_engine, ways[best + 1].from_engine);
  ways[best].from_ready = std::min(ways[best].from_ready, ways[best + 1].from_ready);
  ways.erase(ways.begin() + static_cast<ptrdiff_t>(best) + 1);
}

std::vector<uint32_t> Bounds::best_ends(double engine, double link) const {
  std::vector<uint32_t> ends;
  double soonest = kNever;
  uint32_t chosen = 0;
  for (uint32_t i = 0; i < ways_[0].size(); ++i) {
    const Way& way = ways_[0][i];
    const double end = std::max({engine + way.from_engine, link + way.from_link, way.from_ready});
    if (end < soonest) {
      soonest = end;
      chosen = i;
    }
  }
  if (soonest == kNever) return ends;
  for (uint32_t at = 0; at < runs_.n_parts(); at = ends.back()) {
    const Way& way = ways_[at][chosen];
    ends.push_back(way.end);
    chosen = way.next;
  }
  return ends;
}

}  // namespace optimal
