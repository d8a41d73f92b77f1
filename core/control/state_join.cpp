// Ranks whose data is at an end, while others go on: those ask for sums, to which ranks that have
// joined add zeros, and tell of their steps, in which ranks that have joined take part.
#include "core/control/state.hpp"

#include <algorithm>

namespace penstock::control {

// What others wait for may be waited for no more.
void State::has_joined(uint32_t rank) {
  joined_.push_back(rank);
  members_[rank].told.clear();
  for (uint32_t other = 0; other < members_.size(); ++other)
    if (other != rank) send_(other, Writer(FrameKind::somebody_joined).frame());
  for (auto meeting = meetings_.begin(); meeting != meetings_.end();) {
    const auto current = meeting++;
    if (only_joined_are_missing(current->first, current->second)) go_on_without_joined(current);
  }
}

bool State::only_joined_are_missing(const MeetingKey& key, const Meeting& meeting) const {
  if (joined_.empty() || std::get<Purpose>(key) != Purpose::operation || !meeting.failure.ok() ||
      meeting.arrivals.begin()->second.if_joined == IfJoined::comes)
    return false;
  const std::vector<uint32_t> absent = missing(key, meeting);
  return std::all_of(absent.begin(), absent.end(), [&](uint32_t rank) {
    return std::find(joined_.begin(), joined_.end(), rank) != joined_.end();
  });
}

void State::go_on_without_joined(Meetings::iterator found) {
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

void State::tell_joined(uint32_t rank, const StepNews& news) {
  for (uint32_t other : joined_) {
    const bool is_member = news.ranks.empty() || std::find(news.ranks.begin(), news.ranks.end(),
                                                           other) != news.ranks.end();
    if (other == rank || !is_member) continue;
    const std::pair now(news.step, news.over);
    const auto [told, is_new] = members_[other].told.try_emplace(news.set, now);
    if (!is_new && told->second >= now) continue;
    told->second = now;
    send_(other, encode(news, FrameKind::step_told));
  }
}

}  // namespace penstock::control
