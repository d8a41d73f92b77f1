// For tests: compares runs in which some steps are forgotten with runs without such steps.
#pragma once

#include "core/set/testing.hpp"

#include <testing/data.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace penstock::forgetting {

using testing::make_set;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;
using Flags = std::vector<uint8_t>;

inline const std::vector<testing::GradientShape> kShapes{
    {"first", {24, 16}}, {"bias", {24}}, {"second", {9, 40}}, {"empty", {0}}, {"last", {33}}};
inline constexpr uint64_t kSteps = 7;

// `draw`: the number of the step, or an unused number for a step that is forgotten.
inline Values gradients_of(uint32_t rank, uint64_t draw) {
  Values gradients;
  for (size_t g = 0; g < kShapes.size(); ++g) {
    uint64_t numel = 1;
    for (const int64_t extent : kShapes[g].shape) numel *= uint64_t(extent);
    gradients.push_back(test::heavy_tailed(numel, 1 + 1000 * draw + 10 * rank + g));
  }
  return gradients;
}

struct NamedScheme {
  std::string name;
  std::string text;
  uint32_t flags = 0;
};
inline void PrintTo(const NamedScheme& scheme, std::ostream* out) {
  *out << scheme.name;
}

// ---- a run with steps that are forgotten, and one without ----

// Runs a step without ending it. Gradients in `absent` are handed in as absent, gradients in
// `left_out` are not handed in.
inline Status run_to_its_end(Set& set, Values& gradients, const std::set<size_t>& absent = {},
                             const std::set<size_t>& left_out = {}) {
  for (size_t g = gradients.size(); g-- > 0;) {
    if (left_out.contains(g)) continue;
    const penstock_tensor tensor = view_of(gradients[g]);
    PENSTOCK_TRY(absent.contains(g) ? set.gradient_absent(g, tensor)
                                    : set.gradient_ready(g, tensor));
  }
  if (set.defers()) PENSTOCK_TRY(set.backward_end());
  return set.wait_all();
}

inline bool is_all_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

// Runs and forgets `step` % 3 steps, of different kinds. Checks that none changes the saved state.
inline void forget_some(Set& set, uint32_t size, uint32_t rank, uint64_t step) {
  std::string before;
  ASSERT_OK(set.save(before));
  for (uint64_t i = 0; i < step % 3; ++i) {
    const uint64_t draw = 100 + 10 * step + i;
    Values gradients = gradients_of(rank, draw);
    std::set<size_t> absent, left_out;
    // Once finite gradients so large that their sums overflow.
    const bool is_huge = draw % 7 == 0;
    if (is_huge) {
      for (float& value : gradients[0]) value = std::copysign(3e38f, value);
    } else if (rank == draw % size) {
      if (draw % 4 == 0) gradients[0][5] = std::numeric_limits<float>::infinity();
      if (draw % 4 == 1) gradients[2][9] = std::numeric_limits<float>::quiet_NaN();
      if (draw % 4 == 2) absent = {0, 1};
      if (draw % 4 == 3) left_out = {2};
    }
    ASSERT_OK(run_to_its_end(set, gradients, absent, left_out));
    if (is_huge) {
      EXPECT_FALSE(is_all_zero(gradients[0])) << "a step that has overflowed looks like a result";
    }
    std::string after;
    if (draw % 2 == 0) {
      ASSERT_OK(set.save(after = {}));
      EXPECT_TRUE(before == after) << "before the end of what is thrown away before step " << step;
    }
    ASSERT_OK(set.step_end(PENSTOCK_STEP_FORGOTTEN));
    ASSERT_OK(set.save(after = {}));
    EXPECT_TRUE(before == after) << "thrown away before step " << step;
  }
}

struct Trace {
  std::vector<std::vector<Values>> results;     // [rank][step], of the steps that count
  std::vector<std::vector<std::string>> saved;  // the state after each of these steps
  uint64_t forgotten = 0;
  std::string refused;  // why the scheme was refused; empty: it was not
};

inline Trace run(const NamedScheme& scheme, uint32_t size, bool forgets) {
  Trace seen;
  seen.results.resize(size);
  seen.saved.resize(size);
  with_ranks(size, scheme.text, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, scheme.flags);
    if (!set.ok()) {
      if (rank == 0) seen.refused = set.status().message();
      return;
    }
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (forgets) {
        ASSERT_NO_FATAL_FAILURE(forget_some(*set.value(), size, rank, step));
      }
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_to_its_end(*set.value(), gradients));
      ASSERT_OK(set.value()->step_end());
      seen.results[rank].push_back(gradients);
      ASSERT_OK(set.value()->save(seen.saved[rank].emplace_back()));
    }
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_EQ(counters.steps, kSteps);
    if (rank == 0) seen.forgotten = counters.forgotten_steps;
  });
  return seen;
}

inline bool same_bits(const Values& a, const Values& b) {
  for (size_t g = 0; g < a.size(); ++g)
    if (!a[g].empty() && std::memcmp(a[g].data(), b[g].data(), a[g].size() * sizeof(float)) != 0)
      return false;
  return true;
}

// Checks that forgotten steps change neither results nor states. `refused`, if given, receives the
// reason why the scheme is refused; the test then passes.
inline void expect_no_trace(const NamedScheme& scheme, uint32_t size,
                            std::string* refused = nullptr) {
  const Trace plain = run(scheme, size, false), forgetful = run(scheme, size, true);
  if (refused != nullptr) *refused = plain.refused;
  if (!plain.refused.empty() && refused != nullptr) return;
  ASSERT_EQ(plain.refused, "");
  EXPECT_EQ(plain.forgotten, 0u);
  EXPECT_EQ(forgetful.forgotten, 6u);  // none, one or two before each of seven steps
  for (uint32_t rank = 0; rank < size; ++rank) {
    ASSERT_EQ(forgetful.results[rank].size(), kSteps) << scheme.name;
    for (uint64_t step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(same_bits(forgetful.results[rank][step], plain.results[rank][step]))
          << scheme.name << " on " << size << ", results of rank " << rank << " in step " << step;
      ASSERT_TRUE(forgetful.saved[rank][step] == plain.saved[rank][step])
          << scheme.name << " on " << size << ", state of rank " << rank << " after step " << step;
    }
  }
}

// ---- schemes ----

inline NamedScheme scheme(const std::string& name, const std::string& keys,
                          const std::string& tables = "", uint32_t flags = 0) {
  return {name, scheme_text(keys, tables), flags};
}

inline std::string keys(const std::string& compressor, const std::string& memory,
                        const std::string& more = "scheduler = \"wfbp\"") {
  return fmt::format("compressor = \"{}\"\nmemory = \"{}\"\n{}", compressor, memory, more);
}

inline const std::string kFew = "[compressor.topk]\ndensity = 0.05\n";
inline const std::string kDense = "[[rule]]\nmatch = { dims = 1 }\ncompressor = \"none\"\n";

}  // namespace penstock::forgetting
