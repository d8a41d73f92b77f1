#include "core/control/rendezvous_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace penstock::control {

using Presence = Members::Presence;

std::string name_of(const RendezvousKey& key) {
  const std::string& topic = std::get<std::string>(key);
  return std::get<Purpose>(key) == Purpose::step ? topic : fmt::format("'{}'", topic);
}

std::vector<uint32_t> Rendezvous::ranks() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, arrival] : arrivals) ranks.push_back(rank);
  return ranks;
}

// ---- arrivals of ranks ----

Status RendezvousTable::check(uint32_t rank, const Meet& message) const {
  const auto& ranks = message.ranks;
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (ranks.empty() || !ascending || ranks.back() >= members_.size()) {
    return invalid_argument("'{}': ranks are [{}], expected ascending ranks below {}",
                            message.topic, fmt::join(ranks, ", "), members_.size());
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) {
    return invalid_argument("'{}': its {} do not include rank {}, which asks for it", message.topic,
                            name_ranks(ranks), rank);
  }
  return {};
}

void RendezvousTable::begin(Rendezvous& rendezvous, const Meet& message, uint64_t now_us) const {
  (message.purpose == Purpose::step ? rendezvous.set : rendezvous.holds) = message.set;
  rendezvous.step = message.step;
  rendezvous.first_us = now_us;
  // A joined rank waits as long as other ranks have data.
  const bool is_join = message.purpose == Purpose::join;
  if (options_.warning_us > 0 && !is_join) rendezvous.warn_us = later(now_us, options_.warning_us);
  if (message.purpose != Purpose::rendezvous && !is_join && options_.busy_limit_us > 0)
    rendezvous.until_us = later(now_us, options_.busy_limit_us);
}

void RendezvousTable::meet(uint32_t rank, Meet message, uint64_t now_us) {
  if (message.ranks.empty()) {
    message.ranks.resize(members_.size());
    std::iota(message.ranks.begin(), message.ranks.end(), 0u);
  }
  if (Status status = check(rank, message); !status.ok())
    return reply(rank, message.id, std::move(status));
  const auto [found, is_new] =
      rendezvous_table_.try_emplace(RendezvousKey(message.purpose, message.topic, message.ranks));
  Rendezvous& rendezvous = found->second;
  if (!rendezvous.failure.ok()) {
    reply(rank, message.id, rendezvous.failure);
    rendezvous.notified.insert(rank);
    return forget_if_notified(found);
  }
  if (rendezvous.arrivals.contains(rank)) {
    return reply(rank, message.id,
                 invalid_argument("'{}' is already pending on rank {}", message.topic, rank));
  }
  if (is_new) begin(rendezvous, message, now_us);
  if (message.timeout_us > 0)
    rendezvous.until_us = std::min(rendezvous.until_us, later(now_us, message.timeout_us));
  rendezvous.last_us = now_us;
  rendezvous.arrivals[rank] = {message.id,
                               std::move(message.signature),
                               std::move(message.detail),
                               message.purpose != Purpose::operation,
                               message.audience,
                               message.if_joined,
                               std::move(message.zeros)};
  if (!message.refusal.empty())
    return fail(found, peer_failed("'{}': rank {} cannot take part: {}", message.topic, rank,
                                   message.refusal));
  for (uint32_t other : missing(found->first, rendezvous)) {
    if (members_.is(other, Presence::left))
      return fail(found, has_left(found->first, rendezvous, other));
  }
  if (message.purpose == Purpose::join) has_joined(rank);
  if (message.purpose != Purpose::step && rendezvous.arrivals.size() == message.ranks.size())
    return complete(found);
  if (only_joined_are_missing(found->first, rendezvous)) go_on_without_joined(found);
}

// Messages of the step have arrived, so the rank no longer waits for other ranks.
void RendezvousTable::withdraw(uint32_t rank, uint64_t id) {
  for (auto rendezvous = rendezvous_table_.begin(); rendezvous != rendezvous_table_.end();
       ++rendezvous) {
    auto& arrivals = rendezvous->second.arrivals;
    const auto arrival = arrivals.find(rank);
    if (std::get<Purpose>(rendezvous->first) != Purpose::step || arrival == arrivals.end() ||
        arrival->second.id != id)
      continue;
    arrivals.erase(arrival);
    if (arrivals.empty()) rendezvous_table_.erase(rendezvous);
    return;
  }
}

