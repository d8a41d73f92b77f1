#include "core/control/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock::control {

State::State(const Options& options, Send send)
    : options_(options),
      send_(std::move(send)),
      members_(options.size),
      pulse_at_us_(options.start_us),
      warn_of_absent_us_(options.warning_us == 0 ? kNever
                                                 : later(options.start_us, options.warning_us)) {
  if (options_.meeting_us == 0) options_.meeting_us = options_.deadline_us;
}

// ---- Members ----

Status State::receive(uint32_t rank, std::string_view body, uint64_t now_us) {
  Member& member = members_[rank];
  Reader reader(body);
  const auto kind = static_cast<FrameKind>(reader.u8());
  if (member.presence != Presence::present) {
    // A rank that failed by its silence may come back to life, only to leave.
    if (kind == FrameKind::goodbye) send_(rank, Writer(FrameKind::farewell).frame());
    return {};
  }
  heard(member, now_us);
  // Who still asks for something has not yet heard of the abort, and gets that as its answer.
  if (aborted() && kind != FrameKind::goodbye) return {};
  switch (kind) {
    case FrameKind::beat:
      if (std::optional<Beat> beat = decode_beat(reader)) {
        member.note = excerpt(beat->note);
        member.note_us = now_us;
        member.hears_datagrams = beat->hears_datagrams != 0;
        for (auto& [set, steps] : beat->steps_done) member.steps_done[set] = steps;
      }
      break;
    case FrameKind::put:
      put(rank, reader);
      break;
    case FrameKind::get:
      get(rank, reader, now_us);
      break;
    case FrameKind::meet:
      if (std::optional<Meet> message = decode_meet(reader))
        meet(rank, std::move(*message), now_us);
      break;
    case FrameKind::withdraw:
    case FrameKind::blocked: {
      const uint64_t id = reader.u64();
      if (!reader.finished()) break;
      kind == FrameKind::blocked ? block(rank, id) : withdraw(rank, id);
      break;
    }
    case FrameKind::step_news:
      if (std::optional<StepNews> news = decode_step_news(reader)) tell_joined(rank, *news);
      break;
    case FrameKind::abort: {
      const std::string reason(reader.text());
      if (reader.finished()) abort_all(peer_failed("{}", told_by(rank, "gave up", reason)));
      break;
    }
    case FrameKind::goodbye:
      if (reader.finished()) leave(rank);
      break;
    default:
      return invalid_payload("control frame of rank {}: kind is {}, expected one a client sends",
                             rank, static_cast<uint32_t>(kind));
  }
  if (!reader.finished()) {
    return invalid_payload("control frame of rank {}: {} bytes of kind {} are not such a message",
                           rank, body.size(), static_cast<uint32_t>(kind));
  }
  return {};
}

void State::lives(uint32_t rank, uint64_t now_us) {
  Member& member = members_[rank];
  if (member.presence != Presence::present) return;
  heard(member, now_us);
  member.sends_datagrams = true;
}

// Signs of life come at least four times in a deadline: who has missed one was out of reach, or
// stood still.
void State::heard(Member& member, uint64_t now_us) {
  const uint64_t silent_us = now_us - std::min(now_us, member.heard_us);
  if (begun_us_ != kNever && silent_us > options_.deadline_us / 3) {
    back_us_ = now_us;
    away_us_ = silent_us;
    // What waited behind the outage tells of the time before.
    if (ask_for_datagrams_us_ != kNever)
      ask_for_datagrams_us_ = later(now_us, 3 * options_.pulse_us);
  }
  member.heard_us = now_us;
}

void State::leave(uint32_t rank) {
  members_[rank].presence = Presence::left;
  std::erase_if(gets_, [&](const PendingGet& waiting) { return waiting.rank == rank; });
  send_(rank, Writer(FrameKind::farewell).frame());
  for (auto meeting = meetings_.begin(); meeting != meetings_.end();) {
    const auto current = meeting++;
    const std::vector<uint32_t>& ranks = std::get<2>(current->first);
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    if (!current->second.failure.ok()) {
      current->second.told.insert(rank);
      forget_if_told(current);
    } else if (is_needed(current->second, rank)) {
      fail(current, left_behind(current->first, current->second, rank));
      if (aborted()) return;
    }
  }
}

void State::lost(uint32_t rank, std::string_view how, uint64_t now_us) {
  if (members_[rank].presence != Presence::present) return;
  members_[rank].presence = Presence::failed;
  abort_all(peer_failed("rank {} failed: {}; {}", rank, how, last_did(rank, now_us)));
}

void State::abort_all(const Status& reason) {
  if (aborted()) return;
  answer_operations();
  abort_reason_ = reason;
  meetings_.clear();
  gets_.clear();
  // The rank that failed is told too, should it still be able to hear.
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    tell_abort(rank);
  }
}

