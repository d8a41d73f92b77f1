// The mass that a replaced memory kept reaches the parameters, also if the first steps after the
// switch are forgotten or void.

#include "core/set/testing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock::carry_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

enum class Fate { is_void, is_void_and_forgotten, is_forgotten };

struct Case {
  const char* next;  // settings of the switch at step 2
  const char* runtime;
  Fate fate;  // of steps 2 and 3
  std::vector<testing::GradientShape> shapes;
};

// Small integers, so that sums and means of two ranks are exact in every order.
Values gradients_of(const Case& c, uint32_t rank, uint64_t step) {
  Values gradients;
  for (const auto& shape : c.shapes) {
    auto& values = gradients.emplace_back(size_t(shape.shape[0]), 0.0f);
    if (step < 2 || step == 4)
      for (size_t i = 0; i < values.size(); ++i) values[i] = float(2 * i + 4 * step + 8 * rank + 2);
  }
  return gradients;
}

// Steps 0 and 1 leave values in the memory, the switch at step 2 replaces the memory, and the
// switch at step 6 releases the values of the next memory. Forgotten steps do not count.
void expect_all_mass(const Case& c) {
  const std::string tables = fmt::format(
      "{}\n[compressor.topk]\ndensity = 0.25\n{}"
      "[[switch]]\nat_step = 2\nset = {{ {} }}\n"
      "[[switch]]\nat_step = 6\n"
      "set = {{ scheme.compressor = \"none\", scheme.memory = \"none\" }}\n",
      c.runtime,
      std::string_view(c.next).find("dgc") == std::string_view::npos
          ? ""
          : "[memory.dgc]\nmomentum = 0.0\n",
      c.next);
  Values in = gradients_of(c, 0, 2), out = in;
  for (uint64_t step : {0, 1, 4})
    for (uint32_t rank : {0, 1})
      for (size_t g = 0; g < in.size(); ++g)
        for (size_t i = 0; i < in[g].size(); ++i) in[g][i] += gradients_of(c, rank, step)[g][i];
  with_ranks(
      2, scheme_text("compressor = \"topk\"\nmemory = \"residual\"", tables),
      [&](Runtime& runtime, uint32_t rank) {
        auto set = make_set(runtime, c.shapes);
        ASSERT_OK(set.status());
        const uint64_t thrown = c.fate == Fate::is_void ? 0 : 2;
        for (uint64_t step = 0; step < 8 + thrown; ++step) {
          const bool special = step == 2 || step == 3;
          Values gradients = gradients_of(c, rank, step);
          if (special && c.fate != Fate::is_forgotten && rank == 0)
            gradients[0][1] = std::numeric_limits<float>::quiet_NaN();
          const bool is_forgotten = special && c.fate != Fate::is_void;
          ASSERT_OK(run_step(*set.value(), gradients,
                             is_forgotten ? PENSTOCK_STEP_FORGOTTEN : PENSTOCK_STEP_APPLIED));
          if (special) {
            EXPECT_EQ(std::isnan(gradients[0][1]), c.fate != Fate::is_forgotten);
            continue;
          }
          if (rank != 0) continue;
          for (size_t g = 0; g < out.size(); ++g)
            for (size_t i = 0; i < out[g].size(); ++i) out[g][i] += 2 * gradients[g][i];
        }
      });
  EXPECT_EQ(out, in) << c.next << " " << c.runtime << ", fate " << int(c.fate);
}

const char* const kNothingKept = "scheme.compressor = \"none\", scheme.memory = \"none\"";
const char* const kKept = "scheme.memory = \"dgc\"";
const std::vector<testing::GradientShape> kTwo{{"weight", {16}}, {"bias", {5}}};

TEST(Carry, OutlivesStepsThatAreVoidOrForgottenWhereNothingElseKeepsIt) {
  for (const Fate fate : {Fate::is_void, Fate::is_void_and_forgotten, Fate::is_forgotten})
    for (const char* runtime : {"nonfinite = \"void\"", "nonfinite = \"strict\""})
      expect_all_mass({kNothingKept, runtime, fate, kTwo});
}

TEST(Carry, IsTakenOnceByTheNextMemoryWhateverBecomesOfTheStep) {
  for (const Fate fate : {Fate::is_void, Fate::is_void_and_forgotten, Fate::is_forgotten})
    for (const char* runtime : {"nonfinite = \"void\"", "nonfinite = \"strict\""})
      expect_all_mass({kKept, runtime, fate, kTwo});
}

// The gradient travels in its own storage, and the core does not check it for non-finite values.
TEST(Carry, OutlivesAForgottenStepOfAGradientThatTravelsAlone) {
  for (const Fate fate : {Fate::is_void_and_forgotten, Fate::is_forgotten})
    expect_all_mass({kNothingKept, "", fate, {{"weight", {16}}}});
}

// ---- memories with momentum ----

constexpr size_t kElements = 16;
constexpr float kMomentum = 0.9f;

Values momentum_gradients(uint32_t rank, uint64_t step) {
  Values gradients(1, std::vector<float>(kElements));
  for (size_t i = 0; i < kElements; ++i)
    gradients[0][i] = float((i * 7 + 3 * rank + 5 * step) % 16) + 0.25f * float(rank) - 6.0f;
  return gradients;
}