void RendezvousTable::block(uint32_t rank, uint64_t id) {
  for (auto& [key, rendezvous] : rendezvous_table_) {
    const auto arrival = rendezvous.arrivals.find(rank);
    if (arrival != rendezvous.arrivals.end() && arrival->second.id == id)
      arrival->second.blocked = true;
  }
}

void RendezvousTable::leave(uint32_t rank) {
  for (auto rendezvous = rendezvous_table_.begin(); rendezvous != rendezvous_table_.end();) {
    const auto current = rendezvous++;
    const std::vector<uint32_t>& ranks = std::get<2>(current->first);
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    if (!current->second.failure.ok()) {
      current->second.notified.insert(rank);
      forget_if_notified(current);
    } else if (is_needed(current->second, rank)) {
      fail(current, has_left(current->first, current->second, rank));
      if (!run_failure_.ok()) return;
    }
  }
}

std::vector<uint32_t> RendezvousTable::missing(const RendezvousKey& key,
                                               const Rendezvous& rendezvous) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank : std::get<2>(key)) {
    if (!rendezvous.arrivals.contains(rank) && is_needed(rendezvous, rank)) ranks.push_back(rank);
  }
  return ranks;
}

// After the step, a rank has sent all messages for which other ranks wait.
bool RendezvousTable::is_needed(const Rendezvous& rendezvous, uint32_t rank) const {
  if (rendezvous.set.empty()) return true;
  const std::optional<uint64_t> done = members_.steps_done(rank, rendezvous.set);
  return !done || *done <= rendezvous.step;
}

Status RendezvousTable::has_left(const RendezvousKey& key, const Rendezvous& rendezvous,
                                 uint32_t rank) const {
  if (std::get<Purpose>(key) != Purpose::step)
    return peer_failed("{}: rank {} has left the run", name_of(key), rank);
  return peer_failed(
      "rank {} has left the run after {} steps of set '{}'; other ranks wait for it in {}; every "
      "rank must make the same number of steps",
      rank, members_.steps_done(rank, rendezvous.set).value_or(0), rendezvous.set, name_of(key));
}

// ---- the end of a rendezvous: an answer to all arrived ranks, or a failure ----

void RendezvousTable::complete(Map::iterator found) {
  const auto& [purpose, topic, ranks] = found->first;
  const Rendezvous& rendezvous = found->second;
  std::map<uint32_t, std::string_view> signatures;
  Reply answer;
  uint64_t total_bytes = 0;
  for (uint32_t rank : ranks) {
    const auto arrival = rendezvous.arrivals.find(rank);
    std::string& detail = answer.details.emplace_back();
    if (arrival == rendezvous.arrivals.end()) continue;  // rank has joined
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
    const Arrival& first = rendezvous.arrivals.begin()->second;
    const std::string& zeros = first.zeros;
    const bool hear = first.if_joined == IfJoined::adds_zeros;
    for (uint32_t rank : hear ? missing(found->first, rendezvous) : std::vector<uint32_t>())
      answers_.push_back({rank, {}, true, AddZeros{topic, ranks, zeros, answer.serial}});
  } else if (purpose == Purpose::join) {
    answer.serial = joined_.back();
    joined_.clear();
  }
  Reply short_answer{.id = 0, .status = answer.status, .serial = answer.serial};
  for (const auto& [rank, arrival] : rendezvous.arrivals) {
    Reply& heard = arrival.audience == Audience::all ? answer : short_answer;
    heard.id = arrival.id;
    if (answer.status.ok() && purpose == Purpose::operation) {
      answers_.push_back({rank, heard, rendezvous.holds.empty()});
      continue;
    }
    const bool hears_first = arrival.audience == Audience::first && !answer.details.empty();
    if (hears_first) heard.details.assign(1, answer.details.front());
    send_(rank, encode(heard));
    if (hears_first) heard.details.clear();
  }
  rendezvous_table_.erase(found);
}