void State::tell_abort(uint32_t rank) {
  const auto code = static_cast<uint32_t>(abort_reason_.code());
  send_(rank, Writer(FrameKind::aborted).u32(code).text(abort_reason_.message()).frame());
}

void State::close() {
  if (finished()) return;
  abort_all(peer_failed("rank 0 has left the run, {} had not said goodbye in time",
                        name_ranks(in_state(Presence::present))));
}

bool State::finished() const {
  return in_state(Presence::present).empty();
}

std::vector<uint32_t> State::in_state(Presence presence) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].presence == presence) ranks.push_back(rank);
  }
  return ranks;
}

std::string State::last_did(uint32_t rank, uint64_t now_us) const {
  return control::last_did(members_[rank].note, members_[rank].note_us, now_us);
}

// ---- Store ----

void State::put(uint32_t rank, Reader& reader) {
  const uint64_t id = reader.u64();
  const std::string key(reader.text());
  const std::string value(reader.text());
  if (!reader.finished()) return;
  for (const PendingGet& waiting : gets_) {
    if (waiting.key == key) send_(waiting.rank, encode(Reply{.id = waiting.id, .value = value}));
  }
  std::erase_if(gets_, [&](const PendingGet& waiting) { return waiting.key == key; });
  values_[key] = value;
  reply(rank, id, {});
}

void State::get(uint32_t rank, Reader& reader, uint64_t now_us) {
  const uint64_t id = reader.u64();
  const std::string_view key = reader.text();
  const uint64_t timeout_us = reader.u64();
  if (!reader.finished()) return;
  if (const auto found = values_.find(key); found != values_.end()) {
    send_(rank, encode(Reply{.id = id, .value = found->second}));
  } else {
    gets_.push_back({rank, id, std::string(key), timeout_us, later(now_us, timeout_us)});
  }
}

void State::reply(uint32_t rank, uint64_t id, Status status) {
  send_(rank, encode(Reply{.id = id, .status = std::move(status)}));
}

// ---- Meetings ----

Status State::check(uint32_t rank, const Meet& message) const {
  const auto& ranks = message.ranks;
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (ranks.empty() || !ascending || ranks.back() >= members_.size()) {
    return invalid_argument("'{}': ranks are [{}], expected ascending ranks below {}",
                            message.topic, fmt::join(ranks, ", "), members_.size());
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) {
    return invalid_argument("'{}': its {} do not include rank {}, which asks", message.topic,
                            name_ranks(ranks), rank);
  }
  return {};
}

void State::meet(uint32_t rank, Meet message, uint64_t now_us) {
  if (message.ranks.empty()) {
    message.ranks.resize(members_.size());
    std::iota(message.ranks.begin(), message.ranks.end(), 0u);
  }
  if (Status status = check(rank, message); !status.ok())
    return reply(rank, message.id, std::move(status));
  const auto [found, is_new] =
      meetings_.try_emplace(MeetingKey(message.purpose, message.topic, message.ranks));
  Meeting& meeting = found->second;
  if (!meeting.failure.ok()) {
    reply(rank, message.id, meeting.failure);
    meeting.told.insert(rank);
    return forget_if_told(found);
  }
  if (meeting.arrivals.contains(rank)) {
    return reply(rank, message.id,
                 invalid_argument("'{}' is already pending on rank {}", message.topic, rank));
  }
  if (is_new) {
    (message.purpose == Purpose::step ? meeting.set : meeting.holds) = message.set;
    meeting.step = message.step;
    meeting.first_us = now_us;
    // Who has joined waits for as long as the others have data.
    const bool is_join = message.purpose == Purpose::join;
    if (options_.warning_us > 0 && !is_join) meeting.warn_us = later(now_us, options_.warning_us);
    if (message.purpose != Purpose::meeting && !is_join && options_.busy_limit_us > 0)
      meeting.until_us = later(now_us, options_.busy_limit_us);
  }
  if (message.timeout_us > 0)
    meeting.until_us = std::min(meeting.until_us, later(now_us, message.timeout_us));
  meeting.last_us = now_us;
  meeting.arrivals[rank] = {message.id,
                            std::move(message.signature),
                            std::move(message.detail),
                            message.purpose != Purpose::operation,
                            message.audience,
                            message.if_joined,
                            std::move(message.zeros)};
  if (!message.refusal.empty())
    return fail(found, peer_failed("'{}': rank {} cannot take part: {}", message.topic, rank,
                                   message.refusal));
  for (uint32_t other : missing(found->first, meeting)) {
    if (members_[other].presence == Presence::left)
      return fail(found, left_behind(found->first, meeting, other));
  }
  if (message.purpose == Purpose::join) has_joined(rank);
  if (message.purpose != Purpose::step && meeting.arrivals.size() == message.ranks.size())
    return complete(found);
  if (only_joined_are_missing(found->first, meeting)) go_on_without_joined(found);
}

