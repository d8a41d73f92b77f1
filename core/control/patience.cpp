#include "core/control/patience.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::control {

namespace {

constexpr uint64_t kWarnings = 20;  // per interval
constexpr size_t kNamed = 4;        // enough to find the place in the program

}  // namespace

void Patience::poll(uint64_t now_us) {
  if (options_.circle_us > 0) find_circles(now_us);
  if (!rendezvous_table_.run_failure().ok()) return;
  for (auto rendezvous = rendezvous_table_.all().begin();
       rendezvous != rendezvous_table_.all().end();) {
    const auto current = rendezvous++;
    const auto& [key, state] = *current;
    if (is_overdue(key, state, now_us)) {
      rendezvous_table_.fail(
          current, deadline_exceeded(
                       "messages of {} did not come within {} although every rank lives and waits "
                       "for them: after {} of silence the ranks hear each other again, but the "
                       "messages did not arrive; check the network between the ranks, or raise "
                       "runtime.deadline_s if a step's messages take that long",
                       name_of(key), seconds(now_us - std::max(members_.back_us(), state.last_us)),
                       seconds(members_.away_us())));
      if (!rendezvous_table_.run_failure().ok()) return;
    } else if (now_us >= state.until_us) {
      rendezvous_table_.fail(current, deadline_exceeded("{}", waited_out(key, state, now_us)));
      if (!rendezvous_table_.run_failure().ok()) return;
    } else if (now_us >= state.warn_us) {
      if (is_news(key, state, now_us) && may_warn(now_us)) warn(key, state, now_us);
      current->second.warn_us = later(now_us, options_.warning_us);
    }
  }
}

// Where all ranks wait for messages, the line is slow, and the same wait comes again in every step.
// It is news only if it lasts twice as long as the last one that a warning named.
bool Patience::is_news(const RendezvousKey& key, const Rendezvous& rendezvous, uint64_t now_us) {
  if (std::get<Purpose>(key) != Purpose::step ||
      !rendezvous_table_.missing(key, rendezvous).empty())
    return true;
  const uint64_t age_us = now_us - rendezvous.first_us;
  uint64_t& warned_us = slow_us_[rendezvous.set];
  if (age_us < 2 * warned_us) return false;
  warned_us = age_us;
  return true;
}

// A rank may wait in thousands of rendezvous, but further warnings say no more than the first ones.
bool Patience::may_warn(uint64_t now_us) {
  if (now_us >= later(warns_since_us_, options_.warning_us)) {
    if (n_not_warned_ > 0) {
      const std::string text = fmt::format("{} more rendezvous of ranks also wait", n_not_warned_);
      send_(0, Writer(FrameKind::warning).text(text).frame());
    }
    warns_since_us_ = now_us;
    n_warned_ = n_not_warned_ = 0;
  }
  if (n_warned_ == kWarnings) {
    ++n_not_warned_;
    return false;
  }
  ++n_warned_;
  return true;
}

void Patience::warn(const RendezvousKey& key, const Rendezvous& rendezvous, uint64_t now_us) {
  const std::vector<uint32_t> absent = rendezvous_table_.missing(key, rendezvous);
  const std::string age = seconds(now_us - rendezvous.first_us);
  std::string text;
  if (absent.empty()) {
    text = fmt::format(
        "{} {} for messages of {} for {}, and so does every rank that has to send "
        "them; of this set only waits twice as long are reported from now on",
        name_ranks(rendezvous.ranks()), rendezvous.arrivals.size() == 1 ? "waits" : "wait",
        name_of(key), age);
  } else if (std::get<Purpose>(key) == Purpose::step) {
    text = fmt::format("{} {} waited {} for {}, which {} {} not reached",
                       name_ranks(rendezvous.ranks()),
                       rendezvous.arrivals.size() == 1 ? "has" : "have", age, name_of(key),
                       name_ranks(absent), absent.size() == 1 ? "has" : "have");
  } else {
    text = fmt::format("{} {} not asked for {} for {}, but other ranks wait for it",
                       name_ranks(absent), absent.size() == 1 ? "has" : "have", name_of(key), age);
  }
  for (size_t i = 0; i < std::min(absent.size(), kNamed); ++i)
    text += fmt::format("; rank {}: {}", absent[i], members_.last_did(absent[i], now_us));
  if (rendezvous.circle_us != kNever) text += "; they wait for each other, and no rank can go on";
  send_(0, Writer(FrameKind::warning).text(text).frame());
}

// The network failed in the middle of a step and has recovered. TCP doubles the time between its
// attempts, so it may notice the recovery only after as long as the outage took. Then the messages
// get a whole deadline. After it they are lost, and no rank is the cause.
bool Patience::is_overdue(const RendezvousKey& key, const Rendezvous& rendezvous,
                          uint64_t now_us) const {
  return std::get<Purpose>(key) == Purpose::step && rendezvous.failure.ok() &&
         rendezvous.first_us < members_.back_us() &&
         now_us >= later(std::max(members_.back_us(), rendezvous.last_us),
                         members_.away_us() + options_.deadline_us) &&
         rendezvous_table_.missing(key, rendezvous).empty();
}

