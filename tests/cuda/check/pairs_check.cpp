// Pairs: a selection near a wanted number, values of every type, and their sums.
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include <kernels/cuda/sparse_values.hpp>
#include <kernels/element/keys.hpp>
#include <kernels/narrow_values.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

namespace penstock::kernels::cuda::check {
namespace {

constexpr ValueType kTypes[] = {ValueType::kFloat32, ValueType::kFloat16, ValueType::kBfloat16,
                                ValueType::kInt8};
uint64_t width_of(ValueType type) {
  if (type == ValueType::kFloat32) return 4;
  return type == ValueType::kInt8 ? 1 : 2;
}

// ---- Selection near a wanted number, by sorting ----

struct Near {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  std::vector<float> work;
  Reached reached{0, kInfinityKey + 1};
};

Near near_by_sorting(std::vector<float> x, float threshold, const Band& band, bool fills) {
  std::vector<uint32_t> order;
  Near near;
  for (uint32_t i = 0; i < x.size(); ++i)
    if (magnitude_key(x[i]) >= threshold_key(threshold)) ++near.reached.passed;
  const bool zeros_go = fills && near.reached.passed < band.least;
  for (uint32_t i = 0; i < x.size(); ++i)
    if (zeros_go || magnitude_key(x[i]) > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return magnitude_key(x[a]) > magnitude_key(x[b]);
  });
  const uint64_t passed = near.reached.passed;
  const uint64_t k = passed < band.least ? band.target : std::min(passed, band.most);
  order.resize(std::min<uint64_t>(order.size(), k));
  if (!order.empty()) near.reached.smallest = magnitude_key(x[order.back()]);
  std::sort(order.begin(), order.end());
  for (const uint32_t i : order) near.values.push_back(x[i]);
  for (const uint32_t i : order) x[i] = 0;
  near.indices = std::move(order);
  near.work = std::move(x);
  return near;
}

void check_near(const Input& input, float limit, bool taken, const Band& band,
                Zeros zeros = Zeros::kNeverReach) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, limit, band.target, band.least, band.most);
  const Near expected = near_by_sorting(input.x, limit, band, zeros == Zeros::kFillInstead);
  const uint64_t k = expected.indices.size();
  Array<float> work(input.x), values(band.most), threshold(std::vector<float>{limit});
  Array<uint32_t> indices(band.most);
  Array<uint64_t> count(1);
  Array<Reached> reached(1);
  Scratch scratch(select_workspace_bytes(n, band.most));
  both_ways(
      [&] {
        work.put(input.x), values.spoil(), indices.spoil(), count.spoil(), reached.spoil(),
            scratch.spoil();
      },
      [&](void* stream) {
        return select_near(work.data(), n, threshold.data(), band, taken, indices.data(),
                           values.data(), count.data(), reached.data(), scratch.get(), stream,
                           zeros);
      },
      [&] {
        REQUIRE(count.host()[0] == k, what);
        std::vector<uint32_t> got = indices.host();
        std::vector<float> got_values = values.host();
        got.resize(k), got_values.resize(k);
        REQUIRE(same_bits(got, expected.indices), what);
        REQUIRE(same_bits(got_values, expected.values), what);
        REQUIRE(same_bits(work.host(), taken ? expected.work : input.x), what);
        REQUIRE(same_bits(reached.host(), {expected.reached}), what);
      });
}

// ---- Values ----

