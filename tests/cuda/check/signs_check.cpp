// Signs: planes and lists, votes of few and many, sums with values.
#include <kernels/cuda/sign.hpp>
#include "check.hpp"

#include <algorithm>
#include <memory>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;

void check_pack(const Input& input, uint64_t capacity) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, capacity);
  std::vector<uint64_t> negative(sign_words(n)), nonzero(sign_words(n));
  std::vector<uint32_t> zeros(capacity);
  const uint64_t n_zeros =
      kernels::pack_signs(input.x.data(), n, negative.data(), zeros.data(), capacity, kPath);
  kernels::pack_nonzero(input.x.data(), n, nonzero.data(), kPath);
  zeros.resize(std::min(capacity, n_zeros));

  Array<float> x(input.x);
  Array<uint64_t> plane(sign_words(n)), count(1);
  Array<uint32_t> list(capacity);
  Scratch scratch(pack_signs_workspace_bytes(n));
  both_ways([&] { plane.spoil(), count.spoil(), list.spoil(), scratch.spoil(); },
            [&](void* stream) {
              return pack_signs(x.data(), n, plane.data(), list.data(), capacity, count.data(),
                                scratch.get(), stream);
            },
            [&] {
              REQUIRE(count.host()[0] == n_zeros, what);
              REQUIRE(same_bits(plane.host(), negative), what);
              std::vector<uint32_t> got = list.host();
              got.resize(zeros.size());
              REQUIRE(same_bits(got, zeros), what);
            });
  both_ways([&] { plane.spoil(); },
            [&](void* stream) { return pack_nonzero(x.data(), n, plane.data(), stream); },
            [&] { REQUIRE(same_bits(plane.host(), nonzero), what); });
}

void check_take_out(const Input& input) {
  const uint64_t n = input.x.size();
  std::vector<float> expected = input.x;
  kernels::take_out_by_sign(expected.data(), n, 0.75f, -0.25f, kPath);
  Array<float> x(input.x), steps(std::vector<float>{0.75f, -0.25f});
  both_ways([&] { x.put(input.x); },
            [&](void* stream) { return take_out_by_sign(x.data(), n, steps.data(), stream); },
            [&] { REQUIRE(same_bits(x.host(), expected), input.name, n); });
}

// Signs of several ranks on both sides; the r-th names its zeros by a list, a plane, or has none.
class Senders {
 public:
  Senders(uint64_t n, uint64_t count) {
    for (uint64_t r = 0; r < count; ++r) {
      std::vector<float> x = normal(n, 7 * n + r);
      if (r % 3 != 2)
        for (uint64_t i = r; i < n; i += 37 + r % 5) x[i] = 0;
      auto rank = std::make_unique<Rank>();
      rank->negative.resize(sign_words(n));
      rank->zeros.resize(n);
      const uint64_t n_zeros =
          kernels::pack_signs(x.data(), n, rank->negative.data(), rank->zeros.data(), n, kPath);
      rank->zeros.resize(n_zeros);
      if (r % 3 == 1) {
        rank->nonzero.resize(sign_words(n));
        kernels::pack_nonzero(x.data(), n, rank->nonzero.data(), kPath);
        rank->zeros.clear();
      }
      rank->values = {0.5f + 0.1f * static_cast<float>(r % 7), -0.3f, 2.0f, -0.125f};
      rank->values.resize(2 * std::max<uint64_t>(2, n / 64 + 1), 0.7f);
      ranks_.push_back(std::move(rank));
    }
  }
  std::vector<ValuedSigns> on_host() const {
    std::vector<ValuedSigns> all;
    for (const auto& rank : ranks_)
      all.push_back({{rank->negative.data(), rank->zeros.data(), rank->zeros.size(),
                      rank->nonzero.empty() ? nullptr : rank->nonzero.data()},
                     rank->values.data()});
    return all;
  }
  std::vector<ValuedSigns> on_device() {
    std::vector<ValuedSigns> all;
    for (const auto& rank : ranks_) {
      planes_.push_back(std::make_unique<Array<uint64_t>>(rank->negative));
      const uint64_t* const negative = planes_.back()->data();
      planes_.push_back(std::make_unique<Array<uint64_t>>(rank->nonzero));
      const uint64_t* const nonzero = rank->nonzero.empty() ? nullptr : planes_.back()->data();
      lists_.push_back(std::make_unique<Array<uint32_t>>(rank->zeros));
      values_.push_back(std::make_unique<Array<float>>(rank->values));
      all.push_back(
          {{negative, lists_.back()->data(), rank->zeros.size(), nonzero}, values_.back()->data()});
    }
    return all;
  }

