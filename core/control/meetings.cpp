#include "core/control/meetings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace penstock::control {

using Presence = Members::Presence;

std::string name_of(const MeetingKey& key) {
  const std::string& topic = std::get<std::string>(key);
  return std::get<Purpose>(key) == Purpose::step ? topic : fmt::format("'{}'", topic);
}

std::vector<uint32_t> Meeting::ranks() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, arrival] : arrivals) ranks.push_back(rank);
  return ranks;
}

// ---- ranks come and go ----

Status Meetings::check(uint32_t rank, const Meet& message) const {
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

void Meetings::begin(Meeting& meeting, const Meet& message, uint64_t now_us) const {
  (message.purpose == Purpose::step ? meeting.set : meeting.holds) = message.set;
  meeting.step = message.step;
  meeting.first_us = now_us;
  // Who has joined waits for as long as the others have data.
  const bool is_join = message.purpose == Purpose::join;
  if (options_.warning_us > 0 && !is_join) meeting.warn_us = later(now_us, options_.warning_us);
  if (message.purpose != Purpose::meeting && !is_join && options_.busy_limit_us > 0)
    meeting.until_us = later(now_us, options_.busy_limit_us);
}

void Meetings::meet(uint32_t rank, Meet message, uint64_t now_us) {
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
  if (is_new) begin(meeting, message, now_us);
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
    if (members_.is(other, Presence::left))
      return fail(found, left_behind(found->first, meeting, other));
  }
  if (message.purpose == Purpose::join) has_joined(rank);
  if (message.purpose != Purpose::step && meeting.arrivals.size() == message.ranks.size())
    return complete(found);
  if (only_joined_are_missing(found->first, meeting)) go_on_without_joined(found);
}

// Messages of the step have come: nobody is waited for any more.
void Meetings::withdraw(uint32_t rank, uint64_t id) {
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

void Meetings::block(uint32_t rank, uint64_t id) {
  for (auto& [key, meeting] : meetings_) {
    const auto arrival = meeting.arrivals.find(rank);
    if (arrival != meeting.arrivals.end() && arrival->second.id == id)
      arrival->second.blocked = true;
  }
}

void Meetings::leave(uint32_t rank) {
  for (auto meeting = meetings_.begin(); meeting != meetings_.end();) {
    const auto current = meeting++;
    const std::vector<uint32_t>& ranks = std::get<2>(current->first);
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    if (!current->second.failure.ok()) {
      current->second.told.insert(rank);
      forget_if_told(current);
    } else if (is_needed(current->second, rank)) {
      fail(current, left_behind(current->first, current->second, rank));
      if (!run_failure_.ok()) return;
    }
  }
}

std::vector<uint32_t> Meetings::missing(const MeetingKey& key, const Meeting& meeting) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank : std::get<2>(key)) {
    if (!meeting.arrivals.contains(rank) && is_needed(meeting, rank)) ranks.push_back(rank);
  }
  return ranks;
}

// A rank for which the step is over has sent all that the others wait for.
bool Meetings::is_needed(const Meeting& meeting, uint32_t rank) const {
  if (meeting.set.empty()) return true;
  const std::optional<uint64_t> done = members_.steps_done(rank, meeting.set);
  return !done || *done <= meeting.step;
}

Status Meetings::left_behind(const MeetingKey& key, const Meeting& meeting, uint32_t rank) const {
  if (std::get<Purpose>(key) != Purpose::step)
    return peer_failed("{}: rank {} has left the run", name_of(key), rank);
  return peer_failed(
      "rank {} has left the run after {} steps of set '{}'; other ranks wait for it in {}; every "
      "rank must make the same number of steps",
      rank, members_.steps_done(rank, meeting.set).value_or(0), meeting.set, name_of(key));
}

// ---- how meetings end: with an answer to all who have come, or with a failure ----

void Meetings::complete(Map::iterator found) {
  const auto& [purpose, topic, ranks] = found->first;
  const Meeting& meeting = found->second;
  std::map<uint32_t, std::string_view> signatures;
  Reply answer;
  uint64_t total_bytes = 0;
  for (uint32_t rank : ranks) {
    const auto arrival = meeting.arrivals.find(rank);
    std::string& detail = answer.details.emplace_back();
    if (arrival == meeting.arrivals.end()) continue;  // it has joined
    signatures[rank] = arrival->second.signature;
    detail = arrival->second.detail;
    total_bytes += detail.size() + sizeof(uint64_t);
  }
  answer.status = compare(topic, signatures);
  if (answer.status.ok() && total_bytes > kMaxFrameBytes / 2) {
    answer.status =
        invalid_argument("'{}': the texts of its {} ranks have {} bytes, expected at most {}",
                         topic, ranks.size(), total_bytes, kMaxFrameBytes / 2);
  }
  if (!answer.status.ok()) {
    answer.details.clear();
  } else if (purpose == Purpose::operation) {
    answer.serial = next_serial_++;
    const std::string& zeros = meeting.arrivals.begin()->second.zeros;
    for (uint32_t rank : missing(found->first, meeting))
      answers_.push_back({rank, {}, true, AddZeros{topic, ranks, zeros, answer.serial}});
  } else if (purpose == Purpose::join) {
    answer.serial = joined_.back();
    joined_.clear();
  }
  Reply short_answer{.id = 0, .status = answer.status, .serial = answer.serial};
  for (const auto& [rank, arrival] : meeting.arrivals) {
    Reply& heard = arrival.audience == Audience::all ? answer : short_answer;
    heard.id = arrival.id;
    if (answer.status.ok() && purpose == Purpose::operation) {
      answers_.push_back({rank, heard, meeting.holds.empty()});
      continue;
    }
    const bool hears_first = arrival.audience == Audience::first && !answer.details.empty();
    if (hears_first) heard.details.assign(1, answer.details.front());
    send_(rank, encode(heard));
    if (hears_first) heard.details.clear();
  }
  meetings_.erase(found);
}

