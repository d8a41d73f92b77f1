// One rank: it meets the other ranks by the variables of its launcher, exchanges a value with each
// rank through the store, and prints one line with the results. Argument: the deadline in seconds.
// RENDEZVOUS_S: how long it waits for missing ranks, with a warning each second.
#include "core/comm/rendezvous.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace penstock {
namespace {

Status meet_and_tell(uint64_t deadline_us) {
  PENSTOCK_ASSIGN(const std::optional<Rendezvous> rendezvous, rendezvous_of());
  if (!rendezvous) {
    std::puts("alone");
    return {};
  }
  Control::Options options;
  options.deadline_us = deadline_us;
  options.heartbeat_us = 50'000;
  if (const char* rendezvous_s = std::getenv("RENDEZVOUS_S")) {
    options.rendezvous_us = static_cast<uint64_t>(std::atof(rendezvous_s) * 1e6);
    options.warning_us = 1'000'000;
    options.on_warning = [](const std::string& text) { std::puts(("warning: " + text).c_str()); };
  }
  PENSTOCK_ASSIGN(JoinedRanks joined, meet_at(*rendezvous, std::move(options)));
  const Group& world = joined.world;
  Control& control = *joined.control;
  PENSTOCK_TRY(control.put(fmt::format("of {}", world.rank()), std::to_string(world.rank() + 10)));
  uint64_t sum = 0;
  for (const uint32_t rank : world.ranks()) {
    PENSTOCK_ASSIGN(const std::string value, control.get(fmt::format("of {}", rank), deadline_us));
    sum += std::stoull(value);
  }
  PENSTOCK_TRY(control.agree("the sum", std::to_string(sum), {}, deadline_us));
  std::puts(fmt::format("rank {} of {} on {} hosts, local {} of {}, sum {}", world.rank(),
                        world.size(), world.n_hosts(), world.local().rank(), world.local().size(),
                        sum)
                .c_str());
  control.stop();
  return {};
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 20;
  const penstock::Status status = penstock::meet_and_tell(static_cast<uint64_t>(seconds * 1e6));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
