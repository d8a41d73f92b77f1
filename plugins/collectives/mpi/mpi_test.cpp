// What the mpi plugin says of itself; messages are tested under mpirun (mpi_collective_mpirun.cpp).
#include <testing/gtest.hpp>

namespace penstock::test {
namespace {

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

penstock_collective_traits traits_of(const char* algorithm) {
  const Instance<penstock_collective> mpi(plugin().collective(), *plugin().module,
                                          {{"algorithm", algorithm}});
  penstock_collective_traits traits{};
  traits.struct_size = sizeof traits;
  PENSTOCK_EXPECT_OK(mpi.table().describe(mpi.self(), &traits));
  return traits;
}

TEST(Mpi, PromisesRankOrderUnlessTheNativeAlgorithmIsChosen) {
  const uint32_t promises = PENSTOCK_COLLECTIVE_SAME_BITS | PENSTOCK_COLLECTIVE_RANK_ORDER;
  for (const char* algorithm : {"auto", "direct"}) {
    const auto traits = traits_of(algorithm);
    EXPECT_EQ(traits.flags & promises, promises);
    EXPECT_EQ(traits.flags & PENSTOCK_COLLECTIVE_ORDERED, 0u);
    EXPECT_NE(traits.flags & PENSTOCK_COLLECTIVE_PROCESS_GLOBAL, 0u);
    EXPECT_EQ(traits.patterns & PENSTOCK_PATTERN_BIT(PENSTOCK_SPARSE_ALL_REDUCE), 0u);
  }
  const auto native = traits_of("native");
  EXPECT_EQ(native.flags & promises, 0u);
  EXPECT_NE(native.flags & PENSTOCK_COLLECTIVE_ORDERED, 0u);
}

TEST(Mpi, AllReduceVolumeIsTwoTimesPMinusOneOverP) {
  const Instance<penstock_collective> mpi(plugin().collective(), *plugin().module);
  penstock_volume within{sizeof within, 0, 0, 0};
  penstock_volume between{sizeof between, 0, 0, 0};
  penstock_volume* const volumes[] = {&within, &between};
  PENSTOCK_EXPECT_OK(mpi.table().volume(mpi.self(), PENSTOCK_ALL_REDUCE, 2, 4, 8'000'000, volumes));
  EXPECT_DOUBLE_EQ(within.bytes + between.bytes, 2 * 7.0 / 8 * 8e6);
  EXPECT_DOUBLE_EQ(within.reduced_bytes + between.reduced_bytes, 7.0 / 8 * 8e6);
  EXPECT_DOUBLE_EQ(within.startups + between.startups, 14);
  // A small one takes a single step.
  PENSTOCK_EXPECT_OK(mpi.table().volume(mpi.self(), PENSTOCK_ALL_REDUCE, 1, 4, 100, volumes));
  EXPECT_DOUBLE_EQ(within.bytes, 300);
  EXPECT_DOUBLE_EQ(within.startups, 3);
  EXPECT_DOUBLE_EQ(between.bytes, 0);
}

TEST(Mpi, AGroupCannotBeOpenedBeforeJoining) {
  const Instance<penstock_collective> mpi(plugin().collective(), *plugin().module);
  const uint32_t zero = 0;
  penstock_group group{};
  group.struct_size = sizeof group;
  group.world_ranks = group.hosts = &zero;
  group.size = 1;
  penstock_channel* channel = nullptr;
  EXPECT_TRUE(fails_with(mpi.table().open(mpi.self(), &group, nullptr, nullptr, 1000, &channel),
                         PENSTOCK_FAILED_PRECONDITION, "join"));
}

}  // namespace
}  // namespace penstock::test
