// Codes of ranges, of the dynamic tree and of thresholds, and sums of coded payloads. They are
// compared with plain loops over the arithmetic of one element, which the CPU's methods use too.
#include <kernels/cuda/coded_sum.hpp>
#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/reduce.hpp>
#include <kernels/dynamic_tree.hpp>
#include <kernels/element/rounding.hpp>
#include <kernels/pack_bits.hpp>
#include <kernels/sign.hpp>
#include <kernels/threshold_code.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

namespace penstock::kernels::cuda::check {
namespace {

constexpr RandomKey kKey = random_key({1, 2, 3, 4});
constexpr uint64_t kFirst = (uint64_t{1} << 32) - 512;  // 512 elements before the next words

uint64_t run_of(uint64_t n, uint64_t run) {
  return run == 0 || run > n ? std::max<uint64_t>(1, n) : run;
}
uint64_t n_runs(uint64_t n, uint64_t run) {
  return (n + run_of(n, run) - 1) / run_of(n, run);
}

// -0 and 0 have one magnitude, so a range may begin with either.
std::vector<ValueRange> ranges_of(const std::vector<float>& x, uint64_t run) {
  std::vector<ValueRange> ranges(n_runs(x.size(), run));
  for (uint64_t i = 0; i < x.size(); ++i) {
    ValueRange& range = ranges[i / run_of(x.size(), run)];
    range.low = std::min(range.low, x[i]);
    range.high = std::max(range.high, x[i]);
  }
  return ranges;
}

// ---- Codes ----

void check_ranges(const Input& input, uint64_t run) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, run);
  const std::vector<ValueRange> expected = ranges_of(input.x, run);
  Array<float> x(input.x);
  Array<ValueRange> ranges(std::max<uint64_t>(1, expected.size()));
  Scratch scratch(reduce_workspace_bytes(n, run));
  both_ways(
      [&] { ranges.spoil(), scratch.spoil(); },
      [&](void* s) { return value_ranges(x.data(), n, run, ranges.data(), scratch.get(), s); },
      [&] {
        const std::vector<ValueRange> got = ranges.host();
        for (uint64_t r = 0; r < expected.size(); ++r)
          REQUIRE(got[r].low == expected[r].low && got[r].high == expected[r].high, what, r);
      });
}

void check_range_codes(const Input& input, uint64_t run, uint32_t n_steps, bool by_chance,
                       bool take_out) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, run, n_steps);
  const std::vector<ValueRange> ranges = ranges_of(input.x, run);
  std::vector<RangeLevels> levels;
  for (const ValueRange& range : ranges) levels.push_back(levels_of_range(range, n_steps));
  std::vector<float> rest = input.x;
  std::vector<uint8_t> expected(n);
  for (uint64_t i = 0; i < n; ++i) {
    const auto [low, step] = levels[i / run_of(n, run)];
    const uint32_t word =
        random_word(random_block(kKey, kFirst + i), static_cast<uint32_t>(kFirst + i));
    const float draw = by_chance ? unit_interval(word) : 0.5f;
    const auto top = static_cast<float>(n_steps);
    expected[i] = static_cast<uint8_t>(step == 0 ? 0 : level_near(rest[i], low, step, top, draw));
    if (take_out) rest[i] -= level_value(expected[i], low, step);
  }
  Array<float> x(n);
  Array<ValueRange> of_runs(ranges);
  Array<RangeLevels> found(ranges.size());
  Array<uint8_t> codes(n);
  both_ways([&] { x.put(input.x), found.spoil(), codes.spoil(); },
            [&](void* s) {
              const int32_t error =
                  range_levels(of_runs.data(), ranges.size(), n_steps, found.data(), s);
              if (error != 0) return error;
              return round_to_range(x.data(), n, run, found.data(), n_steps,
                                    {by_chance, kKey, kFirst}, take_out, codes.data(), s);
            },
            [&] {
              REQUIRE(same_bits(found.host(), levels), what);
              REQUIRE(same_bits(codes.host(), expected), what);
              REQUIRE(same_bits(x.host(), rest), what);
            });
}

// By a full search. If two numbers are equally near, the smaller magnitude.
uint8_t nearest_by_search(float ratio) {
  static const DynamicTree tree = make_dynamic_tree();
  int32_t best = kTreeZero;
  for (int32_t code = 0; code < 256; ++code) {
    const double here = std::fabs(double{ratio} - double{tree.values[code]});
    const double there = std::fabs(double{ratio} - double{tree.values[best]});
    const bool is_smaller = std::fabs(tree.values[code]) < std::fabs(tree.values[best]);
    if (here < there || (here == there && is_smaller)) best = code;
  }
  return static_cast<uint8_t>(best);
}

