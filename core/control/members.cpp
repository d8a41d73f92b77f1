#include "core/control/members.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::control {

Members::Members(const StateOptions& options, const Send& send)
    : options_(options),
      send_(send),
      members_(options.size),
      warn_of_absent_us_(options.warning_us == 0 ? kNever
                                                 : later(options.start_us, options.warning_us)) {}

void Members::warn(std::string_view text) const {
  send_(0, Writer(FrameKind::warning).text(text).frame());
}

// ---- arrivals ----

Status Members::join(uint32_t rank, uint64_t now_us) {
  if (rank >= members_.size()) {
    return invalid_argument("control: rank is {}, expected below the run's {} ranks", rank,
                            members_.size());
  }
  if (!is(rank, Presence::absent)) {
    return failed_precondition("control: rank {} has already joined this run", rank);
  }
  members_[rank].presence = Presence::present;
  members_[rank].heard_us = now_us;
  send_(rank, Writer(FrameKind::welcome).frame());
  return {};
}

void Members::begin_if_all_are_here(uint64_t now_us) {
  if (begun_us_ != kNever || now_us < later(options_.start_us, options_.settle_us)) return;
  if (!in_state(Presence::absent).empty()) return;
  begun_us_ = now_us;
  // By then every rank has sent several heartbeats, and has reported several times on received
  // ones.
  ask_for_datagrams_us_ = later(now_us, std::max<uint64_t>(3 * options_.pulse_us, 2'000'000));
  for (uint32_t rank = 0; rank < members_.size(); ++rank)
    send_(rank, Writer(FrameKind::ready).frame());
}

Status Members::look_for_absent(uint64_t now_us) {
  if (begun_us_ != kNever) return {};
  const std::vector<uint32_t> absent = in_state(Presence::absent);
  if (absent.empty()) return {};
  const uint64_t waited_us = now_us - std::min(now_us, options_.start_us);
  if (waited_us >= options_.rendezvous_us)
    return deadline_exceeded(
        "{} did not connect to the control server of rank 0 within {}; start all ranks, or raise "
        "runtime.rendezvous_timeout_s",
        name_ranks(absent), seconds(options_.rendezvous_us));
  if (now_us < warn_of_absent_us_) return {};
  warn_of_absent_us_ = later(now_us, options_.warning_us);
  warn(
      fmt::format("{} {} not come to the run for {}; all ranks wait {} for the last one "
                  "(runtime.rendezvous_timeout_s)",
                  name_ranks(absent), absent.size() == 1 ? "has" : "have", seconds(waited_us),
                  seconds(options_.rendezvous_us)));
  return {};
}

Status Members::has_twin(std::string_view reason, uint64_t now_us) {
  if (begun_us_ == kNever || now_us < later(begun_us_, options_.deadline_us))
    return failed_precondition("{}", reason);
  warn(fmt::format("{}; this run goes on, the other process was sent away", reason));
  return {};
}

// ---- heartbeats ----

// A rank sends at least four heartbeats per deadline. If one is late, the rank was unreachable or
// stopped.
void Members::heard(uint32_t rank, uint64_t now_us) {
  Member& member = members_[rank];
  const uint64_t silent_us = now_us - std::min(now_us, member.heard_us);
  if (begun_us_ != kNever && silent_us > options_.deadline_us / 3) {
    back_us_ = now_us;
    away_us_ = silent_us;
    // Frames that were delayed by the outage describe the time before it.
    if (ask_for_datagrams_us_ != kNever)
      ask_for_datagrams_us_ = later(now_us, 3 * options_.pulse_us);
  }
  member.heard_us = now_us;
}

void Members::lives(uint32_t rank, uint64_t now_us) {
  if (!is(rank, Presence::present)) return;
  heard(rank, now_us);
  members_[rank].sends_datagrams = true;
}

void Members::heard(uint32_t rank, Beat beat, uint64_t now_us) {
  Member& member = members_[rank];
  member.note = excerpt(beat.note);
  member.note_us = now_us;
  member.hears_datagrams = beat.hears_datagrams != 0;
  for (auto& [set, steps] : beat.steps_done) member.steps_done[set] = steps;
}

std::optional<std::pair<uint32_t, std::string>> Members::silent(uint64_t now_us) const {
  for (uint32_t rank : in_state(Presence::present)) {
    const uint64_t silent_us = now_us - std::min(now_us, members_[rank].heard_us);
    if (silent_us <= options_.deadline_us) continue;
    return std::pair(
        rank,
        fmt::format(
            "it has been silent for {}, the deadline is {} (stopped, overloaded or unreachable)",
            seconds(silent_us), seconds(options_.deadline_us)));
  }
  return std::nullopt;
}

// Once per run, because a firewall is seldom changed during a run.
void Members::look_at_datagrams(uint64_t now_us) {
  if (now_us < ask_for_datagrams_us_) return;
  std::vector<uint32_t> without;
  for (uint32_t rank : in_state(Presence::present)) {
    if (rank == 0) continue;  // the server's own rank, without a network between
    const Member& member = members_[rank];
    // Nothing arrives from this rank at all, so its last report is out of date.
    if (now_us - std::min(now_us, member.note_us) > 2 * options_.pulse_us) {
      ask_for_datagrams_us_ = later(now_us, options_.pulse_us);
      return;
    }
    if (!member.sends_datagrams || !member.hears_datagrams) without.push_back(rank);
  }
  ask_for_datagrams_us_ = kNever;
  if (without.empty()) return;
  warn(fmt::format(
      "no UDP gets through between rank 0 and {}, so signs of life use only the control "
      "connection, which after an outage of the network stays silent for as long again; let UDP "
      "through to the host of rank 0, at the port of its control connections",
      name_ranks(without)));
}

void Members::forgive(uint64_t now_us) {
  for (Member& member : members_) member.heard_us = now_us;
}

uint64_t Members::next_us() const {
  if (begun_us_ == kNever && in_state(Presence::absent).empty())
    return std::min(ask_for_datagrams_us_, later(options_.start_us, options_.settle_us));
  return ask_for_datagrams_us_;
}

// ---- knowledge about the members ----

std::vector<uint32_t> Members::in_state(Presence presence) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (is(rank, presence)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Members::last_did(uint32_t rank, uint64_t now_us) const {
  return control::last_did(members_[rank].note, members_[rank].note_us, now_us);
}

std::optional<uint64_t> Members::steps_done(uint32_t rank, const std::string& set) const {
  const auto& done = members_[rank].steps_done;
  const auto found = done.find(set);
  return found == done.end() ? std::nullopt : std::optional(found->second);
}

bool Members::is_news(uint32_t rank, const std::string& set, std::pair<uint64_t, uint32_t> step) {
  const auto [notified, is_new] = members_[rank].notified.try_emplace(set, step);
  if (!is_new && notified->second >= step) return false;
  notified->second = step;
  return true;
}

}  // namespace penstock::control