std::string Patience::waited_out(const RendezvousKey& key, const Rendezvous& rendezvous,
                                 uint64_t now_us) const {
  const std::vector<uint32_t> absent = rendezvous_table_.missing(key, rendezvous);
  const std::string age = seconds(now_us - rendezvous.first_us);
  if (absent.empty())
    return fmt::format(
        "messages of {} did not come within {} although every rank waits for them: check the "
        "network, or raise runtime.busy_limit_s",
        name_of(key), age);
  std::string text =
      fmt::format("{} did not come to {} within {}; rank {}: {}", name_ranks(absent), name_of(key),
                  age, absent[0], members_.last_did(absent[0], now_us));
  const bool may_be_busy = members_.is(absent[0], Members::Presence::present) &&
                           std::get<Purpose>(key) != Purpose::rendezvous;
  if (may_be_busy)
    text +=
        fmt::format("; {} alive: if ranks may be busy for that long, raise runtime.busy_limit_s",
                    absent.size() == 1 ? "it is" : "they are");
  return text;
}

// ---- Ranks that wait for each other ----

// A rendezvous is stuck if a missing rank is blocked in another stuck rendezvous. A step with all
// ranks is stuck if a stuck rendezvous holds it. The search first assumes that every rendezvous is
// stuck, and removes a rendezvous without such a cause until nothing changes. The rest can never
// end.
void Patience::find_circles(uint64_t now_us) {
  std::set<const Rendezvous*> stuck;
  for (const auto& [key, rendezvous] : rendezvous_table_.all())
    if (rendezvous.failure.ok() && !rendezvous.arrivals.empty()) stuck.insert(&rendezvous);
  for (size_t before = 0; before != stuck.size();) {
    before = stuck.size();
    for (const auto& [key, rendezvous] : rendezvous_table_.all())
      if (stuck.contains(&rendezvous) && !in_circle(key, rendezvous, stuck))
        stuck.erase(&rendezvous);
  }
  std::vector<RendezvousTable::Map::iterator> over;
  for (auto rendezvous = rendezvous_table_.all().begin();
       rendezvous != rendezvous_table_.all().end(); ++rendezvous) {
    uint64_t& since_us = rendezvous->second.circle_us;
    if (!stuck.contains(&rendezvous->second)) {
      since_us = kNever;
      continue;
    }
    if (since_us == kNever) since_us = now_us;
    if (now_us >= later(since_us, options_.circle_us)) over.push_back(rendezvous);
  }
  if (!over.empty()) end_circle(over);
}

bool Patience::in_circle(const RendezvousKey& key, const Rendezvous& rendezvous,
                         const std::set<const Rendezvous*>& stuck) const {
  const std::vector<uint32_t> absent = rendezvous_table_.missing(key, rendezvous);
  if (absent.empty()) return std::get<Purpose>(key) == Purpose::step && is_held(rendezvous, stuck);
  return std::any_of(absent.begin(), absent.end(), [&](uint32_t rank) {
    return std::any_of(stuck.begin(), stuck.end(), [&](const Rendezvous* other) {
      const auto arrival = other->arrivals.find(rank);
      return arrival != other->arrivals.end() && arrival->second.blocked;
    });
  });
}

// Whether a rank has asked for an operation that all ranks must ask for before the step continues.
bool Patience::is_held(const Rendezvous& step, const std::set<const Rendezvous*>& stuck) const {
  return std::any_of(stuck.begin(), stuck.end(),
                     [&](const Rendezvous* other) { return other->holds == step.set; });
}

void Patience::end_circle(const std::vector<RendezvousTable::Map::iterator>& circle) {
  std::string text;
  for (const auto& rendezvous : circle) {
    const std::vector<uint32_t> waiting = rendezvous->second.ranks();
    text += fmt::format("{}{} {} in {}", text.empty() ? "" : ", ", name_ranks(waiting),
                        waiting.size() == 1 ? "waits" : "wait", name_of(rendezvous->first));
  }
  for (const auto& rendezvous : circle)
    if (!rendezvous->second.holds.empty())
      for (const auto& [rank, arrival] : rendezvous->second.arrivals)
        text += fmt::format("; rank {}: {}", rank,
                            arrival.signature.substr(0, arrival.signature.find('\n')));
  const Status failure = mismatch(
      "ranks wait for each other: {}; no wait can end, because each needs a rank that waits in "
      "another wait: all ranks must ask for equal things in equal order",
      text);
  for (const auto& rendezvous : circle) {
    rendezvous_table_.fail(rendezvous, failure);
    if (!rendezvous_table_.run_failure().ok()) return;
  }
}

uint64_t Patience::next_us() const {
  uint64_t next = kNever;
  for (const auto& [key, rendezvous] : rendezvous_table_.all()) {
    next = std::min({next, rendezvous.until_us, rendezvous.warn_us});
    // Circles are searched at every pulse, so a circle may also end by itself.
    if (rendezvous.circle_us != kNever)
      next = std::min(next, later(rendezvous.circle_us, options_.circle_us));
  }
  return next;
}

}  // namespace penstock::control
