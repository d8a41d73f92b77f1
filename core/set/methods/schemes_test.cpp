// Every scheme of this version through the engine over loopback: nothing is lost, all ranks have
// equal bits, and a resumed run continues with equal bits.

#include "core/set/testing.hpp"

#include <cmath>
#include <limits>
#include <random>

namespace penstock::schemes_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

const std::vector<testing::GradientShape> kShapes{
    {"first", {24, 16}}, {"bias", {24}}, {"second", {9, 40}}, {"last", {33}}};

// Heavy-tailed, so that a selection has large entries to choose. The values depend only on (rank,
// step).
Values gradients_of(uint32_t rank, uint64_t step) {
  std::mt19937_64 random(1000 * step + rank);
  std::normal_distribution<float> normal;
  Values gradients;
  for (const auto& shape : kShapes) {
    size_t numel = 1;
    for (int64_t extent : shape.shape) numel *= static_cast<size_t>(extent);
    auto& values = gradients.emplace_back(numel);
    for (float& value : values) value = normal(random) * std::exp(normal(random));
  }
  return gradients;
}

struct Scheme {
  const char* name;
  const char* keys;
  const char* tables;
};

// gtest prints a scheme by its name.
void PrintTo(const Scheme& scheme, std::ostream* out) {
  *out << scheme.name;
}

// Methods whose memory keeps the plain rest, so that mass can be counted.
const Scheme kKeeping[] = {
    {"topk", "compressor = \"topk\"\nmemory = \"residual\"", "[compressor.topk]\ndensity = 0.05"},
    {"topk_bucket", "compressor = \"topk\"\nmemory = \"residual\"",
     "[compressor.topk]\ndensity = 0.05\nscope = \"bucket\""},
    {"topk_signs", "compressor = \"topk\"\nmemory = \"residual\"",
     "[compressor.topk]\ndensity = 0.05\nvalue_type = \"sign\""},
    {"dgc_without_momentum", "compressor = \"dgc\"\nmemory = \"dgc\"",
     "[compressor.dgc]\ndensity = 0.05\n[memory.dgc]\nmomentum = 0.0"},
    {"powersgd", "compressor = \"powersgd\"\nmemory = \"residual\"",
     "[compressor.powersgd]\nrank = 2\nminimum_compression_rate = 0.0"},
    {"acpsgd", "compressor = \"acpsgd\"\nmemory = \"residual\"", "[compressor.acpsgd]\nrank = 2"},
    {"fp16", "compressor = \"fp16\"\nmemory = \"residual\"", ""},
    {"bf16", "compressor = \"bf16\"\nmemory = \"residual\"", ""},
    {"oktopk", "compressor = \"topk\"\nmemory = \"residual\"\ntransport = \"loopback\"",
     "[compressor.topk]\ndensity = 0.05\n[collective.oktopk]\nthreshold_period = "
     "4\nboundary_period = 8"},
    {"residual_without_loss", "compressor = \"none\"\nmemory = \"residual\"", ""},
};

std::string text_of(const Scheme& scheme, const std::string& more_tables = "") {
  const bool composite = std::string(scheme.name) == "oktopk";
  std::string text = scheme_text(scheme.keys, std::string(scheme.tables) + "\n" + more_tables);
  if (composite) text.replace(text.find("\"loopback\""), 10, "\"oktopk\"");
  return text;
}

TEST(Composites, RefuseACompressorWhosePayloadsDoNotSayHowManyEntriesAreWanted) {
  std::string text =
      scheme_text("compressor = \"topk\"\nmemory = \"residual\"\ntransport = \"loopback\"",
                  "[compressor.topk]\ndensity = 0.05\nscope = \"bucket\"");
  text.replace(text.find("\"loopback\""), 10, "\"oktopk\"");
  with_ranks(2, text, [&](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, kShapes);
    ASSERT_FALSE(set.ok());
    for (const char* part : {"\"oktopk\"", "\"topk\"", "scope = \"item\""})
      EXPECT_NE(set.status().message().find(part), std::string_view::npos)
          << set.status().message();
  });
}

class Keeping : public ::testing::TestWithParam<std::tuple<Scheme, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Schemes, Keeping,
                         ::testing::Combine(::testing::ValuesIn(kKeeping),
                                            ::testing::Values(1, 2, 3, 4)),
                         testing::name_and_size);

