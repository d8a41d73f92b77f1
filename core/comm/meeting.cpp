#include "core/comm/meeting.hpp"

#include <unistd.h>

#include <fstream>
#include <map>

namespace penstock {
namespace {

// Equal on the ranks of one host, other on other hosts, though they may be called the same.
std::string name_of_this_host() {
  char name[256] = {};
  (void)gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{} {}", name, boot);
}

// From 0, in the order in which ranks have them first.
std::vector<uint32_t> numbered(const std::vector<std::string>& names) {
  std::map<std::string_view, uint32_t> numbers;
  std::vector<uint32_t> hosts;
  for (const std::string& name : names)
    hosts.push_back(numbers.try_emplace(name, static_cast<uint32_t>(numbers.size())).first->second);
  return hosts;
}

}  // namespace

Result<Meeting> meet_at(const Rendezvous& rendezvous, Control::Options options) {
  options.rank = rendezvous.rank;
  options.size = rendezvous.size;
  options.place = {rendezvous.host, rendezvous.port, rendezvous.token};
  const uint64_t deadline_us = options.deadline_us;
  const auto in_meeting = [&](const Status& status) {
    return status.with_context(
        fmt::format("meeting the other ranks, by the variables {}", rendezvous.said));
  };
  Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
  if (!control.ok()) return in_meeting(control.status());
  const auto names = control.value()->gather("hosts", name_of_this_host(), {}, deadline_us);
  if (!names.ok()) return in_meeting(names.status());
  PENSTOCK_ASSIGN(Group world, Group::joined(rendezvous.rank, numbered(names.value())));
  return Meeting{std::move(world), std::move(control.value())};
}

}  // namespace penstock
