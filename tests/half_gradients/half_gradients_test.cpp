// Gradients of 16 bits through the whole engine, with every built compressor and every memory that
// fits it. The result equals the result of float32 gradients with equal values, rounded once at the
// end. So all intermediate values, above all those in memories, must be float32.

#include "core/set/testing.hpp"
#include "tools/penstock/fit/matrix.hpp"

#include <nlohmann/json.hpp>
#include <support/every_compressor.hpp>
#include <support/half.hpp>
#include <testing/data.hpp>

#include <cmath>

namespace penstock {
namespace {

using testing::GradientShape;
using testing::make_set;
using testing::scheme_text;
using testing::with_ranks;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSteps = 3;

float rounded(uint32_t dtype, float value) {
  return dtype == PENSTOCK_FLOAT16 ? test::from_float16(test::to_float16(value))
                                   : test::from_bfloat16(test::to_bfloat16(value));
}
uint16_t bits_of(uint32_t dtype, float value) {
  return dtype == PENSTOCK_FLOAT16 ? test::to_float16(value) : test::to_bfloat16(value);
}

// The limits of a type's range. bfloat16 has the range of float32, and memories add several steps
// in float32. A sixteenth of the range leaves room for these sums.
struct Limits {
  float smallest, largest_subnormal, largest;
};
Limits limits_of(uint32_t dtype) {
  if (dtype == PENSTOCK_FLOAT16) return {0x1p-24f, 0x1.ff8p-15f, 65504.0f};
  return {0x1p-133f, 0x1.fcp-127f, 0x1.fep123f};
}

// The kinds of values in a gradient.
enum class Kind { plain, large, limits, subnormal, small_steps };

struct Case {
  std::vector<int64_t> shape;
  Kind kind;
};
const std::vector<Case> kCases{{{12, 10}, Kind::plain},   {{6, 3, 2}, Kind::large},
                               {{37}, Kind::limits},      {{5, 7}, Kind::subnormal},
                               {{40}, Kind::small_steps}, {{8, 6}, Kind::small_steps},
                               {{1}, Kind::plain}};
const uint32_t kTypes[] = {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16};

float value_of(Kind kind, uint32_t dtype, uint64_t i, uint64_t step, test::Random& random) {
  const Limits limits = limits_of(dtype);
  const auto whole = static_cast<float>(1 + random.below(1000));
  const float sign = random.below(2) == 0 ? 1.0f : -1.0f;
  switch (kind) {
    case Kind::plain:
      return static_cast<float>(random.gauss() * std::exp(random.gauss()));
    case Kind::large:  // like an fp16 gradient with too large a loss scale
      return sign * std::min(65504.0f, 65.504f * whole);
    case Kind::limits: {
      const float of_type[] = {limits.largest, limits.smallest, limits.largest_subnormal,
                               0.0f,           1.0f / whole,    65504.0f};
      return sign * of_type[(i + step) % std::size(of_type)];
    }
    case Kind::subnormal:
      return sign * limits.smallest * std::fmod(whole, 127.0f);
    case Kind::small_steps:  // later values are too small for the sum
      return (dtype == PENSTOCK_FLOAT16 ? 1.0f : 0.25f) *
             (step == 0 ? 1024.0f + static_cast<float>(i) : 0.375f);
  }
  return 0;
}

// [gradient][element]; gradient g is kCases[g % n] in type kTypes[g / n], rounded to that type.
using Values = std::vector<std::vector<float>>;

uint32_t dtype_of(size_t gradient) {
  return kTypes[gradient / kCases.size()];
}

Values gradients_of(uint32_t rank, uint64_t step) {
  Values gradients;
  for (size_t g = 0; g < 2 * kCases.size(); ++g) {
    const Case& made = kCases[g % kCases.size()];
    uint64_t numel = 1;
    for (const int64_t extent : made.shape) numel *= static_cast<uint64_t>(extent);
    test::Random random(1 + 1000 * step + 100 * rank + g);
    auto& values = gradients.emplace_back(numel);
    for (uint64_t i = 0; i < numel; ++i)
      values[i] = rounded(dtype_of(g), value_of(made.kind, dtype_of(g), i, step, random));
  }
  return gradients;
}

// The results of rank 0.
struct Results {
  std::vector<std::vector<std::vector<uint16_t>>> halves;  // [step][gradient][element]
  std::vector<Values> floats;
  uint64_t state_bytes = 0;
};

// A step that hands over each gradient as type T.
template <typename T>
Status run_step_as(Set& set, std::vector<std::vector<T>>& gradients, bool narrow) {
  for (size_t g = gradients.size(); g-- > 0;) {
    const auto numel = static_cast<int64_t>(gradients[g].size());
    penstock_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.shape = &numel;
    tensor.n_dims = 1;
    tensor.data = gradients[g].data();
    tensor.numel = gradients[g].size();
    tensor.dtype = narrow ? dtype_of(g) : uint32_t{PENSTOCK_FLOAT32};
    tensor.device_type = PENSTOCK_DEVICE_CPU;
    PENSTOCK_TRY(set.gradient_ready(g, tensor));
  }
  PENSTOCK_TRY(set.wait_all());
  return set.step_end();
}

Results results_of(const std::string& scheme, bool narrow) {
  Results results;
  with_ranks(kRanks, scheme, [&](Runtime& runtime, uint32_t rank) {
    std::vector<GradientShape> shapes;
    for (size_t g = 0; g < 2 * kCases.size(); ++g)
      shapes.push_back({fmt::format("gradient{}", g), kCases[g % kCases.size()].shape,
                        narrow ? dtype_of(g) : uint32_t{PENSTOCK_FLOAT32}});
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < kSteps; ++step) {
      Values floats = gradients_of(rank, step);
      std::vector<std::vector<uint16_t>> halves(floats.size());
      for (size_t g = 0; g < floats.size(); ++g)
        for (const float value : floats[g]) halves[g].push_back(bits_of(dtype_of(g), value));
      if (narrow) {
        ASSERT_OK(run_step_as(*set.value(), halves, true));
      } else {
        ASSERT_OK(run_step_as(*set.value(), floats, false));
      }
      if (rank != 0) continue;
      results.halves.push_back(halves);
      results.floats.push_back(floats);
    }
    const auto report = set.value()->report();
    ASSERT_OK(report.status());
    if (rank == 0) results.state_bytes = nlohmann::json::parse(report.value()).at("state_bytes");
  });
  return results;
}

bool is_nan(uint32_t dtype, uint16_t bits) {
  const int exponent = dtype == PENSTOCK_FLOAT16 ? 0x7c00 : 0x7f80;
  return (bits & 0x7fff) > exponent;
}

void expect_float32_rounded(const Results& narrow, const Results& wide) {
  ASSERT_EQ(narrow.halves.size(), kSteps);
  ASSERT_EQ(wide.floats.size(), kSteps);
  EXPECT_EQ(narrow.state_bytes, wide.state_bytes) << "states are float32 in both";
  for (uint64_t step = 0; step < kSteps; ++step)
    for (size_t g = 0; g < 2 * kCases.size(); ++g) {
      const uint32_t dtype = dtype_of(g);
      for (size_t i = 0; i < wide.floats[step][g].size(); ++i) {
        const float mean = wide.floats[step][g][i];
        const uint16_t found = narrow.halves[step][g][i];
        const uint16_t expected = bits_of(dtype, mean);
        if (is_nan(dtype, expected) && is_nan(dtype, found)) continue;
        ASSERT_EQ(found, expected)
            << (dtype == PENSTOCK_FLOAT16 ? "fp16" : "bf16") << " gradient " << g << "[" << i
            << "] in step " << step << ", which is " << mean << " in float32";
        if (kCases[g % kCases.size()].kind == Kind::plain) {
          ASSERT_TRUE(std::isfinite(mean));
        }
      }
    }
}

// The memories that fit a compressor, for matrices and vectors.
std::vector<std::string> memories_of(const std::string& compressor) {
  static const std::vector<MatrixCell> cells = [] {
    Registry registry(test::test_host(), {plugin_directories({})});
    EXPECT_TRUE(registry.scan().ok());
    return fit_matrices(registry).front().cells;
  }();
  std::vector<std::string> names;
  for (const MatrixCell& cell : cells)
    if (cell.row == compressor && cell.verdict != Verdict::no) names.push_back(cell.column);
  return names;
}

// The compressor's options in a scheme file.
std::string options_text(const std::string& name, const test::LoadedPlugin& plugin) {
  std::string text = fmt::format("[compressor.{}]\n", name);
  for (const auto& [option, setting] : test::small_gradient_options(plugin))
    text += std::holds_alternative<int>(setting)
                ? fmt::format("{} = {}\n", option, std::get<int>(setting))
                : fmt::format("{} = {:.3f}\n", option, std::get<double>(setting));
  return text;
}

class HalfGradients : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(HalfGradients, GiveTheFloat32ResultRoundedOnceWithEveryMemory) {
  const std::string name = test::plugin_name(GetParam());
  const test::LoadedPlugin plugin = test::load_plugin(GetParam().string());
  const std::vector<std::string> memories = memories_of(name);
  ASSERT_FALSE(memories.empty());
  for (const std::string& memory : memories) {
    SCOPED_TRACE("memory " + memory);
    const std::string scheme = scheme_text(
        fmt::format("compressor = \"{}\"\nmemory = \"{}\"\nscheduler = \"fusion\"", name, memory),
        options_text(name, plugin));
    ASSERT_NO_FATAL_FAILURE(
        expect_float32_rounded(results_of(scheme, true), results_of(scheme, false)));
  }
}

PENSTOCK_TEST_EVERY_COMPRESSOR(HalfGradients);

}  // namespace
}  // namespace penstock
