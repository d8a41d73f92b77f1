#include "core/control/stay.hpp"

#include "core/base/clock.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::control {

Stay::Stay(Server& server, uint64_t most_us, uint64_t warning_us, Warn warn)
    : server_(server),
      most_us_(most_us),
      warning_us_(warning_us),
      warn_(std::move(warn)),
      since_us_(now_us()),
      warn_at_us_(warning_us == 0 || warn_ == nullptr ? kNever : since_us_ + warning_us) {
  server_.end_within(most_us);
}

bool Stay::wait(uint64_t wait_us) {
  const uint64_t until_us = later(now_us(), wait_us);
  while (true) {
    const uint64_t begin_us = now_us();
    const uint64_t next_us = std::max(begin_us, std::min(until_us, warn_at_us_));
    const std::vector<uint32_t> left = server_.wait_for_end(next_us - begin_us);
    if (left.empty()) return true;
    const uint64_t now = now_us();
    if (now >= warn_at_us_) warn_of(left, now);
    if (now >= until_us) return false;
  }
}

void Stay::warn_of(const std::vector<uint32_t>& ranks, uint64_t now_us) {
  warn_at_us_ = now_us + warning_us_;
  warn_(
      fmt::format("rank 0 has ended, {:.0f} s ago, and stays for {}: it serves their control "
                  "connections; it stays at most {:.0f} s (runtime.busy_limit_s). To end rank 0 "
                  "(Ctrl-C) ends the run",
                  double(now_us - since_us_) * 1e-6, name_ranks(ranks), double(most_us_) * 1e-6));
}

}  // namespace penstock::control
