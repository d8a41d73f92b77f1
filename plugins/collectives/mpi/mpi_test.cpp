// The declarations of the mpi plugin; messages are tested under mpirun (mpi_collective_mpirun.cpp).
#include <testing/gtest.hpp>

namespace penstock::test {
namespace {

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

penstock_collective_traits traits_of(const char* algorithm, const char* device_memory = "auto") {
  const Instance<penstock_collective> mpi(
      plugin().collective(), *plugin().module,
      {{"algorithm", algorithm}, {"device_memory", device_memory}});
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

// The answer of the MPI library about devices is tested under mpirun (device_ranks.cpp).
TEST(Mpi, CopiesMemoryOfDevicesAndAddsNoneUpUnlessItIsToldNotTo) {
  constexpr uint64_t kCuda = uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  for (const char* says : {"auto", "yes", "no"}) {
    const auto traits = traits_of("auto", says);
    const bool takes = std::string_view(says) != "no";
    EXPECT_EQ((traits.device_types & kCuda) != 0, takes) << says;
    EXPECT_EQ((traits.flags & PENSTOCK_COLLECTIVE_TAKES_FINISHED) != 0, takes) << says;
    const uint64_t sums =
        PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE) | PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER);
    EXPECT_EQ(traits.device_patterns, takes ? traits.patterns & ~sums : 0) << says;
  }
}

// A host of ABI 0.7 knows neither the field nor the flag.
TEST(Mpi, AnOlderHostIsToldOfHostMemoryAlone) {
  const Instance<penstock_collective> mpi(plugin().collective(), *plugin().module);
  penstock_collective_traits traits{};
  traits.struct_size = offsetof(penstock_collective_traits, device_patterns);
  PENSTOCK_EXPECT_OK(mpi.table().describe(mpi.self(), &traits));
  EXPECT_EQ(traits.device_types, uint64_t{1} << PENSTOCK_DEVICE_CPU);
  EXPECT_EQ(traits.flags & PENSTOCK_COLLECTIVE_TAKES_FINISHED, 0u);
  EXPECT_EQ(traits.device_patterns, 0u);
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
  // A small message takes a single step.
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