void check_tree(const Input& input, uint64_t run, bool take_out) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, run);
  const DynamicTree tree = make_dynamic_tree();
  std::vector<float> scales(n_runs(n, run)), rest = input.x;
  for (uint64_t i = 0; i < n; ++i)
    scales[i / run_of(n, run)] = std::max(scales[i / run_of(n, run)], std::fabs(rest[i]));
  std::vector<uint8_t> expected(n);
  for (uint64_t i = 0; i < n; ++i) {
    const float scale = scales[i / run_of(n, run)];
    expected[i] = nearest_by_search(scale > 0 ? rest[i] / scale : 0);
    if (take_out) rest[i] -= tree.values[expected[i]] * scale;
  }
  Array<float> x(n), scales_of(scales);
  Array<uint8_t> codes(n);
  both_ways([&] { x.put(input.x), codes.spoil(); },
            [&](void* s) {
              return nearest_in_tree(x.data(), n, run, scales_of.data(), take_out, codes.data(), s);
            },
            [&] {
              REQUIRE(same_bits(codes.host(), expected), what);
              REQUIRE(same_bits(x.host(), rest), what);
            });
}

void check_threshold(const Input& input, float threshold, bool take_out) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, threshold);
  std::vector<float> rest = input.x;
  std::vector<uint8_t> expected(n);
  for (uint64_t i = 0; i < n; ++i) {
    expected[i] = rest[i] >= threshold ? 1 : rest[i] <= -threshold ? 2 : 0;
    if (take_out) rest[i] += expected[i] == 1 ? -threshold : expected[i] == 2 ? threshold : 0.0f;
  }
  Array<float> x(n), sent(1);
  Array<uint8_t> codes(n);
  both_ways([&] { x.put(input.x), codes.spoil(), sent.spoil(); },
            [&](void* s) {
              return reach_threshold(x.data(), n, threshold, take_out, codes.data(), sent.data(),
                                     s);
            },
            [&] {
              REQUIRE(sent.host()[0] == threshold, what);
              REQUIRE(same_bits(codes.host(), expected), what);
              // -0 plus 0 differs from -0 plus -0. The kernel may add a zero of either sign.
              REQUIRE(x.host() == rest, what);
            });
}

// ---- Sums ----

// Senders of random codes, with numbers for the codes.
template <typename Number>
struct Senders {
  Senders(uint64_t n, uint64_t run, unsigned bits, uint64_t count,
          const std::function<Number(std::mt19937_64&)>& number, uint32_t n_codes) {
    std::mt19937_64 random(n + bits);
    for (uint64_t s = 0; s < count; ++s) {
      auto& mine = codes.emplace_back(n);
      for (uint8_t& code : mine) code = static_cast<uint8_t>(random() % n_codes);
      auto& of_runs = numbers.emplace_back(n_runs(n, run));
      for (Number& each : of_runs) each = number(random);
      std::vector<uint64_t> words(packed_words(n, bits));
      kernels::pack_bits(mine.data(), n, bits, words.data());
      packed.emplace_back(words);
      numbers_there.emplace_back(of_runs);
      all.push_back({packed.back().data(), numbers_there.back().data()});
    }
  }
  std::vector<std::vector<uint8_t>> codes;
  std::vector<std::vector<Number>> numbers;
  std::deque<Array<uint64_t>> packed;
  std::deque<Array<Number>> numbers_there;
  std::vector<CodeSender> all;
};

// Compares run(senders, sum, stream) with value(code, number) in a plain loop.
template <typename Number, typename Value, typename Run>
void check_sum(const Senders<Number>& senders, uint64_t n, uint64_t run, const std::string& what,
               const Value& value, const Run& run_it) {
  for (const bool over_zeros : {true, false})
    for (const float scale : {1.0f, 1.0f / 3}) {
      std::vector<float> expected(n, over_zeros ? 0.0f : 0.5f);
      for (uint64_t s = 0; s < senders.all.size(); ++s)
        for (uint64_t i = 0; i < n; ++i)
          expected[i] += value(senders.codes[s][i], senders.numbers[s][i / run_of(n, run)]);
      if (scale != 1)
        for (float& each : expected) each *= scale;
      Array<float> out(n);
      const CodedSum sum{over_zeros ? SumOver::kZeros : SumOver::kWhatIsThere, scale, out.data(), n,
                         run};
      both_ways([&] { out.put(std::vector<float>(n, 0.5f)); },
                [&](void* s) { return run_it(std::span<const CodeSender>(senders.all), sum, s); },
                [&] { REQUIRE(same_bits(out.host(), expected), what, n, run, scale); });
    }
}