 private:
  struct Rank {
    std::vector<uint64_t> negative, nonzero;
    std::vector<uint32_t> zeros;
    std::vector<float> values;
  };
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Array<uint64_t>>> planes_;
  std::vector<std::unique_ptr<Array<uint32_t>>> lists_;
  std::vector<std::unique_ptr<Array<float>>> values_;
};

std::vector<Signs> without_values(const std::vector<ValuedSigns>& senders) {
  std::vector<Signs> signs;
  for (const ValuedSigns& sender : senders) signs.push_back(sender.signs);
  return signs;
}

// Bits behind the last element do not count.
void clear_behind(std::vector<uint64_t>& plane, uint64_t n) {
  if (n % 64 != 0) plane.back() &= (uint64_t{1} << n % 64) - 1;
}

void check_votes(uint64_t n, uint64_t count) {
  Senders senders(n, count);
  const std::vector<Signs> host = without_values(senders.on_host());
  const Array<Signs> voters(without_values(senders.on_device()));
  std::vector<float> expected(n);
  std::vector<uint64_t> positive(sign_words(n)), negative(sign_words(n));
  kernels::majority_vote(host.data(), count, n, expected.data(), kPath);
  kernels::majority_planes(host.data(), count, n, positive.data(), negative.data(), kPath);
  clear_behind(positive, n), clear_behind(negative, n);
  Array<float> out(n);
  both_ways([&] { out.spoil(); },
            [&](void* s) { return majority_vote(voters.data(), count, n, out.data(), s); },
            [&] { REQUIRE(same_bits(out.host(), expected), "vote", n, count); });
  Array<uint64_t> above(sign_words(n)), below(sign_words(n));
  both_ways([&] { above.spoil(), below.spoil(); },
            [&](void* s) {
              return majority_planes(voters.data(), count, n, above.data(), below.data(), s);
            },
            [&] {
              std::vector<uint64_t> got_above = above.host(), got_below = below.host();
              clear_behind(got_above, n), clear_behind(got_below, n);
              REQUIRE(same_bits(got_above, positive), "planes", n, count);
              REQUIRE(same_bits(got_below, negative), "planes", n, count);
            });
}

void check_sums_of(uint64_t n, uint64_t count, uint64_t run, bool clear) {
  Senders senders(n, count);
  const std::vector<ValuedSigns> host = senders.on_host();
  const Array<ValuedSigns> device(senders.on_device());
  const std::vector<float> before = normal(n, 3);
  std::vector<float> expected = before;
  kernels::sum_valued_signs(host.data(), count, n, run, clear, expected.data(), kPath);
  Array<float> out(n);
  both_ways(
      [&] { out.put(before); },
      [&](void* s) { return sum_valued_signs(device.data(), count, n, run, clear, out.data(), s); },
      [&] { REQUIRE(same_bits(out.host(), expected), "sum of signs", n, count, run); });
}

}  // namespace

void check_signs(const Extent& extent) {
  for (const uint64_t n : extent.sizes)
    for (const Input& input : extent.inputs(n, false)) {
      for (const uint64_t capacity : {uint64_t{0}, sign_zero_capacity(n), n})
        check_pack(input, capacity);
      check_take_out(input);
    }
  for (const uint64_t n : extent.few_sizes) {
    for (const uint64_t count : {0, 1, 2, 5, 8, 70, 300}) check_votes(n, count);
    for (const uint64_t count : {0, 1, 3, 300})
      for (const uint64_t run : {64, 1024, 1 << 30})
        for (const bool clear : {false, true}) check_sums_of(n, count, run, clear);
  }
  check_votes(65, 1100);
}

}  // namespace penstock::kernels::cuda::check