// After 100 steps the scheme switches to no compression and no memory, which releases the kept
// values. Steps 7, 17, ... are void (rank 0 has an infinity). Before steps 3, 13, ... another step
// is forgotten.
TEST_P(Keeping, WhatGoesInComesOutOver100Steps) {
  const auto& [scheme, size] = GetParam();
  const bool composite = std::string(scheme.name) == "oktopk";
  const std::string text =
      text_of(scheme, std::string("[[switch]]\nat_step = 100\nset = { ") +
                          (composite ? "compressor.topk.density = 1.0"
                                     : "scheme.compressor = \"none\", scheme.memory = \"none\"") +
                          " }\n");
  std::vector<std::vector<double>> in(kShapes.size()), out(kShapes.size()), size_of(kShapes.size());
  for (size_t g = 0; g < kShapes.size(); ++g) {
    const size_t numel = gradients_of(0, 0)[g].size();
    in[g].assign(numel, 0);
    out[g].assign(numel, 0);
    size_of[g].assign(numel, 0);
  }
  const auto is_void = [](uint64_t step) { return step % 10 == 7; };
  for (uint64_t step = 0; step <= 100; ++step)
    for (uint32_t rank = 0; rank < size; ++rank) {
      if (is_void(step) && rank == 0) continue;  // its bucket is dropped
      const Values gradients = gradients_of(rank, step);
      for (size_t g = 0; g < gradients.size(); ++g)
        for (size_t i = 0; i < gradients[g].size(); ++i) {
          in[g][i] += gradients[g][i];
          size_of[g][i] += std::abs(gradients[g][i]);
        }
    }
  with_ranks(size, text, [&, size = size](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step <= 100; ++step) {
      Values gradients = gradients_of(rank, step);
      if (is_void(step) && rank == 0) gradients[0][0] = std::numeric_limits<float>::infinity();
      if (step % 10 == 3) {
        Values thrown = gradients_of(rank, 1000 + step);
        ASSERT_OK(run_step(*set.value(), thrown, PENSTOCK_STEP_FORGOTTEN));
      }
      ASSERT_OK(run_step(*set.value(), gradients));
      if (is_void(step)) {
        ASSERT_TRUE(std::isnan(gradients[0][0]));
        continue;
      }
      if (rank != 0) continue;
      for (size_t g = 0; g < gradients.size(); ++g)
        for (size_t i = 0; i < gradients[g].size(); ++i)
          out[g][i] += double(gradients[g][i]) * size;
    }
  });
  // The transport rounds a sum of 16-bit values once per step, and no memory keeps that error.
  const std::string method = scheme.name;
  const double rounding = method == "fp16" ? 0x1p-11 : method == "bf16" ? 0x1p-8 : 2e-5;
  // A lossless gradient has no memory, so by design its void step is lost.
  const bool lossless = std::string(scheme.name) == "residual_without_loss";
  if (lossless) return;
  for (size_t g = 0; g < kShapes.size(); ++g) {
    const bool dense_vector =
        std::string(scheme.name).find("sgd") != std::string::npos && kShapes[g].shape.size() < 2;
    if (dense_vector)
      continue;  // low-rank methods send vectors dense; a test below has their residual
    for (size_t i = 0; i < in[g].size(); ++i)
      // Rounding over 100 steps, relative to the sum of magnitudes of the entry.
      ASSERT_NEAR(out[g][i], in[g][i], rounding * size_of[g][i] + 1e-4)
          << kShapes[g].name << "[" << i << "]";
  }
}

TEST_P(Keeping, AllRanksEndWithTheSameBits) {
  const auto& [scheme, size] = GetParam();
  std::vector<Values> results(size);
  with_ranks(size, text_of(scheme), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < 12; ++step) {
      results[rank] = gradients_of(rank, step);
      ASSERT_OK(run_step(*set.value(), results[rank]));
    }
  });
  for (uint32_t rank = 1; rank < size; ++rank) EXPECT_EQ(results[rank], results[0]);
}