// The velocities of both ranks after `steps` steps of DGC with top-k of one quarter, in plain
// loops. A sent entry loses its momentum and its sum.
std::vector<std::vector<double>> velocities_after(uint64_t steps, bool nesterov) {
  std::vector<std::vector<double>> kept;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    std::vector<double> u(kElements), v(kElements);
    for (uint64_t step = 0; step < steps; ++step) {
      const Values gradients = momentum_gradients(rank, step);
      for (size_t i = 0; i < kElements; ++i) {
        const double g = gradients[0][i];
        u[i] = nesterov ? kMomentum * (u[i] + g) : kMomentum * u[i] + g;
        v[i] += nesterov ? u[i] + g : u[i];
      }
      std::vector<size_t> order(kElements);
      for (size_t i = 0; i < kElements; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
      for (size_t k = 0; k < kElements / 4; ++k) u[order[k]] = v[order[k]] = 0;
    }
    kept.push_back(v);
  }
  return kept;
}

struct MomentumCase {
  bool nesterov = false;
  const char* next = "scheme.compressor = \"none\"";
  Fate fate = Fate::is_void;
  bool comes_to_nothing = false;  // the step after the switch
  bool sums = false;
};

// Three steps of top-k with memory dgc, then another scheme with memory dgc and gradients of zero.
// Only the velocity is left, and it must arrive exactly once.
void expect_once(const MomentumCase& c) {
  const auto kept = velocities_after(3, c.nesterov);
  const std::string tables = fmt::format(
      "[compressor.topk]\ndensity = 0.25\n[memory.dgc]\nmomentum = 0.9\nnesterov = {}\n"
      "[[switch]]\nat_step = 3\nset = {{ {} }}\n",
      c.nesterov, c.next);
  with_ranks(2, scheme_text("compressor = \"topk\"\nmemory = \"dgc\"", tables),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, {{"weight", {int64_t(kElements)}}},
                                   c.sums ? uint32_t{PENSTOCK_SET_SUM} : 0u);
               ASSERT_OK(set.status());
               for (uint64_t step = 0; step < 3; ++step) {
                 Values gradients = momentum_gradients(rank, step);
                 ASSERT_OK(run_step(*set.value(), gradients));
               }
               if (c.comes_to_nothing) {
                 Values gradients(1, std::vector<float>(kElements));
                 if (c.fate == Fate::is_void && rank == 1)
                   gradients[0][2] = std::numeric_limits<float>::quiet_NaN();
                 ASSERT_OK(run_step(
                     *set.value(), gradients,
                     c.fate == Fate::is_void ? PENSTOCK_STEP_APPLIED : PENSTOCK_STEP_FORGOTTEN));
               }
               Values total(1, std::vector<float>(kElements));
               for (int step = 0; step < 6; ++step) {
                 Values gradients(1, std::vector<float>(kElements));
                 ASSERT_OK(run_step(*set.value(), gradients));
                 for (size_t i = 0; i < kElements; ++i) {
                   const double mean = (kept[0][i] + kept[1][i]) / (c.sums ? 1 : 2);
                   // The results are sums of a few numbers below 100, in float.
                   EXPECT_NEAR(gradients[0][i], step == 0 ? mean : 0, 1e-4)
                       << "element " << i << ", step " << step << " after the switch";
                 }
               }
             });
}

TEST(Carry, GoesRoundTheMomentumOfAMemoryThatStays) {
  for (const bool nesterov : {false, true})
    for (const bool sums : {false, true}) {
      MomentumCase c;
      c.nesterov = nesterov;
      c.sums = sums;
      expect_once(c);
    }
}

TEST(Carry, GoesRoundMomentumOnceAlsoAfterAStepThatComesToNothing) {
  for (const Fate fate : {Fate::is_void, Fate::is_forgotten}) {
    MomentumCase c;
    c.fate = fate;
    c.comes_to_nothing = true;
    expect_once(c);
  }
}

// A residual is replaced by a memory with momentum, with a compressor that still compresses.
TEST(Carry, GoesRoundTheMomentumOfTheNextMemory) {
  const std::string tables =
      "[compressor.topk]\ndensity = 0.25\n[memory.dgc]\nmomentum = 0.9\n"
      "[[switch]]\nat_step = 1\nset = { scheme.memory = \"dgc\" }\n";
  with_ranks(2, scheme_text("compressor = \"topk\"\nmemory = \"residual\"", tables),
             [&](Runtime& runtime, uint32_t) {
               auto set = make_set(runtime, {{"weight", {8}}});
               ASSERT_OK(set.status());
               Values gradients{{1, 2, 3, 4, 5, 6, 7, 8}};
               ASSERT_OK(run_step(*set.value(), gradients));
               EXPECT_EQ(gradients[0], (std::vector<float>{0, 0, 0, 0, 0, 0, 7, 8}));
               for (int step = 0; step < 4; ++step) {
                 gradients = {std::vector<float>(8)};
                 ASSERT_OK(run_step(*set.value(), gradients));
                 EXPECT_EQ(gradients[0], step == 0 ? (std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0})
                                                   : std::vector<float>(8))
                     << "step " << step;
               }
             });
}

}  // namespace
}  // namespace penstock::carry_test
