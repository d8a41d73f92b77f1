// Device-resident gradients. Results and states of memories have the bits of the CPU in every kind
// of step, also if the device works as late as possible.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/long.hpp>
#include <support/worlds.hpp>

#include <mutex>

namespace penstock::resident_results_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

class ResidentsOf : public ::testing::TestWithParam<std::tuple<ResidentMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, ResidentsOf,
                         ::testing::Combine(::testing::ValuesIn(kResidentMethods),
                                            test::worlds({1, 2, 3, 4}, {3})),
                         testing::name_and_size);

TEST_P(ResidentsOf, ResultsAndResidualsHaveTheBitsOfTheCpu) {
  const auto& [method, size] = GetParam();
  const Script script = resident_script(method, size);
  expect_bits_of_the_cpu(script, by_rank, script, {1, test::is_long() ? 20u : 2u});
}

// Results have the loss scale, and one more rounding.
TEST(Residents, ALossScaleGivesTheBitsOfTheCpu) {
  const Script script = resident_script(kResidentMethods[1], 2);
  const auto results = [&](const Places& places) {
    std::vector<std::vector<Bytes>> results(script.size);
    with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
      const auto shapes = placed(script, places, rank);
      std::vector<Storage> storage = storage_of(shapes);
      auto set = make_set(runtime, shapes);
      ASSERT_OK(set.status());
      for (uint64_t step = 0; step < script.steps; ++step) {
        ASSERT_OK(set.value()->grad_scale(step % 2 == 0 ? 3 : 1024));
        ASSERT_OK(take_step(script, **set, storage, rank, step));
        Bytes& read = results[rank].emplace_back();
        for (const Storage& one : storage) read.push_back(one.read());
      }
    });
    return results;
  };
  const auto expected = results(on_the_cpu);
  const SimulatedDevices devices(13);
  EXPECT_EQ(difference(results(by_rank), expected), "");
}

// Three places in one set and in one bucket: on a device, on the CPU, and staged. A gradient is
// staged if it is float64 or lies on another device than the device of the set.
TEST(Residents, MixWithTheCpuAndWithStagingBuffers) {
  for (const ResidentMethod& method : {kResidentMethods[0], kResidentMethods[1]}) {
    Script script = resident_script(method, 3, kDoublesAsTheyAre);
    script.shapes[2].dtype = PENSTOCK_FLOAT64;
    const Places mixed = [](uint32_t rank, size_t gradient) {
      if (gradient == 1) return Place();
      return on_cuda(int32_t(gradient == 4 ? (rank + 1) % 2 : rank % 2));
    };
    const auto expected = results_of(script, on_the_cpu);
    const SimulatedDevices devices(7);
    EXPECT_EQ(difference(results_of(script, mixed), expected), "") << method.name;
  }
}

TEST(Residents, GoOnFromASavedStateAndSaveWhatTheCpuCanLoad) {
  Script script = resident_script(kResidentMethods[1], 2);
  script.steps = 12;
  const auto expected = results_of(script, on_the_cpu);
  constexpr uint64_t kSaved = 7;
  std::vector<std::vector<Bytes>> tails;
  for (const auto& steps : expected) tails.emplace_back(steps.begin() + kSaved, steps.end());
  for (const auto& [before, after] : {std::pair<Places, Places>(by_rank, by_rank),
                                      {by_rank, on_the_cpu},
                                      {on_the_cpu, by_rank}}) {
    const SimulatedDevices devices(11);
    std::vector<std::string> saved(script.size);
    std::vector<std::vector<Bytes>> resumed(script.size);
    for (const bool resumes : {false, true})
      with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
        const auto shapes = placed(script, resumes ? after : before, rank);
        std::vector<Storage> storage = storage_of(shapes);
        auto set = make_set(runtime, shapes);
        ASSERT_OK(set.status());
        if (resumes) ASSERT_OK(set.value()->load(saved[rank]));
        for (uint64_t step = resumes ? kSaved : 0; step < (resumes ? script.steps : kSaved);
             ++step) {
          ASSERT_OK(take_step(script, **set, storage, rank, step));
          if (!resumes) continue;
          Bytes& read = resumed[rank].emplace_back();
          for (const Storage& one : storage) read.push_back(one.read());
        }
        if (!resumes) ASSERT_OK(set.value()->save(saved[rank]));
      });
    EXPECT_EQ(difference(resumed, tails), "");
  }
}

