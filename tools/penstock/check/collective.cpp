// penstock check: tests the parts of a collective that need no peers.
#include "tools/penstock/check/tests.hpp"

#include <cmath>

namespace penstock::command {

namespace {

TestOutcome test_describe(const Subject& subject) {
  auto made = make_default<penstock_collective>(subject);
  if (!made.ok()) return made.status();
  const CollectiveInstance& instance = **made;
  const penstock_collective_traits& traits = instance.traits();
  const bool transport = (traits.flags & PENSTOCK_COLLECTIVE_TRANSPORT) != 0;
  const bool composite = (traits.flags & PENSTOCK_COLLECTIVE_COMPOSITE) != 0;
  if (transport == composite)
    return internal("describe calls it {}, expected either a transport or a composite",
                    transport ? "both" : "neither");
  if (transport && (!PENSTOCK_HAS_MEMBER(instance.table(), penstock_collective, join) ||
                    !PENSTOCK_HAS_MEMBER(instance.table(), penstock_collective, leave)))
    return internal("a transport needs join and leave");
  if ((traits.flags & PENSTOCK_COLLECTIVE_MAY_REFUSE) != 0 &&
      !PENSTOCK_HAS_MEMBER(instance.table(), penstock_collective, returned))
    return internal("it may refuse entries, but has no member returned");
  if (traits.patterns == 0) return internal("describe names no message pattern");
  if (traits.device_types == 0) return internal("describe names no device");
  penstock_collective_traits again{};
  again.struct_size = sizeof again;
  if (Status status = from_c(instance->describe(instance.self(), &again)); !status.ok())
    return status;
  if (again.patterns != traits.patterns || again.flags != traits.flags)
    return internal("describe says something else when asked twice");
  return {};
}

Status check_volume(const CollectiveInstance& instance, uint32_t pattern, uint32_t hosts,
                    uint32_t ranks_per_host) {
  double before = 0;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 34}) {
    penstock_volume volumes[2] = {};
    penstock_volume* pointers[] = {&volumes[0], &volumes[1]};
    for (penstock_volume& volume : volumes) volume.struct_size = sizeof volume;
    const std::string what = fmt::format("volume of {} bytes, pattern {}, {} host(s) of {} rank(s)",
                                         bytes, pattern, hosts, ranks_per_host);
    doing(what);
    PENSTOCK_TRY(
        from_c(instance->volume(instance.self(), pattern, hosts, ranks_per_host, bytes, pointers))
            .with_context(what));
    for (const penstock_volume& volume : volumes)
      for (const double value : {volume.startups, volume.bytes, volume.reduced_bytes})
        if (!std::isfinite(value) || value < 0) return internal("{} has a part of {}", what, value);
    if (hosts == 1 && volumes[1].bytes != 0)
      return internal("{}: {} bytes between hosts", what, volumes[1].bytes);
    const double total = volumes[0].bytes + volumes[1].bytes;
    if (total < before) return internal("{}: fewer bytes than for a smaller message", what);
    before = total;
  }
  return {};
}

TestOutcome test_volume(const Subject& subject) {
  auto instance = make_default<penstock_collective>(subject);
  if (!instance.ok()) return instance.status();
  for (uint32_t pattern = PENSTOCK_ALL_REDUCE; pattern <= PENSTOCK_SPARSE_ALL_REDUCE; ++pattern) {
    if (((*instance)->traits().patterns & PENSTOCK_PATTERN_BIT(pattern)) == 0) continue;
    for (const auto& [hosts, ranks] : {std::pair(1u, 1u), {1u, 4u}, {2u, 1u}, {3u, 8u}})
      if (Status status = check_volume(**instance, pattern, hosts, ranks); !status.ok())
        return status;
  }
  return {};
}

TestOutcome test_messages(const Subject&) {
  return {Verdict::skipped,
          "moving messages needs other ranks, which this command does not start; run a program "
          "with it under penstock run"};
}

}  // namespace

std::vector<Test> collective_tests() {
  return {loaded("describe", test_describe), loaded("volume", test_volume),
          loaded("messages", test_messages)};
}

}  // namespace penstock::command
