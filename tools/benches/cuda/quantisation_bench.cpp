// Rows of signs, of stochastic rounding and of conversions. No row subtracts sent values, so that
// every round does equal work.
#include <kernels/convert.hpp>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/sign.hpp>
#include <kernels/cuda/stochastic.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/pack_bits.hpp>
#include <kernels/random_normal.hpp>
#include "bench.hpp"

#include <algorithm>

namespace penstock::kernels::cuda::bench {
namespace {

constexpr RandomKey kKey = random_key({1, 2, 3, 0});
constexpr uint64_t kVoters = 8;
constexpr uint64_t kBucket = 512;     // QSGD's default
constexpr uint64_t kSignBucket = 64;  // the smallest bucket of 1-bit SGD

void add_signs(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const uint64_t n = x.size(), words = sign_words(n);
  std::vector<uint64_t> plane(words);
  kernels::pack_signs(x.data(), n, plane.data(), nullptr, 0, widest_code_path());
  auto* const negative = array<uint64_t>(words);
  const uint64_t capacity = sign_zero_capacity(n);
  auto* const counts = array<uint64_t>(2);
  const SignRoom room{
      negative, array<uint32_t>(capacity), capacity, array<uint64_t>(words), counts, counts + 1};
  const Workspace work = workspace(pack_signs_workspace_bytes(n));
  rows.push_back({"signs packed, zeros listed", n * 4 + words * 8,
                  [=](cudaStream_t s) { return pack_signs(on_device, n, room, work, s); },
                  [=] { return fetch(negative, words) == plane; }});

  // All voters agree. Each has its own planes.
  std::vector<ValuedSigns> senders;
  std::vector<Signs> voters;
  auto* const number = array(std::vector<float>{1.0f});
  for (uint64_t r = 0; r < kVoters; ++r) {
    voters.push_back({array(plane), nullptr, 0, nullptr});
    senders.push_back({voters.back(), number});
  }
  auto* const out = array<float>(n);
  const auto agrees = [=, &x](float size) {
    const std::vector<float> got = fetch(out, n);
    for (uint64_t i = 0; i < n; ++i)
      if (got[i] != (x[i] < 0 ? -size : size)) return false;
    return true;
  };
  rows.push_back({"majority of 8 voters", kVoters * words * 8 + n * 4,
                  [=](cudaStream_t s) { return majority_vote(voters, {}, n, 1, out, s); },
                  [=] { return agrees(1); }});
  rows.push_back({"sum of the signs of 8 senders", kVoters * words * 8 + n * 4,
                  [=](cudaStream_t s) {
                    return sum_valued_signs(senders, n, {words * 64, true}, true, 1, out, s);
                  },
                  [=] { return agrees(kVoters); }});
}

void add_rounding(std::vector<Row>& rows, const std::vector<float>& x, float* on_device) {
  const uint64_t n = x.size(), words = sign_words(n);
  const float largest = kernels::largest_magnitude(x.data(), n, widest_code_path());
  const float step = kernels::grid_step(largest, 127);
  auto* const steps = array(std::vector<float>{step});
  auto* const codes = array<uint8_t>(n);
  const auto codes_are = [=, &x](auto&& on_host) {
    std::vector<float> values = x;
    std::vector<uint8_t> expected(n);
    on_host(values.data(), expected.data());
    return fetch(codes, n) == expected;
  };
  rows.push_back(
      {"rounded by chance to 127 levels (QSGD)", n * 5,
       [=](cudaStream_t s) {
         return round_to_levels(on_device, n, 0, steps, 127, kKey, 0, false, codes, s);
       },
       [=] {
         return codes_are([=](float* values, uint8_t* to) {
           kernels::round_to_levels(values, n, {step, 127}, kKey, 0, false, to, widest_code_path());
         });
       }});
  auto* const bases = array(std::vector<uint8_t>{static_cast<uint8_t>(power_base(largest))});
  rows.push_back({"rounded by chance to powers of two (natural)", n * 5,
                  [=](cudaStream_t s) {
                    return round_to_powers(on_device, n, 0, bases, kKey, 0, false, codes, s);
                  },
                  [=] {
                    return codes_are([=](float* values, uint8_t* to) {
                      kernels::round_to_powers(values, n, power_base(largest), kKey, 0, false, to,
                                               widest_code_path());
                    });
                  }});
  auto* const scale = array(std::vector<float>{largest / 8});
  auto* const negative = array<uint64_t>(words);
  auto* const nonzero = array<uint64_t>(words);
  rows.push_back({"rounded by chance to signs (TernGrad)", n * 4 + words * 16,
                  [=](cudaStream_t s) {
                    return round_to_signs(on_device, n, scale, kKey, 0, false, negative, nonzero,
                                          s);
                  },
                  [=, &x] {
                    std::vector<float> values = x;
                    std::vector<uint64_t> below(words), kept(words);
                    kernels::round_to_signs(values.data(), n, largest / 8, kKey, 0, false,
                                            below.data(), kept.data(), widest_code_path());
                    return fetch(negative, words) == below && fetch(nonzero, words) == kept;
                  }});
  auto* const packed = array<uint64_t>(packed_words(n, 4));
  rows.push_back({"codes of 4 bits packed", n + packed_words(n, 4) * 8,
                  [=](cudaStream_t s) { return pack_bits(codes, n, 4, packed, s); },
                  [=] {
                    const std::vector<uint8_t> from = fetch(codes, n);
                    std::vector<uint64_t> expected(packed_words(n, 4));
                    kernels::pack_bits(from.data(), n, 4, expected.data());
                    return fetch(packed, expected.size()) == expected;
                  }});
}

// Rows with buckets, each with its own number.
void add_buckets(std::vector<Row>& rows, const std::vector<float>& x, float* on_device) {
  const uint64_t n = x.size(), n_buckets = (n + kBucket - 1) / kBucket;
  std::vector<float> largest(n_buckets), steps(n_buckets);
  const auto size = [n](uint64_t b) { return std::min(kBucket, n - b * kBucket); };
  for (uint64_t b = 0; b < n_buckets; ++b) {
    largest[b] = kernels::largest_magnitude(x.data() + b * kBucket, size(b), widest_code_path());
    steps[b] = kernels::grid_step(largest[b], 127);
  }
  auto* const found = array<float>(n_buckets);
  const Workspace work = workspace(reduce_workspace_bytes(n, kBucket));
  rows.push_back(
      {"largest of each bucket of 512", n * 4 + n_buckets * 4,
       [=](cudaStream_t s) { return largest_magnitude(on_device, n, kBucket, found, work, s); },
       [=] { return fetch(found, n_buckets) == largest; }});
  auto* const steps_there = array(steps);
  auto* const codes = array<uint8_t>(n);
  rows.push_back({"rounded by chance in buckets of 512 (QSGD)", n * 5 + n_buckets * 4,
                  [=](cudaStream_t s) {
                    return round_to_levels(on_device, n, kBucket, steps_there, 127, kKey, 0, false,
                                           codes, s);
                  },
                  [=, &x] {
                    std::vector<float> values = x;
                    std::vector<uint8_t> expected(n);
                    for (uint64_t b = 0; b < n_buckets; ++b)
                      kernels::round_to_levels(values.data() + b * kBucket, size(b),
                                               {steps[b], 127}, kKey, b * kBucket, false,
                                               expected.data() + b * kBucket, widest_code_path());
                    return fetch(codes, n) == expected;
                  }});
  const uint64_t n_small = (n + kSignBucket - 1) / kSignBucket;
  auto* const sums = array<SumsBySign>(n_small);
  const Workspace of_small = workspace(reduce_workspace_bytes(n, kSignBucket));
  rows.push_back(
      {"sums by sign of each bucket of 64", n * 4 + n_small * sizeof(SumsBySign),
       [=](cudaStream_t s) { return sums_by_sign(on_device, n, kSignBucket, sums, of_small, s); },
       [=, &x] {
         const std::vector<SumsBySign> got = fetch(sums, n_small);
         for (uint64_t b = 0; b < n_small; ++b) {
           const uint64_t begin = b * kSignBucket;
           const SumsBySign expected = kernels::sums_by_sign(
               x.data() + begin, std::min(kSignBucket, n - begin), widest_code_path());
           if (got[b].n_positive != expected.n_positive || got[b].n_negative != expected.n_negative)
             return false;
         }
         return true;
       }});
}

void add_conversions(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const uint64_t n = x.size();
  auto* const halves = array<uint16_t>(n);
  rows.push_back({"float32 to float16", n * 6,
                  [=](cudaStream_t s) { return floats_to_halves(on_device, halves, n, s); },
                  [=, &x] {
                    std::vector<uint16_t> expected(n);
                    kernels::floats_to_halves(x.data(), expected.data(), n);
                    return fetch(halves, n) == expected;
                  }});
  auto* const numbers = array<float>(n);
  rows.push_back({"normal numbers", n * 4,
                  [=](cudaStream_t s) { return random_normal(1, 2, 3, 0, n, numbers, s); },
                  [=] {
                    constexpr uint64_t kSome = 1 << 16;
                    std::vector<float> expected(kSome);
                    kernels::random_normal(1, 2, 3, 0, kSome, expected.data());
                    return fetch(numbers, kSome) == expected;
                  }});
}

}  // namespace

void add_quantisation(std::vector<Row>& rows, const std::vector<float>& x) {
  float* const on_device = array(x);
  add_signs(rows, x, on_device);
  add_rounding(rows, x, on_device);
  add_buckets(rows, x, on_device);
  add_conversions(rows, x, on_device);
}

}  // namespace penstock::kernels::cuda::bench