// One rank continues from the kept values of two ranks. The sum of the residuals has equal bits in
// both places.
TEST(Residents, TakeOverTheShardsOfMoreRanks) {
  const Script two = resident_script(kResidentMethods[0], 2);
  const SimulatedDevices devices(3);
  const std::vector<std::string> saved = outcome_of(two, by_rank).saved;
  const Script one = resident_script(kResidentMethods[0], 1);
  std::vector<std::string> summed;
  for (const Places& places : {Places(on_the_cpu), Places(by_rank)})
    with_device_ranks(1, one.scheme, [&](Runtime& runtime, uint32_t) {
      auto set = make_set(runtime, placed(one, places, 0));
      ASSERT_OK(set.status());
      const std::vector<std::string_view> shards(saved.begin(), saved.end());
      std::string said;
      ASSERT_OK(set.value()->load_shards(shards, said));
      ASSERT_OK(set.value()->save(summed.emplace_back()));
    });
  ASSERT_EQ(summed.size(), 2u);
  EXPECT_TRUE(summed[0] == summed[1]);
}

// A reset in the middle of a step removes every residual.
TEST(Residents, ForgetInAReset) {
  const Script script = resident_script(kResidentMethods[0], 2);
  const SimulatedDevices devices(5);
  with_device_ranks(2, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = placed(script, by_rank, rank);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    std::string fresh, again;
    ASSERT_OK(set.value()->save(fresh));
    std::vector<Storage> storage = storage_of(shapes);
    ASSERT_OK(take_step(script, **set, storage, rank, 0));
    storage[1].write(std::vector<float>(24, 1));
    ASSERT_OK(set.value()->gradient_ready(1, storage[1].tensor(), storage[1].stream()));
    ASSERT_OK(set.value()->reset());
    ASSERT_OK(set.value()->save(again));
    // Everything except the step number and the checksum. Most bytes are residuals.
    ASSERT_EQ(fresh.size(), again.size());
    size_t n_different = 0;
    for (size_t i = 0; i < fresh.size(); ++i) n_different += fresh[i] != again[i];
    EXPECT_LE(n_different, 16u);
  });
}

// The gradients of the ranks equal the results plus the kept values.
TEST(Residents, LoseNoMass) {
  constexpr uint64_t kSteps = 20, kNumel = 500;
  const SimulatedDevices devices(5, 0.1);
  Script script = resident_script(kResidentMethods[0], 3);
  script.shapes = {{"x", {kNumel}}};
  std::vector<double> in(kNumel), out(kNumel);
  for (uint64_t step = 0; step < kSteps; ++step)
    for (uint32_t rank = 0; rank < script.size; ++rank) {
      const Values gradients = gradients_of(script, rank, step);
      for (size_t i = 0; i < kNumel; ++i) in[i] += gradients[0][i];
    }
  std::mutex mutex;
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = placed(script, by_rank, rank);
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const auto step_with = [&](const std::vector<float>& values) {
      storage[0].write(values);
      ASSERT_OK(set.value()->gradient_ready(0, storage[0].tensor(), storage[0].stream()));
      ASSERT_OK(end_step(**set, storage, Waits::by_streams, true));
      const std::string read = storage[0].read();
      std::lock_guard lock(mutex);
      if (rank == 0)
        for (size_t i = 0; i < kNumel; ++i)
          out[i] += double(reinterpret_cast<const float*>(read.data())[i]) * script.size;
    };
    for (uint64_t step = 0; step < kSteps; ++step) step_with(gradients_of(script, rank, step)[0]);
    // A step sends 25 of the 500 entries, so 20 more steps send every kept entry.
    for (uint64_t step = 0; step < 20; ++step) step_with(std::vector<float>(kNumel, 0));
  });
  for (size_t i = 0; i < kNumel; ++i)
    // Sums of 20 steps in float32, of entries up to some hundreds.
    ASSERT_NEAR(out[i], in[i], 1e-3 + 1e-4 * std::abs(in[i])) << i;
}

}  // namespace
}  // namespace penstock::resident_results_test
