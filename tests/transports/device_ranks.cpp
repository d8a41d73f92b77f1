// Gradients on a device whose pairs go from device to device over a real transport. The transport
// believes that it can use device memory, because the host can read the memory of the simulated
// device. Every rank is a process with its own device, and all ranks run these tests. Arguments:
// the run's collective, the transport between devices, and the arguments of GoogleTest.
#include "core/set/on_devices/resident_testing.hpp"

#include "printing.hpp"

#include <support/long.hpp>

#include <cuda_runtime_api.h>

namespace penstock::device_ranks {
namespace {

using namespace testing;  // every name in resident_testing.hpp

std::string collective, between;  // from the command line

std::string with(const std::string& device_memory) {
  return fmt::format("[transport]\ndevice = \"{0}\"\n[collective.{0}]\ndevice_memory = \"{1}\"\n",
                     between, device_memory);
}
std::string scheme_of(const ResidentMethod& method, const std::string& tables) {
  std::string scheme = resident_scheme(method, tables);
  const std::string name = "loopback";
  return scheme.replace(scheme.find(name), name.size(), collective);
}

// This process as a rank of a run. The device is open as long as the object lives.
class Rank {
 public:
  Rank(const ResidentMethod& method, const std::string& tables, uint64_t seed = 1) {
    simulated::Settings settings;
    settings.devices = 2;
    settings.seed = seed;
    settings.open_to_hosts = true;
    simulated::reset(settings);
    auto opened = open_rank_over_devices(scheme_of(method, tables));
    status_ = opened.status();
    if (opened.ok()) runtime_ = std::move(*opened);
  }
  ~Rank() {
    runtime_.reset();
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
  }
  const Status& status() const { return status_; }
  Runtime& runtime() { return *runtime_; }
  uint32_t number() const { return runtime_->world().rank(); }
  uint32_t size() const { return runtime_->world().size(); }
  uint64_t direct_messages() const { return channel().messages_sent; }
  uint64_t direct_bytes() const { return channel().bytes_sent; }

