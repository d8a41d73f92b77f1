// Thresholds that are found and corrected on the device, and entries that are chosen equally on all
// ranks.
#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/correcting.hpp>
#include <kernels/cuda/falling.hpp>
#include <kernels/cuda/reusing.hpp>
#include <kernels/cuda/steering.hpp>
#include <kernels/cuda/strata.hpp>
#include <kernels/norm.hpp>
#include <kernels/random_uniform.hpp>
#include <kernels/select.hpp>
#include "check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;

// ---- Falling ----

void check_fall(const Input& input, float from, uint32_t falls, double enough) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, from, falls);
  float expected = from;
  for (uint32_t j = 0; j < falls && expected != 0; ++j) {
    uint64_t count = 0;
    kernels::count_above(input.x.data(), n, {&expected, 1}, &count, kPath);
    if (static_cast<double>(count) >= enough) break;
    expected *= 0.5f;
  }
  Array<float> x(with_other_nans(input.x));
  Array<Falling> state(1);
  std::vector<Falling> before(1);
  before[0].thresholds[0] = from;
  both_ways([&] { state.put(before); },
            [&](void* s) { return fall(x.data(), n, 0.5f, falls, enough, state.data(), s); },
            [&] { REQUIRE(state.host()[0].found == expected, what, state.host()[0].found); });
}

// ---- Correcting ----

void check_correct(const Input& input, float from, const CorrectionRules& rules) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, from, rules.rounds);
  float expected = from;
  for (uint32_t j = 0; j < rules.rounds; ++j) {
    uint64_t count = 0;
    for (const float x : input.x) count += x != 0 && std::fabs(x) >= expected ? 1 : 0;
    if (static_cast<double>(count) > rules.most)
      expected *= rules.rise;
    else if (static_cast<double>(count) < rules.least)
      expected *= rules.fall;
    else
      break;
  }
  Array<float> x(with_other_nans(input.x));
  Array<Correcting> state(1);
  std::vector<Correcting> before(1);
  before[0].threshold = from;
  both_ways(
      [&] { state.put(before); },
      [&](void* s) { return correct(x.data(), n, rules, state.data(), s); },
      [&] { REQUIRE(state.host()[0].threshold == expected, what, state.host()[0].threshold); });
}

// About a twentieth of the entries is wanted. The search starts far above and below, and has bands
// that it finds soon or never.
void check_corrections(const Input& input) {
  const double wanted = static_cast<double>(input.x.size()) / 20;
  for (const float from : {0.0f, 1e-45f, 0.3f, 50.0f})
    for (const uint32_t rounds : {0u, 1u, 4u, 10u, 32u}) {
      check_correct(input, from, {1.3f, 0.8f, 1.3 * wanted, 0.8 * wanted, rounds});
      check_correct(input, from, {1.6f, 0.7f, 1.01 * wanted, wanted, rounds});
    }
}

// ---- Reusing ----

// The outcome of a selection, and the state before and after it.
struct ReuseCase {
  ReuseRules rules;
  std::vector<float> before;
  uint32_t passed;
  float smallest;
  float threshold;  // NaN: no threshold
  std::vector<float> after;
};

void check_reuse(const ReuseCase& of, uint64_t number) {
  Array<float> state(of.before);
  Array<Reusing> reusing(1);
  both_ways([&] { state.put(of.before), reusing.spoil(); },
            [&](void* s) { return begin_reuse(of.rules, state.data(), reusing.data(), s); },
            [&] {
              const float got = reusing.host()[0].threshold;
              REQUIRE(got == of.threshold || (std::isnan(got) && std::isnan(of.threshold)),
                      "a threshold to select with", number, got);
            });
  std::vector<Reusing> given = reusing.host();
  given[0].reached = {of.passed, std::bit_cast<uint32_t>(of.smallest)};
  both_ways([&] { state.put(of.before), reusing.put(given); },
            [&](void* s) { return end_reuse(of.rules, reusing.data(), state.data(), s); },
            [&] { REQUIRE(same_bits(state.host(), of.after), "what is remembered", number); });
}

