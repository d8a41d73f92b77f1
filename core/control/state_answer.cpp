// How meetings end: with an answer to all who have come, or with a failure.
#include "core/control/state.hpp"

namespace penstock::control {

void State::complete(Meetings::iterator found) {
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

void State::answer_operations() {
  std::map<uint32_t, uint64_t> left;
  for (auto answer = answers_.rbegin(); answer != answers_.rend(); ++answer)
    if (answer->counts) answer->reply.left = left[answer->rank]++;
  for (Answer& answer : answers_) {
    if (answer.zeros) answer.zeros->left = answer.reply.left;
    send_(answer.rank, answer.zeros ? encode(*answer.zeros) : encode(answer.reply));
  }
  answers_.clear();
}

void State::fail(Meetings::iterator found, Status failure) {
  // A step that cannot be finished ends the run: all hear it in the same words.
  if (std::get<Purpose>(found->first) == Purpose::step) return abort_all(failure);
  if (std::get<Purpose>(found->first) == Purpose::join) joined_.clear();
  Meeting& meeting = found->second;
  for (const auto& [rank, arrival] : meeting.arrivals) {
    reply(rank, arrival.id, failure);
    meeting.told.insert(rank);
  }
  meeting.failure = std::move(failure);
  meeting.until_us = meeting.warn_us = meeting.circle_us = kNever;
  for (uint32_t rank : std::get<2>(found->first)) {
    if (members_[rank].presence != Presence::present) meeting.told.insert(rank);
  }
  forget_if_told(found);
}

void State::forget_if_told(Meetings::iterator found) {
  if (found->second.told.size() == std::get<2>(found->first).size()) meetings_.erase(found);
}

}  // namespace penstock::control