TEST_P(Keeping, AResumedRunGoesOnToTheBit) {
  const auto& [scheme, size] = GetParam();
  std::vector<std::string> saved(size);
  std::vector<std::vector<Values>> straight(size), resumed(size);
  const auto steps = [&](Set& set, uint32_t rank, uint64_t from, uint64_t to,
                         std::vector<Values>* keep) {
    for (uint64_t step = from; step < to; ++step) {
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_step(set, gradients));
      if (keep != nullptr) keep->push_back(gradients);
    }
  };
  with_ranks(size, text_of(scheme), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    steps(*set.value(), rank, 0, 7, nullptr);
    ASSERT_OK(set.value()->save(saved[rank]));
    steps(*set.value(), rank, 7, 12, &straight[rank]);
  });
  with_ranks(size, text_of(scheme), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->load(saved[rank]));
    steps(*set.value(), rank, 7, 12, &resumed[rank]);
  });
  EXPECT_EQ(straight, resumed);
}

TEST(SavedState, TruncatedOrDamagedBytesAreRefusedAndChangeNothing) {
  with_ranks(1, text_of(kKeeping[0]), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    Values gradients = gradients_of(rank, 0);
    ASSERT_OK(run_step(*set.value(), gradients));
    std::string saved, again;
    ASSERT_OK(set.value()->save(saved));
    for (size_t length = 0; length < saved.size(); length += 97)
      EXPECT_FALSE(set.value()->load(std::string_view(saved).substr(0, length)).ok()) << length;
    std::string damaged = saved;
    damaged[saved.size() / 2] ^= 1;
    const Status status = set.value()->load(damaged);
    EXPECT_NE(status.message().find("checksum"), std::string_view::npos) << status.message();
    ASSERT_OK(set.value()->save(again));
    EXPECT_EQ(saved, again);
  });
}

TEST(SavedState, AnotherRanksStateIsRefused) {
  std::vector<std::string> saved(2);
  with_ranks(2, text_of(kKeeping[0]), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->save(saved[rank]));
  });
  with_ranks(2, text_of(kKeeping[0]), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    EXPECT_EQ(set.value()->load(saved[1 - rank]).code(), Code::mismatch);
  });
}

// With density 1 or full rank nothing is kept, so the results equal the dense mean.
const Scheme kDenseEquivalents[] = {
    {"topk", "compressor = \"topk\"\nmemory = \"residual\"", "[compressor.topk]\ndensity = 1.0"},
    {"dgc", "compressor = \"dgc\"\nmemory = \"dgc\"",
     "[compressor.dgc]\ndensity = 1.0\n[memory.dgc]\nmomentum = 0.0"},
    {"powersgd", "compressor = \"powersgd\"\nmemory = \"residual\"",
     "[compressor.powersgd]\nrank = 64\nminimum_compression_rate = 0.0"},
    {"oktopk", "compressor = \"topk\"\nmemory = \"residual\"\ntransport = \"loopback\"",
     "[compressor.topk]\ndensity = 1.0"},
    {"none", "compressor = \"none\"\nmemory = \"none\"", ""},
};
class DenseEquivalents : public ::testing::TestWithParam<std::tuple<Scheme, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Schemes, DenseEquivalents,
                         ::testing::Combine(::testing::ValuesIn(kDenseEquivalents),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         testing::name_and_size);

TEST_P(DenseEquivalents, SendEverythingAndGiveTheMean) {
  const auto& [scheme, size] = GetParam();
  with_ranks(size, text_of(scheme), [&, size = size](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < 4; ++step) {
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_step(*set.value(), gradients));
      std::vector<Values> all;
      for (uint32_t r = 0; r < size; ++r) all.push_back(gradients_of(r, step));
      for (size_t g = 0; g < gradients.size(); ++g)
        for (size_t i = 0; i < gradients[g].size(); ++i) {
          double mean = 0, scale = 0;
          for (const Values& one : all) {
            mean += one[g][i] / size;
            scale += std::abs(one[g][i]);
          }
          // A full-rank product adds a row of up to 40 entries, each up to a few hundred.
          const double tolerance =
              std::string(scheme.name) == "powersgd" ? 2e-3 : 1e-6 * scale + 1e-6;
          ASSERT_NEAR(gradients[g][i], mean, tolerance)
              << kShapes[g].name << "[" << i << "] step " << step;
        }
    }
  });
}

}  // namespace
}  // namespace penstock::schemes_test