void Meetings::answer_operations() {
  std::map<uint32_t, uint64_t> left;
  for (auto answer = answers_.rbegin(); answer != answers_.rend(); ++answer)
    if (answer->counts) answer->reply.left = left[answer->rank]++;
  for (Answer& answer : answers_) {
    if (answer.zeros) answer.zeros->left = answer.reply.left;
    send_(answer.rank, answer.zeros ? encode(*answer.zeros) : encode(answer.reply));
  }
  answers_.clear();
}

void Meetings::fail(Map::iterator found, Status failure) {
  // A step that cannot be finished ends the run: all hear it in the same words.
  if (std::get<Purpose>(found->first) == Purpose::step) {
    run_failure_ = std::move(failure);
    return;
  }
  if (std::get<Purpose>(found->first) == Purpose::join) joined_.clear();
  Meeting& meeting = found->second;
  for (const auto& [rank, arrival] : meeting.arrivals) {
    reply(rank, arrival.id, failure);
    meeting.told.insert(rank);
  }
  meeting.failure = std::move(failure);
  meeting.until_us = meeting.warn_us = meeting.circle_us = kNever;
  for (uint32_t rank : std::get<2>(found->first)) {
    if (!members_.is(rank, Presence::present)) meeting.told.insert(rank);
  }
  forget_if_told(found);
}

void Meetings::reply(uint32_t rank, uint64_t id, Status status) const {
  send_(rank, encode(Reply{.id = id, .status = std::move(status)}));
}

void Meetings::forget_if_told(Map::iterator found) {
  if (found->second.told.size() == std::get<2>(found->first).size()) meetings_.erase(found);
}

// ---- ranks whose data is at an end ----

// What others wait for may be waited for no more.
void Meetings::has_joined(uint32_t rank) {
  joined_.push_back(rank);
  members_.forget_news(rank);
  for (uint32_t other = 0; other < members_.size(); ++other)
    if (other != rank) send_(other, Writer(FrameKind::somebody_joined).frame());
  for (auto meeting = meetings_.begin(); meeting != meetings_.end();) {
    const auto current = meeting++;
    if (only_joined_are_missing(current->first, current->second)) go_on_without_joined(current);
  }
}

bool Meetings::only_joined_are_missing(const MeetingKey& key, const Meeting& meeting) const {
  if (joined_.empty() || std::get<Purpose>(key) != Purpose::operation || !meeting.failure.ok() ||
      meeting.arrivals.begin()->second.if_joined == IfJoined::comes)
    return false;
  const std::vector<uint32_t> absent = missing(key, meeting);
  return std::all_of(absent.begin(), absent.end(), [&](uint32_t rank) {
    return std::find(joined_.begin(), joined_.end(), rank) != joined_.end();
  });
}

void Meetings::go_on_without_joined(Map::iterator found) {
  Meeting& meeting = found->second;
  const Arrival& first = meeting.arrivals.begin()->second;
  if (first.if_joined == IfJoined::adds_zeros) return complete(found);
  // Nobody else will ask for it.
  const std::vector<uint32_t> absent = missing(found->first, meeting);
  meeting.told.insert(absent.begin(), absent.end());
  fail(found, failed_precondition(
                  "'{}' ({}): {} {} joined, and who has joined adds zeros to sums, nothing else; "
                  "ask for it before a rank joins, or when all have",
                  std::get<std::string>(found->first),
                  std::string_view(first.signature).substr(0, first.signature.find('\n')),
                  name_ranks(absent), absent.size() == 1 ? "has" : "have"));
}

void Meetings::tell_joined(uint32_t rank, const StepNews& news) {
  for (uint32_t other : joined_) {
    const bool is_member = news.ranks.empty() || std::find(news.ranks.begin(), news.ranks.end(),
                                                           other) != news.ranks.end();
    if (other == rank || !is_member) continue;
    if (members_.is_news(other, news.set, {news.step, news.over}))
      send_(other, encode(news, FrameKind::step_told));
  }
}

}  // namespace penstock::control
