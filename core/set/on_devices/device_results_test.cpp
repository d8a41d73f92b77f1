// Staged gradients have the bits of gradients on the CPU. This holds for every kind of method,
// route and scheduler, in every kind of step, and for every order and delay of the devices' work.

#include "core/set/on_devices/device_testing.hpp"

#include <support/long.hpp>
#include <support/worlds.hpp>

namespace penstock::device_results_test {
namespace {

using namespace testing;  // every name in device_testing.hpp

struct Method {
  const char* name;
  const char* keys;
  const char* tables = "";
  uint32_t dtype = PENSTOCK_FLOAT32;
  uint32_t flags = 0;
  const char* collective = "loopback";
};
const Method kMethods[] = {
    {"none", "scheduler = \"wfbp\""},
    {"none_fused", "scheduler = \"fusion\""},
    {"topk", "compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"wfbp\"",
     "[compressor.topk]\ndensity = 0.05\n"},
    {"dgc", "compressor = \"dgc\"\nmemory = \"dgc\"\nscheduler = \"fusion\"",
     "[compressor.dgc]\ndensity = 0.05\n[memory.dgc]\nmomentum = 0.9\n"},
    {"powersgd", "compressor = \"powersgd\"\nmemory = \"residual\"\nscheduler = \"fusion\"",
     "[compressor.powersgd]\nrank = 2\nminimum_compression_rate = 0.0\n"},
    {"acpsgd", "compressor = \"acpsgd\"\nmemory = \"residual\"\nscheduler = \"wfbp\"",
     "[compressor.acpsgd]\nrank = 2\n"},
    {"signsgd", "compressor = \"signsgd\"\nmemory = \"none\"\nscheduler = \"wfbp\""},
    {"efsign_on_shard",
     "compressor = \"efsign\"\nmemory = \"residual\"\nscheduler = \"wfbp\"\nroute = \"shard\""},
    {"efsign_on_hierarchical",
     "compressor = \"efsign\"\nmemory = \"residual\"\nscheduler = \"wfbp\"\nroute = "
     "\"hierarchical\""},
    {"topk_of_halves", "compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"wfbp\"",
     "[compressor.topk]\ndensity = 0.05\n", PENSTOCK_FLOAT16},
    {"dear", "scheduler = \"dear\"\nroute = \"split\"", "", PENSTOCK_FLOAT32,
     PENSTOCK_SET_DEFERRED_UPDATE},
    {"oktopk",
     "compressor = \"topk\"\nmemory = \"residual\"\ntransport = \"loopback\"\nscheduler = "
     "\"wfbp\"",
     "[compressor.topk]\ndensity = 0.05\n", PENSTOCK_FLOAT32, 0, "oktopk"},
    {"pieces", "compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"hipress\"",
     "[compressor.topk]\ndensity = 0.05\n"},
};

// gtest prints a method by its name.
void PrintTo(const Method& method, std::ostream* out) {
  *out << method.name;
}

Script script_of(const Method& method, uint32_t size, const std::string& more_tables = "") {
  Script script;
  script.shapes = {{"first", {24, 16}}, {"bias", {24}}, {"second", {90, 40}},
                   {"empty", {0}},      {"last", {33}}, {"scalar", {}}};
  for (GradientShape& shape : script.shapes) shape.dtype = method.dtype;
  script.scheme = fmt::format(
      "[scheme]\ncollective = \"{}\"\n{}\n[runtime]\ndeadline_s = 20\n{}{}"
      "[collective.loopback]\nhosts = \"{}\"\n",
      method.collective, method.keys, method.tables, more_tables,
      std::string("0,0,1,1").substr(0, 2 * size - 1));
  script.size = size;
  script.steps = scripted_steps();
  script.flags = method.flags;
  return script;
}

class OnDevices : public ::testing::TestWithParam<std::tuple<Method, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, OnDevices,
                         ::testing::Combine(::testing::ValuesIn(kMethods),
                                            test::worlds({1, 2, 3, 4}, {3})),
                         testing::name_and_size);

// The ranks use two devices by turns.
Place by_rank(uint32_t rank, size_t) {
  return on_cuda(int32_t(rank % 2));
}

TEST_P(OnDevices, ResultsHaveTheBitsOfTheCpu) {
  const auto& [method, size] = GetParam();
  const Script script = script_of(method, size);
  const auto expected = results_of(script, on_the_cpu);
  const uint64_t seeds = test::is_long() ? 20 : 3;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    const SimulatedDevices devices(seed, seed % 3 == 0 ? 0.2 : 0);
    ASSERT_EQ(difference(results_of(script, by_rank), expected), "") << "seed " << seed;
  }
}

