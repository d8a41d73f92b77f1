// Ranks come to the run: all are waited for, and none is there twice.

#include "core/control/state.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::control {

Status State::join(uint32_t rank, uint64_t now_us) {
  if (rank >= members_.size()) {
    return invalid_argument("control: rank is {}, expected below the run's {} ranks", rank,
                            members_.size());
  }
  if (members_[rank].presence != Presence::absent) {
    return failed_precondition("control: rank {} has already joined this run", rank);
  }
  members_[rank].presence = Presence::present;
  members_[rank].heard_us = now_us;
  send_(rank, Writer(FrameKind::welcome).frame());
  if (aborted()) tell_abort(rank);
  begin_if_all_are_here(now_us);
  return {};
}

void State::begin_if_all_are_here(uint64_t now_us) {
  if (begun_us_ != kNever || now_us < later(options_.start_us, options_.settle_us)) return;
  if (!in_state(Presence::absent).empty()) return;
  begun_us_ = now_us;
  // By then everybody has sent several, and has told more than once whether any came.
  ask_for_datagrams_us_ = later(now_us, std::max<uint64_t>(3 * options_.pulse_us, 2'000'000));
  for (uint32_t rank = 0; rank < members_.size(); ++rank)
    send_(rank, Writer(FrameKind::ready).frame());
}

void State::look_for_absent(uint64_t now_us) {
  if (begun_us_ != kNever) return;
  const std::vector<uint32_t> absent = in_state(Presence::absent);
  if (absent.empty()) return;
  const uint64_t waited_us = now_us - std::min(now_us, options_.start_us);
  if (waited_us >= options_.meeting_us)
    return abort_all(deadline_exceeded(
        "{} did not connect to the control server of rank 0 within {}; start all ranks, or raise "
        "runtime.meeting_timeout_s",
        name_ranks(absent), seconds(options_.meeting_us)));
  if (now_us < warn_of_absent_us_) return;
  warn_of_absent_us_ = later(now_us, options_.warning_us);
  const std::string text = fmt::format(
      "{} {} not come to the run for {}; all wait {} for the last one (runtime.meeting_timeout_s)",
      name_ranks(absent), absent.size() == 1 ? "has" : "have", seconds(waited_us),
      seconds(options_.meeting_us));
  send_(0, Writer(FrameKind::warning).text(text).frame());
}

void State::has_twin(std::string_view reason, uint64_t now_us) {
  if (begun_us_ == kNever || now_us < later(begun_us_, options_.deadline_us))
    return abort_all(failed_precondition("{}", reason));
  const std::string text =
      fmt::format("{}; this run goes on, the other process was sent away", reason);
  send_(0, Writer(FrameKind::warning).text(text).frame());
}

}  // namespace penstock::control
