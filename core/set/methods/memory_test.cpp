// Memories in a run: the type of their states, gradients without a state, and compensate in one
// sweep with encode.

#include "core/set/testing.hpp"

#include <nlohmann/json.hpp>
#include <support/half.hpp>
#include <testing/data.hpp>

#include <cmath>
#include <mutex>

namespace penstock::memory_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

const std::string kTopK = "compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"fusion\"";

// A step of a set of one gradient of 16 bits; `values` become the result.
Status run_half_step(Set& set, uint32_t dtype, std::vector<uint16_t>& values) {
  const auto numel = static_cast<int64_t>(values.size());
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.shape = &numel;
  tensor.n_dims = 1;
  tensor.data = values.data();
  tensor.numel = values.size();
  tensor.dtype = dtype;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  PENSTOCK_TRY(set.gradient_ready(0, tensor));
  PENSTOCK_TRY(set.wait_all());
  return set.step_end(true);
}

// A gradient of two entries. Each step sends one entry: the first, while it is larger.
void expect_small_steps_to_add_up(uint32_t dtype, float first, float small) {
  const bool half = dtype == PENSTOCK_FLOAT16;
  const auto bits = [&](float value) {
    return half ? test::to_float16(value) : test::to_bfloat16(value);
  };
  ASSERT_EQ(bits(first + small), bits(first)) << "the type itself would lose the small step";
  with_ranks(2, scheme_text(kTopK, "[compressor.topk]\ndensity = 0.5"),
             [&](Runtime& runtime, uint32_t) {
               auto set = make_set(runtime, {{"weight", {2}, dtype}});
               ASSERT_OK(set.status());
               std::vector<uint16_t> values(2);
               const auto step = [&](float sent, float kept) {
                 values = {bits(sent), bits(kept)};
                 ASSERT_OK(run_half_step(*set.value(), dtype, values));
               };
               step(8 * first, first);
               for (int i = 0; i < 16; ++i) step(8 * first, small);
               EXPECT_EQ(values, (std::vector<uint16_t>{bits(8 * first), bits(0)}));
               step(0, 0);
               EXPECT_EQ(values, (std::vector<uint16_t>{bits(0), bits(first + 16 * small)}));
             });
}

TEST(Memories, KeepFloat32ForGradientsOf16Bits) {
  expect_small_steps_to_add_up(PENSTOCK_FLOAT16, 1024, 0.25f);
  expect_small_steps_to_add_up(PENSTOCK_BFLOAT16, 256, 0.5f);
}

TEST(Memories, HandWhatTheyKeptToGradientsOf16BitsAtASwitch) {
  for (const uint32_t dtype : {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16})
    for (const char* next : {"none", "fp16"}) {  // in place, and by way of float32
      const auto bits = [&](float value) {
        return dtype == PENSTOCK_FLOAT16 ? test::to_float16(value) : test::to_bfloat16(value);
      };
      const std::string tables = fmt::format(
          "[compressor.topk]\ndensity = 0.5\n[[switch]]\nat_step = 1\n"
          "set = {{ scheme.compressor = \"{}\", scheme.memory = \"none\" }}\n",
          next);
      with_ranks(2, scheme_text(kTopK, tables), [&](Runtime& runtime, uint32_t) {
        auto set = make_set(runtime, {{"weight", {2}, dtype}});
        ASSERT_OK(set.status());
        std::vector<uint16_t> values{bits(8), bits(-3)};
        ASSERT_OK(run_half_step(*set.value(), dtype, values));
        EXPECT_EQ(values, (std::vector<uint16_t>{bits(8), bits(0)}));
        values = {bits(0.5f), bits(0.25f)};
        ASSERT_OK(run_half_step(*set.value(), dtype, values));
        EXPECT_EQ(values, (std::vector<uint16_t>{bits(0.5f), bits(-2.75f)})) << next;
        values = {bits(1), bits(2)};
        ASSERT_OK(run_half_step(*set.value(), dtype, values));
        EXPECT_EQ(values, (std::vector<uint16_t>{bits(1), bits(2)})) << next;
      });
    }
}