// State: threshold, tolerance, interval, age, settled. The unit is half of the true gradient's.
void check_reuses() {
  const float none = std::nanf("");
  const ReuseRules usual{90, 2, 6, false, false}, warm{90, 2, 6, true, false},
      late{90, 2, 6, false, true};
  const std::vector<float> fresh{0, 0, 0, 0, 0}, young{4, 0.5f, 9, 1, 0}, old{4, 0.5f, 9, 8, 0},
      settled{4, 0.5f, 9, 1, 1};
  const ReuseCase cases[] = {
      {usual, fresh, 0, 10, none, {5, 0.5f, 6, 0, 0}},            // first step
      {warm, young, 0, 10, none, {5, 0.5f, 6, 0, 0}},             // exact, with any state
      {usual, young, 90, 10, 8, {4, 0.5f, 9, 3, 0}},              // serves
      {usual, young, 89, 10, 8, {5, 0.5f, 9, 0, 0}},              // passes too few
      {usual, old, 0, 8.25f, none, {4.125f, 0.4125f, 11, 0, 1}},  // due, nearly unchanged
      {usual, old, 0, 8.75f, none, {4.375f, 0.4375f, 10, 0, 1}},
      {usual, old, 0, 9.0f, none, {4.5f, 0.45f, 9, 0, 0}},    // largest change
      {usual, old, 0, 9.5f, none, {4.75f, 0.475f, 8, 0, 0}},  // has jumped
      {usual, old, 0, 20, none, {10, 1, 7, 0, 0}},
      {late, young, 90, 10, 8, {4, 0.5f, 9, 3, 0}},  // not settled yet
      {late, settled, 0, 10, none, settled},         // chooses rows
  };
  uint64_t number = 0;
  for (const ReuseCase& of : cases) check_reuse(of, number++);
}

// Three rows replace five chosen entries, or do not.
void check_replacing() {
  const std::vector<uint32_t> chosen{1, 2, 3, 4, 5}, of_rows{7, 8, 9};
  Array<uint32_t> indices(chosen), rows(of_rows);
  Array<uint64_t> count(1);
  Array<Reusing> reusing(1);
  for (const bool by_rows : {false, true}) {
    reusing.put({{0, by_rows ? 1u : 0u, {}}});
    both_ways([&] { indices.put(chosen), count.put({5}); },
              [&](void* s) {
                return replace_by_rows(reusing.data(), rows.data(), 3, indices.data(), count.data(),
                                       s);
              },
              [&] {
                const std::vector<uint32_t> replaced{7, 8, 9, 4, 5};
                REQUIRE(indices.host() == (by_rows ? replaced : chosen), "indices", by_rows);
                REQUIRE(count.host()[0] == (by_rows ? 3 : 5), "their number", by_rows);
              });
  }
}

// ---- Random positions ----

void check_drawn(uint64_t n, uint64_t k, ValueType type) {
  const std::string what = describe("drawn", n, k, static_cast<int>(type));
  const RandomKey key = random_key({3, 5, 7});
  std::vector<uint32_t> words(k + 1);
  kernels::random_words(key, 11, k + 1, words.data(), kPath);
  const DrawnStrata drawn{Strata(n, k, words[k]), key, 11};
  std::vector<float> work = normal(n, 4), sent(k), expected(n);
  const std::vector<float> before = work;
  std::vector<uint8_t> bytes(k * (type == ValueType::kFloat32 ? 4 : 2));
  constexpr float kLimit = 0.5f;
  for (uint64_t j = 0; j < k; ++j) {
    const float exact = work[drawn.strata.position(j, words[j])];
    sent[j] = type == ValueType::kFloat32 ? exact : std::clamp(exact, -kLimit, kLimit);
  }
  kernels::narrow_values(type, sent.data(), k, bytes.data(), 1);
  for (uint64_t j = 0; j < k; ++j) {
    const uint32_t position = drawn.strata.position(j, words[j]);
    work[position] = work[position] == sent[j] ? 0 : work[position] - sent[j];
    expected[position] = sent[j] * 3 * (1.0f / 7);
  }
  Array<float> x(before), out(n);
  Array<uint8_t> values(bytes.size());
  both_ways([&] { x.put(before), values.spoil(), out.spoil(); },
            [&](void* s) {
              const int32_t error =
                  take_drawn(type, x.data(), drawn, kLimit, true, values.data(), s);
              if (error != 0) return error;
              return spread_drawn(type, values.data(), drawn, 3, 1.0f / 7, out.data(), s);
            },
            [&] {
              REQUIRE(same_bits(values.host(), bytes), what);
              REQUIRE(same_bits(x.host(), work), what);
              REQUIRE(same_bits(out.host(), expected), what);
            });
}

// ---- Chunks ----

