// One rank of a run whose transport has no launcher. The transport is told rank, size, hosts and
// store when it joins. It finds the other ranks through that store and prints one line with its
// results. It moves no message, because a run that only opens and ends needs no messages. Argument:
// the deadline in seconds. FAILS_IN_JOIN: the transport of rank 1 cannot join. PROFILE: value of
// that key.
#include "core/runtime/runtime.hpp"

#include <cstdio>
#include <cstdlib>

namespace penstock {
namespace {

struct Notified {
  uint32_t rank = 0, size = 0;
  uint64_t sum = 0;  // sum of the values that the ranks put into the store

  // Exchanges values as a transport would exchange addresses.
  Status join(penstock_world& world, uint64_t timeout_us) {
    if (!PENSTOCK_HAS_FIELD(&world, penstock_world, store) || world.store == nullptr)
      return internal("join was told no store");
    rank = world.rank;
    size = world.size;
    const auto key = [](uint32_t of) { return fmt::format("address of {}", of); };
    const penstock_key_value_store& store = *world.store;
    if (rank == 1 && std::getenv("FAILS_IN_JOIN") != nullptr)
      return failed_precondition("out of descriptors");
    PENSTOCK_TRY(from_c(store.put(store.context, str(key(rank)), str(std::to_string(rank + 10)))));
    for (uint32_t other = 0; other < size; ++other) {
      const auto add = [](void* to, penstock_str value) {
        *static_cast<uint64_t*>(to) += std::stoull(std::string(view(value)));
      };
      PENSTOCK_TRY(from_c(store.get(store.context, str(key(other)), timeout_us, &sum, add)));
    }
    return {};
  }
};

penstock_collective told_table() {
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = [](void*, penstock_collective_traits* traits) -> penstock_status* {
    traits->flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_IS_NOTIFIED;
    traits->patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE);
    traits->device_types = uint64_t{1} << PENSTOCK_DEVICE_CPU;
    return nullptr;
  };
  table.join = [](void* self, uint64_t timeout_us, penstock_world* world) {
    return to_c(static_cast<Notified*>(self)->join(*world, timeout_us));
  };
  table.open = [](void* self, const penstock_group*, const penstock_base_channel*,
                  const penstock_key_value_store*, uint64_t,
                  penstock_channel** channel) -> penstock_status* {
    *channel = static_cast<penstock_channel*>(self);
    return nullptr;
  };
  table.volume = [](void*, uint32_t, uint32_t, uint32_t, uint64_t, penstock_volume* const*) {
    return to_c(unimplemented("it moves nothing, so there is no volume"));
  };
  table.submit = [](void*, penstock_channel*, const penstock_message*, penstock_ticket**) {
    return to_c(unimplemented("it moves no message"));
  };
  table.progress = [](void*, penstock_ticket*, uint32_t*) {
    return to_c(unimplemented("it moves no message"));
  };
  table.release = [](void*, penstock_ticket*) {};
  table.abort = [](void*, penstock_channel*) {};
  table.close = [](void*, penstock_channel*) {};
  table.leave = [](void*, uint32_t) {};
  return table;
}

Status open_and_tell(double deadline_s) {
  const penstock_collective table = told_table();
  Notified notified;
  std::string text = fmt::format(
      "[scheme]\ncollective = \"borrowed\"\n[runtime]\ndeadline_s = {0}\nbusy_limit_s = "
      "{0}\nrendezvous_timeout_s = {0}\n",
      deadline_s);
  if (const char* profile = std::getenv("PROFILE"))
    text += fmt::format("profile = \"{}\"\n", profile);
  penstock_runtime_options options{};
  options.struct_size = sizeof options;
  options.config_text = str(text);
  options.borrowed_collective = &table;
  options.borrowed_instance = &notified;
  PENSTOCK_ASSIGN(const RuntimeHandle runtime, Runtime::open(options));
  const Group& world = runtime->world();
  if (notified.rank != world.rank() || notified.size != world.size())
    return internal("the transport was told another rank or size than the run has");
  std::puts(fmt::format("rank {} of {} on {} hosts, local {} of {}, sum {}", world.rank(),
                        world.size(), world.n_hosts(), world.local().rank(), world.local().size(),
                        notified.sum)
                .c_str());
  return {};
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const penstock::Status status = penstock::open_and_tell(argc > 1 ? std::atof(argv[1]) : 20);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