TEST(Memories, KeepNothingForExemptGradients) {
  const std::string exempt = "[[rule]]\nmatch = { dims = 1 }\ncompressor = \"none\"";
  const std::vector<testing::GradientShape> shapes{{"weight", {30, 20}}, {"bias", {1000}}};
  for (const std::string& rules : {std::string(), exempt})
    with_ranks(2, scheme_text(kTopK, rules), [&](Runtime& runtime, uint32_t) {
      auto set = make_set(runtime, shapes);
      ASSERT_OK(set.status());
      std::vector<std::vector<float>> gradients{std::vector<float>(600, 1.0f),
                                                std::vector<float>(1000, 1.0f)};
      ASSERT_OK(run_step(*set.value(), gradients));
      const auto report = set.value()->report();
      ASSERT_OK(report.status());
      const uint64_t kept = nlohmann::json::parse(report.value()).at("state_bytes");
      // Twice, because each state has two generations.
      EXPECT_EQ(kept, 2 * (rules.empty() ? 1600 : 600) * sizeof(float));
    });
}

// If `work` is the gradient itself, it has the loss scale, and a residual does not. So their
// magnitudes cannot be compared.
TEST(Memories, OfOneBucketMayNotDifferWhereItsGradientsAreComparedUnderALossScale) {
  const std::string rule = "[[rule]]\nmatch = { dims = 1 }\nmemory = \"none\"\n";
  const std::string bucket = "[compressor.topk]\nscope = \"bucket\"\ndensity = 0.5\n";
  with_ranks(1, scheme_text(kTopK, bucket + rule), [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"weight", {30, 20}}, {"bias", {100}}});
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients{test::heavy_tailed(600, 1),
                                              test::heavy_tailed(100, 2)};
    ASSERT_OK(run_step(*set.value(), gradients));
    ASSERT_OK(set.value()->grad_scale(1024));
    const Status status = run_step(*set.value(), gradients);
    ASSERT_FALSE(status.ok());
    for (const char* part :
         {"scope = \"bucket\"", "'weight'", "'bias'", "1024", "give both gradients one memory"})
      EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status.message();
  });
}

// The results of 10 steps on rank 0, some void and some forgotten.
std::vector<std::vector<float>> results_of(const std::string& keys, const std::string& tables,
                                           bool one_sweep) {
  std::vector<std::vector<float>> all;
  with_ranks(2, scheme_text(keys, tables), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"weight", {100, 50}}, {"other", {7, 3}}});
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < 10; ++step) {
      std::vector<std::vector<float>> gradients{test::heavy_tailed(5000, 10 * step + rank),
                                                test::heavy_tailed(21, 999 + 10 * step + rank)};
      if (step % 5 == 3 && rank == 1) gradients[0][7] = std::nanf("");
      ASSERT_OK(run_step(*set.value(), gradients,
                         step % 4 == 2 ? PENSTOCK_STEP_FORGOTTEN : PENSTOCK_STEP_APPLIED));
      if (rank != 0) continue;
      for (auto& values : gradients)
        for (float& value : values) value = std::isnan(value) ? -1 : value;  // for EXPECT_EQ
      all.insert(all.end(), gradients.begin(), gradients.end());
    }
    const auto report = set.value()->report();
    ASSERT_OK(report.status());
    const nlohmann::json parsed = nlohmann::json::parse(report.value());
    for (const auto& bucket : parsed.at("buckets"))
      for (const auto& item : bucket.at("items")) EXPECT_EQ(item.at("one_sweep"), one_sweep);
  });
  return all;
}

// With clipping that never clips, the memory's form is one form that no compressor can fold.
TEST(Memories, CompensateInTheSameSweepAsEncodeWithTheSameBits) {
  struct Case {
    const char* compressor;
    const char* option;
    const char* nesterov;
    const char* nonfinite;
  };
  for (const Case& c :
       {Case{"topk", "density = 0.02", "false", "void"},
        Case{"topk", "density = 0.02", "true", "strict"},
        Case{"dgc", "density = 0.02", "true", "void"},
        Case{"dgc", "density = 0.02", "false", "strict"},
        Case{"powersgd", "rank = 2\nminimum_compression_rate = 0", "false", "void"},
        Case{"acpsgd", "rank = 3\nminimum_compression_rate = 0", "true", "strict"}}) {
    const std::string keys =
        fmt::format("compressor = \"{}\"\nmemory = \"dgc\"\nscheduler = \"fusion\"", c.compressor);
    const std::string tables =
        fmt::format("nonfinite = \"{}\"\n[compressor.{}]\n{}\n[memory.dgc]\nnesterov = {}\n",
                    c.nonfinite, c.compressor, c.option, c.nesterov);
    const auto folded = results_of(keys, tables, true);
    const auto separate = results_of(keys, tables + "clipping = \"value\"\nclip = 1e30\n", false);
    ASSERT_EQ(folded.size(), 20u);
    EXPECT_EQ(folded, separate) << c.compressor << ", nesterov " << c.nesterov;
  }
}

}  // namespace
}  // namespace penstock::memory_test