// Messages of the step have come: nobody is waited for any more.
void State::withdraw(uint32_t rank, uint64_t id) {
  for (auto meeting = meetings_.begin(); meeting != meetings_.end(); ++meeting) {
    auto& arrivals = meeting->second.arrivals;
    const auto arrival = arrivals.find(rank);
    if (std::get<Purpose>(meeting->first) != Purpose::step || arrival == arrivals.end() ||
        arrival->second.id != id)
      continue;
    arrivals.erase(arrival);
    if (arrivals.empty()) meetings_.erase(meeting);
    return;
  }
}

void State::block(uint32_t rank, uint64_t id) {
  for (auto& [key, meeting] : meetings_) {
    const auto arrival = meeting.arrivals.find(rank);
    if (arrival != meeting.arrivals.end() && arrival->second.id == id)
      arrival->second.blocked = true;
  }
}

std::vector<uint32_t> State::missing(const MeetingKey& key, const Meeting& meeting) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank : std::get<2>(key)) {
    if (!meeting.arrivals.contains(rank) && is_needed(meeting, rank)) ranks.push_back(rank);
  }
  return ranks;
}

// A rank for which the step is over has sent all that the others wait for.
bool State::is_needed(const Meeting& meeting, uint32_t rank) const {
  if (meeting.set.empty()) return true;
  const auto& done = members_[rank].steps_done;
  const auto found = done.find(meeting.set);
  return found == done.end() || found->second <= meeting.step;
}

// ---- Time ----

void State::tick(uint64_t now_us) {
  if (aborted()) return;
  answer_operations();
  if (now_us >= pulse_at_us_) {
    pulse_at_us_ = later(now_us, options_.pulse_us);
    for (uint32_t rank : in_state(Presence::present))
      send_(rank, Writer(FrameKind::pulse).text(members_[0].note).frame());
  }
  begin_if_all_are_here(now_us);
  look_for_absent(now_us);
  if (aborted()) return;
  for (uint32_t rank : in_state(Presence::present)) {
    const uint64_t silent_us = now_us - std::min(now_us, members_[rank].heard_us);
    if (silent_us <= options_.deadline_us) continue;
    return lost(
        rank,
        fmt::format(
            "it has been silent for {}, the deadline is {} (stopped, overloaded or unreachable)",
            seconds(silent_us), seconds(options_.deadline_us)),
        now_us);
  }
  if (now_us >= ask_for_datagrams_us_) look_at_datagrams(now_us);
  for (const PendingGet& waiting : gets_) {
    if (now_us < waiting.until_us) continue;
    reply(waiting.rank, waiting.id,
          deadline_exceeded("key '{}': nobody has put it within {}", waiting.key,
                            seconds(waiting.timeout_us)));
  }
  std::erase_if(gets_, [&](const PendingGet& waiting) { return now_us >= waiting.until_us; });
  look_at_meetings(now_us);
}

uint64_t State::next_us() const {
  if (aborted()) return kNever;
  uint64_t next = std::min(pulse_at_us_, ask_for_datagrams_us_);
  if (begun_us_ == kNever && in_state(Presence::absent).empty())
    next = std::min(next, later(options_.start_us, options_.settle_us));
  for (const PendingGet& waiting : gets_) next = std::min(next, waiting.until_us);
  for (const auto& [key, meeting] : meetings_) {
    next = std::min({next, meeting.until_us, meeting.warn_us});
    // A circle is looked for at every pulse, and ends in time.
    if (meeting.circle_us != kNever)
      next = std::min(next, later(meeting.circle_us, options_.circle_us));
  }
  return next;
}

// Once in a run: whoever forbids them is seldom changed while it lasts.
void State::look_at_datagrams(uint64_t now_us) {
  std::vector<uint32_t> without;
  for (uint32_t rank : in_state(Presence::present)) {
    if (rank == 0) continue;  // the server's own: no network lies between
    const Member& member = members_[rank];
    // Nothing gets through at all: it has not told what came before.
    if (now_us - std::min(now_us, member.note_us) > 2 * options_.pulse_us) {
      ask_for_datagrams_us_ = later(now_us, options_.pulse_us);
      return;
    }
    if (!member.sends_datagrams || !member.hears_datagrams) without.push_back(rank);
  }
  ask_for_datagrams_us_ = kNever;
  if (without.empty()) return;
  const std::string text = fmt::format(
      "no UDP gets through between rank 0 and {}, so that signs of life go by the control "
      "connection alone, which after an outage of the network stays silent for as long again; let "
      "UDP through to the host of rank 0, at the port of its control connections",
      name_ranks(without));
  send_(0, Writer(FrameKind::warning).text(text).frame());
}

void State::forgive(uint64_t now_us) {
  for (Member& member : members_) member.heard_us = now_us;
}

}  // namespace penstock::control
