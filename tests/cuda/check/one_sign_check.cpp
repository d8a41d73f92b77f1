// Entries of one sign, sent as positions and one mean: magnitudes, means, and sums of payloads.
#include <kernels/cuda/one_sign.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include "check.hpp"

#include <cmath>
#include <deque>

namespace penstock::kernels::cuda::check {
namespace {

void check_magnitudes(const Input& input, bool negative) {
  const uint64_t n = input.x.size();
  std::vector<float> expected(n, 0.0f);
  for (uint64_t i = 0; i < n; ++i)
    if (negative ? input.x[i] < 0 : input.x[i] > 0) expected[i] = std::fabs(input.x[i]);
  Array<float> x(input.x), magnitudes(n);
  both_ways(
      [&] { magnitudes.spoil(); },
      [&](void* s) { return magnitudes_of_sign(x.data(), n, negative, magnitudes.data(), s); },
      [&] { REQUIRE(same_bits(magnitudes.host(), expected), input.name, n, negative ? 1 : 0); });
}

// The mean of the first `count` chosen entries. Beyond `count` there are invalid indices.
void check_mean(uint64_t n, uint64_t count, bool negative, bool taken) {
  const std::vector<float> before = normal(n, 3);
  std::vector<uint32_t> chosen(n, 0xffffffffu);
  for (uint64_t j = 0; j < count; ++j) chosen[j] = static_cast<uint32_t>(j);
  const double sum = 12.75;
  float expected = count == 0 ? 0 : static_cast<float>(sum / static_cast<double>(count));
  if (negative) expected = -expected;
  std::vector<float> left = before;
  for (uint64_t j = 0; taken && j < count; ++j) left[j] -= expected;
  Array<float> work(before), mean(1);
  Array<uint32_t> indices(chosen);
  Array<uint64_t> count_there(std::vector<uint64_t>{count});
  Array<double> sum_there(std::vector<double>{sum});
  both_ways([&] { work.put(before), mean.spoil(); },
            [&](void* s) {
              return take_mean({work.data(), indices.data(), count_there.data(), n},
                               sum_there.data(), negative, taken, mean.data(), s);
            },
            [&] {
              REQUIRE(std::fabs(mean.host()[0]) == std::fabs(expected) &&
                          std::signbit(mean.host()[0]) == (count > 0 && negative),
                      "mean", n, count);
              REQUIRE(same_bits(work.host(), left), "what a mean leaves", n, count);
            });
}

// Senders with one value each. One sender has no entry.
void check_sum_of_means(uint64_t n) {
  std::deque<Array<uint32_t>> indices;
  std::deque<Array<float>> means;
  std::vector<float> expected(n, 0.0f);
  SparseSums sums;
  std::vector<SparseSender> senders;
  for (uint64_t s = 0; s < 4; ++s) {
    const float mean = 0.3f * static_cast<float>(s) - 0.5f;
    std::vector<uint32_t> chosen;
    for (uint64_t i = s; s != 2 && i < n; i += s + 2) chosen.push_back(static_cast<uint32_t>(i));
    for (const uint32_t i : chosen) expected[i] += mean;
    senders.push_back({indices.emplace_back(chosen).data(),
                       means.emplace_back(std::vector<float>{mean}).data(), chosen.size()});
  }
  for (float& value : expected) value *= 0.25f;
  Array<float> out(n);
  sums.add({senders, SumOver::kZeros, 0.25f, out.data(), n});
  sums.has_one_value = true;
  both_ways([&] { out.spoil(); }, [&](void* s) { return sum_sparse(sums, s); },
            [&] { REQUIRE(same_bits(out.host(), expected), "sum of means", n); });
}

}  // namespace

void check_one_sign(const Extent& extent) {
  for (const uint64_t n : extent.sizes) {
    check_sum_of_means(n);
    for (const bool negative : {false, true}) {
      for (const Input& input : extent.inputs(n, true)) check_magnitudes(input, negative);
      if (n == 0) continue;
      for (const bool taken : {false, true})
        for (const uint64_t count : {uint64_t{0}, (n + 1) / 2, n})
          check_mean(n, count, negative, taken);
    }
  }
}

}  // namespace penstock::kernels::cuda::check
