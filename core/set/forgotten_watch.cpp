#include "core/set/forgotten_watch.hpp"

#include <fmt/format.h>

#include <cmath>

namespace penstock {
namespace {

constexpr uint64_t kMany = 8;  // number of consecutive forgotten steps that give a warning

}  // namespace

Result<bool> ForgottenWatch::ends_patience(bool counts, const StateStore& states) {
  in_a_row_ = counts ? 0 : in_a_row_ + 1;
  const uint64_t limit = services_.config.runtime().forget_limit;
  if (limit != 0 && in_a_row_ >= limit) {
    services_.log.write(
        LogLevel::warning, "set",
        fmt::format("set '{}': the results of {} successive steps were thrown away, so the "
                    "memories were cleared ([runtime] forget_limit = {})",
                    set_.name, in_a_row_, limit));
    return true;
  }
  if (in_a_row_ == kMany && !std::exchange(has_warned_, true)) PENSTOCK_TRY(warn(states));
  set_.measures_norm = in_a_row_ + 1 == kMany && !has_warned_;
  set_.square_norm = 0;
  return false;
}

Status ForgottenWatch::warn(const StateStore& states) {
  PENSTOCK_ASSIGN(const double kept, states.square_norm_of_mass());
  if (kept == 0) return {};  // the cause is not a memory
  const double gradient = set_.square_norm.load();
  services_.log.write(
      LogLevel::warning, "set",
      fmt::format("set '{}': the results of the last {} steps were all thrown away. On rank {} "
                  "memories keep a norm of {:.3g} from earlier steps{}. If a limit on the norm "
                  "rejects the steps because of this, the memories will not shrink by themselves: "
                  "call let_go() of the state or the optimizer on every rank, or set [runtime] "
                  "forget_limit = {}",
                  set_.name, kMany, set_.rank, std::sqrt(kept),
                  gradient > 0 ? fmt::format("; the norm of this step's gradient was {:.3g}",
                                             std::sqrt(gradient))
                               : std::string(),
                  kMany));
  return {};
}

}  // namespace penstock