// One set with gradients on the CPU and on two devices. Each rank has other places.
TEST(Devices, OfOneSetMayBeSeveralAndTheCpu) {
  const auto mixed = [](uint32_t rank, size_t gradient) {
    return (gradient + rank) % 3 == 0 ? Place() : on_cuda(int32_t((gradient + rank) % 3 - 1));
  };
  for (const Method& method : {kMethods[1], kMethods[2]}) {
    const Script script = script_of(method, 3);
    const auto expected = results_of(script, on_the_cpu);
    const SimulatedDevices devices(7);
    EXPECT_EQ(difference(results_of(script, mixed), expected), "") << method.name;
  }
}

// A switch in the middle, and then a resume.
TEST(Devices, KeepTheirBitsThroughASwitchAndAResume) {
  Script script =
      script_of(kMethods[2], 2,
                "[[switch]]\nat_step = 5\nset = { compressor.topk.density = 0.2 }\n"
                "[[switch]]\nat_step = 9\nset = { scheme.compressor = \"none\", scheme.memory = "
                "\"none\" }\n");
  script.steps = 12;
  const auto expected = results_of(script, on_the_cpu);
  const SimulatedDevices devices(11);
  EXPECT_EQ(difference(results_of(script, by_rank), expected), "");
  constexpr uint64_t kSaved = 7;
  std::vector<std::string> saved(script.size);
  std::vector<std::vector<Bytes>> resumed(script.size);
  for (const bool resumes : {false, true})
    with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
      const auto shapes = placed(script, by_rank, rank);
      std::vector<Storage> storage;
      for (const GradientShape& shape : shapes) storage.emplace_back(shape);
      auto set = make_set(runtime, shapes);
      ASSERT_OK(set.status());
      if (resumes) ASSERT_OK(set.value()->load(saved[rank]));
      for (uint64_t step = resumes ? kSaved : 0; step < (resumes ? script.steps : kSaved); ++step) {
        ASSERT_OK(take_step(script, **set, storage, rank, step));
        Bytes read;
        for (const Storage& one : storage) read.push_back(one.read());
        if (resumes) resumed[rank].push_back(std::move(read));
      }
      if (!resumes) ASSERT_OK(set.value()->save(saved[rank]));
    });
  std::vector<std::vector<Bytes>> tails;
  for (const auto& steps : expected) tails.emplace_back(steps.begin() + kSaved, steps.end());
  EXPECT_EQ(difference(resumed, tails), "");
}

// The sum of the gradients equals the sum of the results, after some steps without compression.
TEST(Devices, LoseNoMass) {
  constexpr uint64_t kSteps = 20;
  const Script script =
      script_of(kMethods[2], 3,
                fmt::format("[[switch]]\nat_step = {}\nset = {{ scheme.compressor = \"none\", "
                            "scheme.memory = \"none\" }}\n",
                            kSteps));
  std::vector<std::vector<double>> in, out;
  for (const GradientShape& shape : script.shapes) in.emplace_back(numel_of(shape.shape));
  out = in;
  for (uint64_t step = 0; step <= kSteps; ++step)
    for (uint32_t rank = 0; rank < script.size; ++rank) {
      const Values gradients = gradients_of(script, rank, step);
      for (size_t g = 0; g < in.size(); ++g)
        for (size_t i = 0; i < in[g].size(); ++i) in[g][i] += gradients[g][i];
    }
  const SimulatedDevices devices(5, 0.1);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = placed(script, by_rank, rank);
    std::vector<Storage> storage;
    for (const GradientShape& shape : shapes) storage.emplace_back(shape);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step <= kSteps; ++step) {
      const Values gradients = gradients_of(script, rank, step);
      for (size_t i = storage.size(); i-- > 0;) {
        storage[i].write(gradients[i]);
        ASSERT_OK(set.value()->gradient_ready(i, storage[i].tensor(), storage[i].stream()));
      }
      ASSERT_OK(end_step(**set, storage, Waits(step % 4), true));
      for (size_t g = 0; rank == 0 && g < storage.size(); ++g) {
        const std::string read = storage[g].read();
        const auto* mean = reinterpret_cast<const float*>(read.data());
        for (size_t i = 0; i < out[g].size(); ++i) out[g][i] += double(mean[i]) * script.size;
      }
    }
  });
  for (size_t g = 0; g < in.size(); ++g)
    for (size_t i = 0; i < in[g].size(); ++i)
      // Sums of 20 steps in float32, of entries up to some hundreds.
      ASSERT_NEAR(out[g][i], in[g][i], 1e-3 + 1e-4 * std::abs(in[g][i]))
          << script.shapes[g].name << "[" << i << "]";
}

}  // namespace
}  // namespace penstock::device_results_test