void check_packed_sums(uint64_t n, uint64_t run, uint64_t count) {
  const auto above_zero = [](std::mt19937_64& random) {
    return static_cast<float>(random() % 1000 + 1) * 0x1p-12f;
  };
  for (unsigned bits = 1; bits <= 8; ++bits) {
    const Senders<float> levels(n, run, bits, count, above_zero, 1u << bits);
    check_sum(
        levels, n, run, "levels",
        [bits](uint8_t code, float step) {
          const int level = code >= 1 << (bits - 1) ? code - (1 << bits) : code;
          return static_cast<float>(level) * step;
        },
        [bits](auto senders, const CodedSum& sum, void* s) {
          return sum_levels(senders, bits, sum, s);
        });
    const Senders<RangeLevels> ranges(
        n, run, bits, count,
        [&](std::mt19937_64& random) {
          return RangeLevels{-above_zero(random), above_zero(random)};
        },
        1u << bits);
    check_sum(
        ranges, n, run, "range levels",
        [](uint8_t code, const RangeLevels& of) { return level_value(code, of.low, of.step); },
        [bits](auto senders, const CodedSum& sum, void* s) {
          return sum_range_levels(senders, bits, sum, s);
        });
  }
  const Senders<float> thresholds(n, run, 2, count, above_zero, 3);
  check_sum(
      thresholds, n, run, "thresholds",
      [](uint8_t code, float threshold) {
        return code == 1 ? threshold : code == 2 ? -threshold : 0.0f;
      },
      sum_thresholds);
}

void check_byte_sums(uint64_t n, uint64_t run, uint64_t count) {
  const DynamicTree tree = make_dynamic_tree();
  const Senders<uint8_t> powers(
      n, run, 8, count,
      [](std::mt19937_64& random) { return static_cast<uint8_t>(random() % 128); }, 256);
  check_sum(
      powers, n, run, "powers",
      [](uint8_t code, uint8_t base) { return power_of_code(code, base); }, sum_powers);
  const Senders<float> of_tree(
      n, run, 8, count,
      [](std::mt19937_64& random) { return static_cast<float>(random() % 1000) * 0.01f; }, 256);
  check_sum(
      of_tree, n, run, "tree", [&](uint8_t code, float scale) { return tree.values[code] * scale; },
      sum_tree);
}

void check_sign_sum(uint64_t n, uint64_t count) {
  std::mt19937_64 random(n);
  std::deque<Array<uint64_t>> planes;
  std::deque<Array<float>> scales;
  std::vector<ChosenSigns> senders;
  std::vector<float> expected(n, 0.5f);
  for (uint64_t s = 0; s < count; ++s) {
    std::vector<uint64_t> negative(sign_words(n)), nonzero(sign_words(n));
    for (uint64_t w = 0; w < negative.size(); ++w) negative[w] = random(), nonzero[w] = random();
    const auto scale = static_cast<float>(s + 1) * 0.3f;
    for (uint64_t i = 0; i < n; ++i)
      if ((nonzero[i / 64] >> i % 64 & 1) != 0)
        expected[i] += (negative[i / 64] >> i % 64 & 1) != 0 ? -scale : scale;
    planes.emplace_back(negative);
    planes.emplace_back(nonzero);
    scales.emplace_back(std::vector<float>{scale});
    senders.push_back({planes[2 * s].data(), planes[2 * s + 1].data(), scales.back().data()});
  }
  for (float& each : expected) each *= 0.25f;
  Array<float> out(n);
  both_ways([&] { out.put(std::vector<float>(n, 0.5f)); },
            [&](void* s) {
              return sum_chosen_signs(senders, {SumOver::kWhatIsThere, 0.25f, out.data(), n, 0}, s);
            },
            [&] { REQUIRE(same_bits(out.host(), expected), n, count); });
}

void refuse() {
  Array<float> x(64);
  const std::vector<CodeSender> too_many(kMostSenders + 1);
  const CodedSum sum{SumOver::kZeros, 1, x.data(), 64, 0};
  REQUIRE(sum_powers(too_many, sum, nullptr) == cudaErrorInvalidValue, "too many senders");
  REQUIRE(sum_levels({}, 9, sum, nullptr) == cudaErrorInvalidValue, "nine bits");
  REQUIRE(sum_tree({}, {SumOver::kZeros, 1, nullptr, 64, 0}, nullptr) == cudaErrorInvalidValue,
          "no out");
  REQUIRE(
      reach_threshold(x.data(), 64, 1, true, nullptr, x.data(), nullptr) == cudaErrorInvalidValue,
      "no codes");
}

}  // namespace

void check_codes(const Extent& extent) {
  refuse();
  for (const uint64_t n : extent.few_sizes) {
    for (const Input& input : extent.inputs(n, true))
      for (const uint64_t run : {0, 64, 3000, 20000}) {
        check_ranges(input, run);
        for (const bool take_out : {false, true}) {
          check_tree(input, run, take_out);
          for (const uint32_t n_steps : {1u, 15u, 255u})
            check_range_codes(input, run, n_steps, take_out, take_out);
        }
      }
    for (const uint64_t count : {0, 1, 3, 32})
      for (const uint64_t run : {0, 64, 700, 3000}) {
        check_packed_sums(n, run, count);
        check_byte_sums(n, run, count);
        check_sign_sum(n, count);
      }
  }
  for (const uint64_t n : extent.sizes)
    for (const Input& input : extent.inputs(n, true))
      for (const float threshold : {0.5f, 1e-42f}) check_threshold(input, threshold, true);
}

}  // namespace penstock::kernels::cuda::check