// Every second chunk, or every chunk. Beyond n there are zeros.
void check_chunks(uint64_t n, uint64_t chunk, bool whole, ValueType type) {
  const std::string what = describe("chunks", n, chunk, whole ? 1 : 0, static_cast<int>(type));
  constexpr float kLimit = 0.5f;
  std::vector<uint32_t> chosen;
  for (uint64_t c = n / chunk % 2; c * chunk < n; c += 2)
    chosen.push_back(static_cast<uint32_t>(c));
  const uint64_t capacity = whole ? n : chosen.size() * chunk;
  const std::vector<float> before = normal(n, 6);
  std::vector<float> work = before, sent(capacity), expected(n);
  const auto position = [&](uint64_t j) {
    return whole ? j : chosen[j / chunk] * chunk + j % chunk;
  };
  for (uint64_t j = 0; j < capacity; ++j) {
    const float exact = position(j) < n ? before[position(j)] : 0;
    sent[j] = type == ValueType::kFloat32 ? exact : std::clamp(exact, -kLimit, kLimit);
  }
  std::vector<uint8_t> bytes(capacity * (type == ValueType::kFloat32 ? 4 : 2));
  kernels::narrow_values(type, sent.data(), capacity, bytes.data(), 1);
  for (uint64_t j = 0; j < capacity; ++j) {
    const uint64_t i = position(j);
    if (i >= n) continue;
    work[i] = work[i] == sent[j] ? 0 : work[i] - sent[j];
    expected[i] = sent[j] * 0.25f;
  }
  Array<float> x(before), out(n);
  Array<uint8_t> values(bytes.size());
  Array<uint32_t> indices(chosen);
  const ChosenChunks chunks{n, chunk, chosen.size(), whole ? nullptr : indices.data()};
  both_ways([&] { x.put(before), values.spoil(), out.spoil(); },
            [&](void* s) {
              const int32_t error =
                  take_chunks(type, x.data(), chunks, kLimit, true, values.data(), s);
              if (error != 0) return error;
              return spread_chunks(type, values.data(), chunks, 0.25f, out.data(), s);
            },
            [&] {
              REQUIRE(same_bits(values.host(), bytes), what);
              REQUIRE(same_bits(x.host(), work), what);
              REQUIRE(same_bits(out.host(), expected), what);
            });
}

void check_norms_of_chunks(uint64_t n, uint64_t chunk) {
  const std::vector<float> values = normal(n, 8);
  const uint64_t chunks = (n + chunk - 1) / chunk;
  Array<float> x(values), norms(chunks);
  Scratch scratch(chunk_norms_workspace_bytes(n, chunk));
  both_ways(
      [&] { norms.spoil(), scratch.spoil(); },
      [&](void* s) { return chunk_norms(x.data(), n, chunk, norms.data(), scratch.get(), s); },
      [&] {
        const std::vector<float> got = norms.host();
        for (uint64_t c = 0; c < chunks; ++c) {
          const double expected = kernels::sum_of_magnitudes(values.data() + c * chunk,
                                                             std::min(chunk, n - c * chunk), kPath);
          REQUIRE(std::fabs(got[c] - expected) <= 1e-6 * expected, "the norm of a chunk", got[c],
                  expected);
        }
      });
}

}  // namespace

void check_thresholds(const Extent& extent) {
  check_reuses();
  check_replacing();
  for (const uint64_t n : extent.sizes) {
    for (const Input& input : extent.inputs(n, false))
      for (const float from : {0.0f, 1e-45f, 3.0f})
        for (const uint32_t falls : {0u, 5u, kMostFalls})
          check_fall(input, from, falls, static_cast<double>(n) / 10);
    for (const Input& input : extent.inputs(n, false)) check_corrections(input);
    if (n == 0) continue;
    for (const ValueType type : {ValueType::kFloat32, ValueType::kFloat16, ValueType::kBfloat16})
      for (const uint64_t k : {uint64_t{1}, (n + 2) / 3, n}) check_drawn(n, k, type);
  }
  for (const uint64_t n : extent.few_sizes)
    for (const uint64_t chunk : {7, 64, 5000}) {
      check_norms_of_chunks(n, chunk);
      for (const ValueType type : {ValueType::kFloat32, ValueType::kFloat16})
        for (const bool whole : {false, true}) check_chunks(n, chunk, whole, type);
    }
}

}  // namespace penstock::kernels::cuda::check