void RendezvousTable::answer_operations() {
  std::map<uint32_t, uint64_t> left;
  for (auto answer = answers_.rbegin(); answer != answers_.rend(); ++answer)
    if (answer->counts) answer->reply.left = left[answer->rank]++;
  for (Answer& answer : answers_) {
    if (answer.zeros) answer.zeros->left = answer.reply.left;
    send_(answer.rank, answer.zeros ? encode(*answer.zeros) : encode(answer.reply));
  }
  answers_.clear();
}

void RendezvousTable::fail(Map::iterator found, Status failure) {
  // A step that cannot be finished ends the run, with one message for all ranks.
  if (std::get<Purpose>(found->first) == Purpose::step) {
    run_failure_ = std::move(failure);
    return;
  }
  if (std::get<Purpose>(found->first) == Purpose::join) joined_.clear();
  Rendezvous& rendezvous = found->second;
  for (const auto& [rank, arrival] : rendezvous.arrivals) {
    reply(rank, arrival.id, failure);
    rendezvous.notified.insert(rank);
  }
  rendezvous.failure = std::move(failure);
  rendezvous.until_us = rendezvous.warn_us = rendezvous.circle_us = kNever;
  for (uint32_t rank : std::get<2>(found->first)) {
    if (!members_.is(rank, Presence::present)) rendezvous.notified.insert(rank);
  }
  forget_if_notified(found);
}

void RendezvousTable::reply(uint32_t rank, uint64_t id, Status status) const {
  send_(rank, encode(Reply{.id = id, .status = std::move(status)}));
}

void RendezvousTable::forget_if_notified(Map::iterator found) {
  if (found->second.notified.size() == std::get<2>(found->first).size())
    rendezvous_table_.erase(found);
}

// ---- ranks without further data ----

// Some rendezvous may now be complete without this rank.
void RendezvousTable::has_joined(uint32_t rank) {
  joined_.push_back(rank);
  members_.forget_news(rank);
  for (uint32_t other = 0; other < members_.size(); ++other)
    if (other != rank) send_(other, Writer(FrameKind::somebody_joined).frame());
  for (auto rendezvous = rendezvous_table_.begin(); rendezvous != rendezvous_table_.end();) {
    const auto current = rendezvous++;
    if (only_joined_are_missing(current->first, current->second)) go_on_without_joined(current);
  }
}

bool RendezvousTable::only_joined_are_missing(const RendezvousKey& key,
                                              const Rendezvous& rendezvous) const {
  if (joined_.empty() || std::get<Purpose>(key) != Purpose::operation || !rendezvous.failure.ok() ||
      rendezvous.arrivals.begin()->second.if_joined == IfJoined::comes)
    return false;
  const std::vector<uint32_t> absent = missing(key, rendezvous);
  return std::all_of(absent.begin(), absent.end(), [&](uint32_t rank) {
    return std::find(joined_.begin(), joined_.end(), rank) != joined_.end();
  });
}

void RendezvousTable::go_on_without_joined(Map::iterator found) {
  Rendezvous& rendezvous = found->second;
  const Arrival& first = rendezvous.arrivals.begin()->second;
  if (first.if_joined != IfJoined::refused) return complete(found);
  // The absent ranks will not ask for the operation.
  const std::vector<uint32_t> absent = missing(found->first, rendezvous);
  rendezvous.notified.insert(absent.begin(), absent.end());
  fail(found, failed_precondition(
                  "'{}' ({}): {} {} joined, and a rank that has joined only adds zeros to sums; "
                  "ask for it before a rank joins, or after all ranks have joined",
                  std::get<std::string>(found->first),
                  std::string_view(first.signature).substr(0, first.signature.find('\n')),
                  name_ranks(absent), absent.size() == 1 ? "has" : "have"));
}

void RendezvousTable::notify_joined(uint32_t rank, const StepNews& news) {
  for (uint32_t other : joined_) {
    const bool is_member = news.ranks.empty() || std::find(news.ranks.begin(), news.ranks.end(),
                                                           other) != news.ranks.end();
    if (other == rank || !is_member) continue;
    if (members_.is_news(other, news.set, {news.step, news.over}))
      send_(other, encode(news, FrameKind::step_notice));
  }
}

}  // namespace penstock::control