// Sends every third entry. The device knows the count, and the capacity is larger.
void check_send(const Input& input, ValueType type, bool taken, bool counted) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, width_of(type), taken, counted);
  std::vector<uint32_t> chosen;
  for (uint64_t i = n % 3; i < n; i += 3) chosen.push_back(static_cast<uint32_t>(i));
  const uint64_t k = chosen.size(), capacity = counted ? k + 100 : k;
  std::vector<float> exact(k), work = input.x;
  float largest = 0;
  for (uint64_t j = 0; j < k; ++j) exact[j] = work[chosen[j]];
  for (const float value : exact) largest = std::max(largest, std::fabs(value));
  const float scale = kernels::value_scale(type, largest);
  std::vector<float> rounded = exact;
  std::vector<uint8_t> bytes(k * width_of(type));
  kernels::narrow_values(type, rounded.data(), k, bytes.data(), scale);
  for (uint64_t j = 0; taken && j < k; ++j)
    work[chosen[j]] = type == ValueType::kFloat32 ? 0 : exact[j] - rounded[j];

  chosen.resize(capacity, 0xffffffffu);
  Array<float> x(input.x), largest_at(1), scale_at(std::vector<float>{scale});
  Array<uint32_t> indices(chosen);
  Array<uint64_t> count(std::vector<uint64_t>{k});
  Array<uint8_t> values(capacity * width_of(type));
  const ChosenEntries entries{x.data(), indices.data(), counted ? count.data() : nullptr, capacity};
  both_ways([&] { x.put(input.x), values.spoil(), largest_at.spoil(); },
            [&](void* s) {
              const int32_t error = largest_of(entries, largest_at.data(), s);
              if (error != 0) return error;
              return send_values(type, entries, values.data(), scale_at.data(), taken, s);
            },
            [&] {
              REQUIRE(same_bits(largest_at.host(), {largest}), what);
              std::vector<uint8_t> got = values.host();
              got.resize(bytes.size());
              REQUIRE(same_bits(got, bytes), what);
              REQUIRE(same_bits(x.host(), work), what);
            });
}

// ---- Sums ----

void check_narrow_sum(uint64_t n, ValueType type) {
  constexpr uint64_t kSenders = 3;
  std::mt19937 random(static_cast<uint32_t>(n));
  std::deque<Array<uint32_t>> indices;
  std::deque<Array<uint8_t>> values;
  std::deque<Array<float>> scales;
  std::vector<SparseSender> senders;
  std::vector<float> expected(n);
  for (uint64_t s = 0; s < kSenders; ++s) {
    std::vector<uint32_t> chosen;
    for (uint64_t i = random() % 3; i < n; i += 1 + random() % 5)
      chosen.push_back(static_cast<uint32_t>(i));
    const float scale = kernels::value_scale(type, 4.0f * static_cast<float>(s + 1));
    std::vector<float> sent = normal(chosen.size(), 20 + s);
    std::vector<uint8_t> bytes(sent.size() * width_of(type));
    kernels::narrow_values(type, sent.data(), sent.size(), bytes.data(), scale);
    for (uint64_t j = 0; j < chosen.size(); ++j) expected[chosen[j]] += sent[j];
    senders.push_back({indices.emplace_back(chosen).data(), values.emplace_back(bytes).data(),
                       chosen.size(), scales.emplace_back(std::vector<float>{scale}).data()});
  }
  for (float& value : expected) value *= 0.5f;
  Array<float> out(n);
  both_ways(
      [&] { out.spoil(); },
      [&](void* s) { return sum_sparse(senders, SumOver::kZeros, 0.5f, out.data(), n, s, type); },
      [&] { REQUIRE(same_bits(out.host(), expected), "narrow sum", n, width_of(type)); });
}

}  // namespace

void check_pairs(const Extent& extent) {
  for (const uint64_t n : extent.sizes) {
    for (const ValueType type : kTypes) check_narrow_sum(n, type);
    for (const Input& input : extent.inputs(n, true)) {
      for (const ValueType type : kTypes)
        for (const bool taken : {false, true}) check_send(input, type, taken, n % 2 == 0);
      if (n == 0) continue;
      const uint64_t target = std::max<uint64_t>(1, n / 100);
      for (const float limit : {0.0f, 2.5f, 1e30f, std::nanf("")}) {
        check_near(input, limit, true, {target, target - target / 10, target + target / 10});
        check_near(input, limit, false, {target, target, target});
        check_near(input, limit, true, {target, (9 * target + 9) / 10, target + target / 10},
                   Zeros::kFillInstead);
      }
    }
  }
}

}  // namespace penstock::kernels::cuda::check
