// A guard that never lets go: a forgotten step leaves nothing, so it cannot repeat itself; but what
// an earlier, applied one has left in the memories comes again in each that follows, and a limit on
// the norm may throw them all away, for ever.

#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"

#include <cmath>

namespace penstock {
namespace {

constexpr uint64_t kMany = 8;  // forgotten steps running that are worth a word

}  // namespace

// What is kept is dropped; of a memory all of it together, for its parts mean nothing alone.
Status Set::let_go() {
  PENSTOCK_TRY(services_.state());
  if (step_.under_way()) PENSTOCK_TRY(step_end(PENSTOCK_STEP_FORGOTTEN));
  return drop_kept();
}

Status Set::drop_kept() {
  const auto drop = [&] { return works_->states().zero_of("memory/"); };
  PENSTOCK_TRY(residents_ == nullptr ? drop() : engine->run(drop));
  for (auto& gradient : gradients_) gradient->has_carry = false;
  forgotten_running_ = 0;
  // A rank that alone has let go is found like one that alone has forgotten.
  past ^= 1;
  last_was_applied = false;
  return {};
}

// After a step: what it means that so many were forgotten, one after the other.
Status Set::watch_forgotten(bool counts) {
  forgotten_running_ = counts ? 0 : forgotten_running_ + 1;
  const uint64_t limit = services_.config.runtime().forget_limit;
  if (limit != 0 && forgotten_running_ >= limit) {
    services_.log.write(
        LogLevel::warning, "set",
        fmt::format("set '{}': the results of {} steps running were thrown away, so "
                    "what memories keep was let go ([runtime] forget_limit = {})",
                    name, forgotten_running_, limit));
    return drop_kept();
  }
  if (forgotten_running_ == kMany) PENSTOCK_TRY(warn_of_forgotten());
  measures_norm = forgotten_running_ + 1 == kMany && !said_forgotten_;
  square_norm = 0;
  return {};
}

Status Set::warn_of_forgotten() {
  if (said_forgotten_) return {};
  said_forgotten_ = true;
  const auto measure = [&] { return works_->states().square_norm_of_mass(); };
  PENSTOCK_ASSIGN(const double kept, measure());
  if (kept == 0) return {};  // they do not come from here
  const double gradient = square_norm.load();
  services_.log.write(
      LogLevel::warning, "set",
      fmt::format("set '{}': the results of the last {} steps were all thrown away. On rank {} "
                  "memories keep a "
                  "norm of {:.3g} from earlier steps{}. If that is what a limit on the norm stops, "
                  "it will not "
                  "go by itself: call let_go() of the state or the optimizer on every rank, or set "
                  "[runtime] "
                  "forget_limit = {}",
                  name, kMany, rank, std::sqrt(kept),
                  gradient > 0 ? fmt::format("; the norm of this step's gradient was {:.3g}",
                                             std::sqrt(gradient))
                               : std::string(),
                  kMany));
  return {};
}

}  // namespace penstock