 private:
  const Channel& channel() const { return *runtime_->between_devices().channel; }
  Status status_;
  RuntimeHandle runtime_;
};

const Place kThere = on_cuda(1);

Place on_the_device(uint32_t, size_t) {
  return kThere;
}

struct Outcome {
  std::vector<Bytes> results;
  std::string saved;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(Rank& rank, const ResidentMethod& method, const Places& places) {
  Script script = resident_script(method, rank.size());
  Outcome outcome;
  leave_outcome(rank.runtime(), script, places, rank.number(), outcome.results, outcome.saved);
  return outcome;
}

Outcome on_the_cpu_alone(const ResidentMethod& method) {
  Rank rank(method, "");
  EXPECT_TRUE(rank.status().ok()) << rank.status().message();
  return rank.status().ok() ? outcome_of(rank, method, on_the_cpu) : Outcome();
}

const ResidentMethod kPairs[] = {
    {"topk", kWithResidual},
    {"topk_one_by_one", kOneByOne},
    {"topk_with_dgc", kWithDgc},
    {"topk_in_short_halves", kWithResidual, 0, "topk-simulated",
     "density = 0.1\nvalue_type = \"bf16\"\n"},
    {"threshold", kWithResidual, 0, "threshold-simulated",
     "threshold = 1.5\nvalue_type = \"fp32\"\n"},
};

class Pairs : public ::testing::TestWithParam<ResidentMethod> {};
INSTANTIATE_TEST_SUITE_P(Methods, Pairs, ::testing::ValuesIn(kPairs),
                         [](const auto& info) { return std::string(info.param.name); });

// Some steps are void, forgotten, or without a gradient.
TEST_P(Pairs, GiveTheBitsOfTheCpu) {
  const Outcome expected = on_the_cpu_alone(GetParam());
  for (uint64_t seed = 1; seed <= (test::is_long() ? 5 : 1); ++seed) {
    Rank rank(GetParam(), with("yes"), seed);
    ASSERT_OK(rank.status());
    const Outcome got = outcome_of(rank, GetParam(), on_the_device);
    ASSERT_EQ(difference({got.results}, {expected.results}), "") << "seed " << seed;
    ASSERT_TRUE(got.saved == expected.saved) << "seed " << seed;
    EXPECT_GT(rank.direct_messages(), 0u);
  }
}

// ---- paths of the data ----

// The data that a step of one gradient moves. Its exchange must succeed.
simulated::Copied copied_in_a_step(Rank& rank, const std::vector<float>& values) {
  const auto shapes = lying_on({{"x", {int64_t(values.size())}}}, kThere);
  std::vector<Storage> storage = storage_of(shapes);
  auto set = make_set(rank.runtime(), shapes);
  EXPECT_TRUE(set.ok()) << set.status().message();
  if (!set.ok()) return {};
  storage[0].write(values);
  storage[0].settle();
  const simulated::Copied before = simulated::copied();
  const auto exchange = [&]() -> Status {
    PENSTOCK_TRY(set.value()->gradient_ready(0, storage[0].tensor(), storage[0].stream()));
    return set.value()->wait_all();
  };
  const Status status = exchange();
  EXPECT_TRUE(status.ok()) << status.message();
  storage[0].settle();
  simulated::Copied moved = simulated::copied();
  moved.to_host -= before.to_host;
  moved.to_device -= before.to_device;
  EXPECT_TRUE(set.value()->step_end().ok());
  return moved;
}

std::vector<float> ones(uint64_t n) {
  return std::vector<float>(n, 1);
}

constexpr uint64_t kLook = sizeof(uint32_t);  // the flag of an inspection or check

TEST(Messages, NoPairCrossesTheBus) {
  constexpr uint64_t kNumel = 100'000;
  Rank rank({"topk", kWithResidual}, with("yes"));
  ASSERT_OK(rank.status());
  const simulated::Copied copied = copied_in_a_step(rank, ones(kNumel));
  EXPECT_EQ(rank.direct_messages(), 1u);
  EXPECT_EQ(rank.direct_bytes(), uint64_t(kDensity * kNumel) * 8);
  // The flags of the inspection of the gradient and, with several ranks, of the checks of indices.
  EXPECT_EQ(copied.to_host, kLook + (rank.size() == 1 ? 0 : kLook * rank.size()));
  EXPECT_EQ(copied.to_device, 0u);
}

// Each rank sends another number of pairs, and rank 0 sends none.
TEST(Messages, CarryOnlyAsMuchAsAThresholdLetsThrough) {
  Rank rank({"threshold", kWithResidual, 0, "threshold-simulated", "threshold = 0.5\n"},
            with("yes"));
  ASSERT_OK(rank.status());
  std::vector<float> values(1000);
  const uint64_t n_passing = 17 * rank.number();
  for (uint64_t i = 0; i < n_passing; ++i) values[3 * i] = 1;
  (void)copied_in_a_step(rank, values);
  EXPECT_EQ(rank.direct_messages(), 1u);
  EXPECT_EQ(rank.direct_bytes(), (4 * n_passing + 7) / 8 * 8 * 2);
}

TEST(Messages, OfAVoidBucketAreNotSent) {
  Rank rank({"topk", kWithResidual}, with("yes"));
  ASSERT_OK(rank.status());
  std::vector<float> values = ones(1000);
  if (rank.number() == rank.size() - 1) values[3] = std::numeric_limits<float>::quiet_NaN();
  (void)copied_in_a_step(rank, values);
  EXPECT_EQ(rank.direct_messages(), 0u);
}

// The results have the bits of the CPU, because the transport adds in the order of ranks.
TEST(Messages, ThatAreAddedUpGoThroughPinnedMemory) {
  const ResidentMethod halves{"fp16", kWithResidual, 0, "fp16-simulated", ""};
  const Outcome expected = on_the_cpu_alone(halves);
  Rank rank(halves, with("yes"));
  ASSERT_OK(rank.status());
  EXPECT_TRUE(outcome_of(rank, halves, on_the_device) == expected);
  const simulated::Copied copied = copied_in_a_step(rank, ones(1000));
  EXPECT_EQ(rank.direct_messages(), 0u);
  EXPECT_GT(copied.to_device, 0u);
}

TEST(Messages, OfWhatIsSentAsItIsAreStagedAndTheReportSaysWhy) {
  ::testing::internal::CaptureStderr();
  {
    Rank rank({"none", kNothingKept, 0, "none-simulated", ""}, with("yes"));
    ASSERT_OK(rank.status());
    auto set = make_set(rank.runtime(), lying_on({{"x", {100}}}, kThere));
    ASSERT_OK(set.status());
    each_item(report_of(**set), [](const nlohmann::json& item) {
      EXPECT_EQ(item["worked_on"], Place().name());
      EXPECT_EQ(item["from_device_to_device"], false);
      EXPECT_EQ(item["why_staged"],
                fmt::format("it is sent uncompressed and whole, and transport.device = \"{}\" "
                            "carries no sums",
                            between));
    });
  }
  (void)::testing::internal::GetCapturedStderr();
}

// ---- several sets, and libraries that cannot have several ----

TEST(Sets, TwoAtOnceFindTheirOwnMessages) {
  const ResidentMethod method{"topk", kOneByOne};
  std::vector<Bytes> expected;
  {
    Rank rank(method, "");
    ASSERT_OK(rank.status());
    step_two_sets(rank.runtime(), Place(), rank.number(), expected);
  }
  for (uint64_t seed = 1; seed <= (test::is_long() ? 10 : 3); ++seed) {
    Rank rank(method, with("yes"), seed);
    ASSERT_OK(rank.status());
    std::vector<Bytes> got;
    step_two_sets(rank.runtime(), kThere, rank.number(), got);
    EXPECT_EQ(difference({got}, {expected}), "") << "seed " << seed;
    EXPECT_EQ(rank.direct_messages(), 16u);
  }
}

TEST(Sets, OfAProcessHaveOneDeviceWhichIsThatOfTheThreadOfMessages) {
  Rank rank({"topk", kWithResidual}, with("yes"));
  ASSERT_OK(rank.status());
  const auto set = make_set(rank.runtime(), lying_on({{"x", {100}}}, kThere), 0, "first");
  ASSERT_OK(set.status());
  int current = -1;
  ASSERT_OK(rank.runtime().communication().run([&] {
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    return Status();
  }));
  EXPECT_EQ(current, kThere.device_id);
  const auto other = make_set(rank.runtime(), lying_on({{"x", {100}}}, on_cuda(0)), 0, "second");
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(contains(other.status().message(),
                       fmt::format("gradients of set 'second' lie on cuda:0, but messages over "
                                   "transport.device = \"{}\" use cuda:1 already",
                                   between)))
      << other.status().message();
}

TEST(Library, ThatTakesNoMemoryOfDevicesIsRefusedWhenItHasBeenAsked) {
  ::testing::internal::CaptureStderr();
  for (const char* says : {"auto", "no"}) {
    const Rank rank({"topk", kWithResidual}, with(says));
    if (rank.status().ok()) {
      (void)::testing::internal::GetCapturedStderr();
      GTEST_SKIP() << "this one takes it";
    }
    const std::string text(rank.status().message());
    EXPECT_TRUE(contains(text, fmt::format("transport.device = \"{}\" does not carry memory of "
                                           "CUDA devices",
                                           between)))
        << text;
    EXPECT_EQ(contains(text, "its library was asked"), std::string_view(says) == "auto") << text;
  }
  (void)::testing::internal::GetCapturedStderr();
}

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return 2;
  collective = argv[1];
  between = argv[2];
  {
    const Rank rank({"topk", kWithResidual}, "");
    if (!rank.status().ok()) {
      std::fprintf(stderr, "%s\n", std::string(rank.status().message()).c_str());
      return 1;
    }
    test::print_as_rank(rank.number());
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace penstock::device_ranks

int main(int argc, char** argv) {
  return penstock::device_ranks::run(argc, argv);
}
