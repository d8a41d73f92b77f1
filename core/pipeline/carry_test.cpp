// What a replaced memory kept reaches the parameters, also when the first steps after the switch
// come to nothing.

#include "core/pipeline/testing.hpp"

#include <cmath>
#include <limits>

namespace penstock {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

enum class Fate { is_void, is_void_and_skipped, is_skipped };

struct Case {
  const char* next;  // what the switch at step 2 sets
  const char* runtime;
  Fate fate;  // of step 2 and 3
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

// Steps 0 and 1 leave something in the memory, the switch at step 2 replaces it, that of step 6
// lets out what the next one keeps.
void expect_all_mass(const Case& c) {
  const std::string tables = fmt::format(
      "{}\n[compressor.topk]\ndensity = 0.25\n[memory.dgc]\nmomentum = 0.0\n"
      "[[switch]]\nat_step = 2\nset = {{ {} }}\n"
      "[[switch]]\nat_step = 6\n"
      "set = {{ scheme.compressor = \"none\", scheme.memory = \"none\" }}\n",
      c.runtime, c.next);
  Values in = gradients_of(c, 0, 2), out = in;
  for (uint64_t step : {0, 1, 4})
    for (uint32_t rank : {0, 1})
      for (size_t g = 0; g < in.size(); ++g)
        for (size_t i = 0; i < in[g].size(); ++i) in[g][i] += gradients_of(c, rank, step)[g][i];
  with_ranks(2, scheme_text("compressor = \"topk\"\nmemory = \"residual\"", tables),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, c.shapes);
               ASSERT_OK(set.status());
               for (uint64_t step = 0; step < 8; ++step) {
                 const bool special = step == 2 || step == 3;
                 Values gradients = gradients_of(c, rank, step);
                 if (special && c.fate != Fate::is_skipped && rank == 0)
                   gradients[0][1] = std::numeric_limits<float>::quiet_NaN();
                 ASSERT_OK(run_step(*set.value(), gradients, !special || c.fate == Fate::is_void));
                 if (special) {
                   EXPECT_EQ(std::isnan(gradients[0][1]), c.fate != Fate::is_skipped);
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

TEST(Carry, OutlivesStepsThatAreVoidOrSkippedWhereNothingElseKeepsIt) {
  for (const Fate fate : {Fate::is_void, Fate::is_void_and_skipped, Fate::is_skipped})
    for (const char* runtime : {"nonfinite = \"void\"", "nonfinite = \"strict\""})
      expect_all_mass({kNothingKept, runtime, fate, kTwo});
}

TEST(Carry, IsTakenOnceByTheNextMemoryWhateverBecomesOfTheStep) {
  for (const Fate fate : {Fate::is_void, Fate::is_void_and_skipped, Fate::is_skipped})
    for (const char* runtime : {"nonfinite = \"void\"", "nonfinite = \"strict\""})
      expect_all_mass({kKept, runtime, fate, kTwo});
}

// It travels in its own storage, where nobody looks for values that are not finite.
TEST(Carry, OutlivesASkippedStepOfAGradientThatTravelsAlone) {
  for (const Fate fate : {Fate::is_void_and_skipped, Fate::is_skipped})
    expect_all_mass({kNothingKept, "", fate, {{"weight", {16}}}});
}

}  // namespace
}  // namespace penstock
