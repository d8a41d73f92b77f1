// Signs: bit planes and lists, their values, votes of few and many ranks, sums with values, and the
// averages whose signs Signum sends.
#include <penstock/memory.h>
#include <kernels/cuda/average.hpp>
#include <kernels/cuda/sign.hpp>
#include "check.hpp"

#include <algorithm>
#include <memory>
#include <span>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;

// The content of a payload of signs, on the device or the CPU.
struct Packed {
  std::vector<uint64_t> negative, nonzero;
  std::vector<uint32_t> zeros;
  bool operator==(const Packed&) const = default;
};

Packed packed_on_host(const std::vector<float>& x, uint64_t capacity) {
  Packed packed;
  packed.negative.resize(sign_words(x.size()));
  packed.zeros.resize(capacity);
  const uint64_t n_zeros = kernels::pack_signs(x.data(), x.size(), packed.negative.data(),
                                               packed.zeros.data(), capacity, kPath);
  packed.zeros.resize(n_zeros <= capacity ? n_zeros : 0);
  if (n_zeros <= capacity) return packed;
  packed.nonzero.resize(sign_words(x.size()));
  kernels::pack_nonzero(x.data(), x.size(), packed.nonzero.data(), kPath);
  return packed;
}

// Memory for the signs of n elements on the device.
class Room {
 public:
  Room(uint64_t n, uint64_t capacity)
      : negative_(sign_words(n)),
        nonzero_(sign_words(n)),
        counts_(2),
        zeros_(capacity),
        scratch_(pack_signs_workspace_bytes(n)) {}
  void spoil() {
    negative_.spoil(), nonzero_.spoil(), counts_.spoil(), zeros_.spoil(), scratch_.spoil();
  }
  SignRoom get() const {
    return {negative_.data(), zeros_.data(),  zeros_.size(),
            nonzero_.data(),  counts_.data(), counts_.data() + 1};
  }
  Workspace workspace() const { return scratch_.get(); }
  Packed packed() const {
    const std::vector<uint64_t> counts = counts_.host();
    Packed packed{negative_.host(), nonzero_.host(), zeros_.host()};
    packed.zeros.resize(counts[0]);
    packed.nonzero.resize(counts[1]);
    return packed;
  }

 private:
  Array<uint64_t> negative_, nonzero_, counts_;
  Array<uint32_t> zeros_;
  Scratch scratch_;
};

void check_pack(const Input& input, uint64_t capacity) {
  const uint64_t n = input.x.size();
  const Packed expected = packed_on_host(input.x, capacity);
  Array<float> x(with_other_nans(input.x));
  Room room(n, capacity);
  both_ways(
      [&] { room.spoil(); },
      [&](void* stream) { return pack_signs(x.data(), n, room.get(), room.workspace(), stream); },
      [&] { REQUIRE(room.packed() == expected, input.name, n, capacity); });
}

// If gradients are the opposite of `work`, the result is zeros.
void check_folded_pack(uint64_t n, uint32_t form) {
  const std::vector<float> work = normal(n, 11), momentum = normal(n, 13);
  std::vector<float> grad = normal(n, 12);
  for (uint64_t i = 0; i < n; i += 50) grad[i] = form == PENSTOCK_FORM_AFFINE ? -work[i] : 0;
  std::vector<float> expected = work, expected_momentum = momentum;
  const bool has_momentum = form != PENSTOCK_FORM_AFFINE;
  const auto fold = [&](const float* g, float* w, float* u) {
    return Fold{form, has_momentum ? 0.5f : 1.0f, 1, 1, g, w, has_momentum ? u : nullptr};
  };
  kernels::compensate(fold(grad.data(), expected.data(), expected_momentum.data()), n, kPath);
  const Packed packed = packed_on_host(expected, sign_zero_capacity(n));
  Array<float> w(work), g(grad), u(momentum);
  Room room(n, sign_zero_capacity(n));
  both_ways([&] { room.spoil(), w.put(work), u.put(momentum); },
            [&](void* stream) {
              const Fold first = fold(g.data(), w.data(), u.data());
              return pack_signs(w.data(), n, room.get(), room.workspace(), stream, &first);
            },
            [&] {
              REQUIRE(same_bits(w.host(), expected), "compensated", n, form);
              REQUIRE(same_bits(u.host(), expected_momentum), "momentum", n, form);
              REQUIRE(room.packed() == packed, "packed", n, form);
            });
}

void check_take_out(const Input& input) {
  const uint64_t n = input.x.size();
  std::vector<float> expected = input.x;
  kernels::take_out_by_sign(expected.data(), n, 0.75f, -0.75f, kPath);
  Array<float> x(input.x);
  both_ways([&] { x.put(with_other_nans(input.x)); },
            [&](void* stream) { return take_out_signs(x.data(), n, 0.75f, stream); },
            [&] { REQUIRE(same_bits(x.host(), expected), input.name, n); });
}

// Each run subtracts another number.
void check_take_out_in_runs(const Input& input, SignRuns runs) {
  const uint64_t n = input.x.size();
  std::vector<float> expected = input.x, numbers;
  for (uint64_t first = 0; first < n; first += runs.run) {
    const float plus = 0.75f + static_cast<float>(first), minus = runs.mirrored ? -plus : -0.25f;
    numbers.push_back(plus);
    if (!runs.mirrored) numbers.push_back(minus);
    kernels::take_out_by_sign(expected.data() + first, std::min(runs.run, n - first), plus, minus,
                              kPath);
  }
  Array<float> x(input.x), steps(numbers);
  both_ways(
      [&] { x.put(with_other_nans(input.x)); },
      [&](void* stream) { return take_out_by_sign(x.data(), n, runs, steps.data(), stream); },
      [&] { REQUIRE(same_bits(x.host(), expected), input.name, n, runs.run, runs.mirrored); });
}

void check_means() {
  const std::vector<SumsBySign> sums{{1, -2, 3, 7}, {0, 0, 0, 0}, {5, 0, 1, 0}, {8, -1, 1, 3}};
  const std::vector<float> expected{1.0f / 3, -2.0f / 7, 0, 0, 5, 0, 8, -1.0f / 3};
  Array<SumsBySign> from(sums);
  Array<float> numbers(expected.size()), number(1);
  both_ways([&] { numbers.spoil(); },
            [&](void* s) { return means_by_sign(from.data(), sums.size(), numbers.data(), s); },
            [&] { REQUIRE(same_bits(numbers.host(), expected), "means by sign"); });
  Array<double> sum(std::vector<double>{1});
  for (const uint64_t n : {0, 1, 3})
    both_ways(
        [&] { number.spoil(); },
        [&](void* s) { return mean_magnitude(sum.data(), n, number.data(), s); },
        [&] { REQUIRE(number.host()[0] == (n == 3 ? 1.0f / 3 : 1.0f), "mean magnitude", n); });
}

// Signs of several ranks, on the device and the host. The zeros of rank r are a list, a plane, or
// absent.
class Senders {
 public:
  Senders(uint64_t n, uint64_t count, bool mirrored = false) : mirrored_(mirrored) {
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
      for (uint64_t v = 0; mirrored && v < rank->values.size(); v += 2)
        rank->values[v + 1] = -rank->values[v];
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
      values_.push_back(std::make_unique<Array<float>>(as_they_travel(rank->values)));
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
  std::vector<float> as_they_travel(const std::vector<float>& pairs) const {
    if (!mirrored_) return pairs;
    std::vector<float> firsts;
    for (uint64_t v = 0; v < pairs.size(); v += 2) firsts.push_back(pairs[v]);
    return firsts;
  }

  bool mirrored_;
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

// Calls queue(some senders, first, last) until it fails, as a caller with many senders does.
template <typename Sender, typename Queue>
int32_t in_parts(const std::vector<Sender>& all, Queue&& queue) {
  const std::span<const Sender> senders(all);
  uint64_t done = 0;
  for (;;) {
    const uint64_t count = std::min(kMostSenders, senders.size() - done);
    const bool first = done == 0, last = done + count == senders.size();
    const int32_t error = queue(senders.subspan(done, count), first, last);
    if (error != cudaSuccess || last) return error;
    done += count;
  }
}

void check_votes(uint64_t n, uint64_t count, float one) {
  Senders senders(n, count);
  const std::vector<Signs> host = without_values(senders.on_host());
  const std::vector<Signs> voters = without_values(senders.on_device());
  std::vector<float> expected(n);
  kernels::majority_vote(host.data(), count, n, expected.data(), kPath);
  for (float& vote : expected) vote *= one;
  Array<float> out(n);
  both_ways([&] { out.spoil(); },
            [&](void* stream) {
              return in_parts(voters, [&](std::span<const Signs> some, bool first, bool last) {
                return majority_vote(some, {first, last}, n, one, out.data(), stream);
              });
            },
            [&] { REQUIRE(same_bits(out.host(), expected), "vote", n, count); });
}

void check_sums_of(uint64_t n, uint64_t count, SignRuns runs, bool clear, float scale) {
  Senders senders(n, count, runs.mirrored);
  const std::vector<ValuedSigns> host = senders.on_host(), device = senders.on_device();
  const std::vector<float> before = normal(n, 3);
  std::vector<float> expected = before;
  kernels::sum_valued_signs(host.data(), count, n, runs.run, clear, expected.data(), kPath, scale);
  Array<float> out(n);
  both_ways(
      [&] { out.put(before); },
      [&](void* s) {
        return in_parts(device, [&](std::span<const ValuedSigns> some, bool first, bool last) {
          return sum_valued_signs(some, n, runs, clear && first, last ? scale : 1, out.data(), s);
        });
      },
      [&] {
        REQUIRE(same_bits(out.host(), expected), "sum of signs", n, count, runs.run, runs.mirrored,
                scale);
      });
}

void check_average(uint64_t n) {
  const std::vector<float> before = normal(n, 5), gradient = normal(n, 6);
  std::vector<float> expected = before;
  for (uint64_t i = 0; i < n; ++i) expected[i] = 0.9f * expected[i] + 0.1f * (gradient[i] * 0.125f);
  Array<float> average(n), grad(gradient), copy(n);
  both_ways([&] { average.put(before), copy.spoil(); },
            [&](void* stream) {
              return advance_average({average.data(), grad.data(), copy.data(), 0.9f, 0.1f, 0.125f},
                                     n, stream);
            },
            [&] {
              REQUIRE(same_bits(average.host(), expected), "average", n);
              REQUIRE(same_bits(copy.host(), expected), "copy", n);
            });
}

}  // namespace

void check_signs(const Extent& extent) {
  for (const uint64_t n : extent.sizes)
    for (const Input& input : extent.inputs(n, false)) {
      for (const uint64_t capacity : {uint64_t{0}, sign_zero_capacity(n), n})
        check_pack(input, capacity);
      check_take_out(input);
    }
  for (const uint64_t n : extent.sizes) check_average(n);
  check_means();
  for (const uint64_t n : extent.few_sizes) {
    for (const uint32_t form :
         {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV})
      check_folded_pack(n, form);
    for (const uint64_t count : {0, 1, 2, 5, 8, 32, 33, 70}) check_votes(n, count, 1);
    for (const uint64_t run : {64, 1024, 1 << 30})
      for (const bool mirrored : {false, true}) {
        for (const Input& input : extent.inputs(n, false))
          check_take_out_in_runs(input, {run, mirrored});
        for (const uint64_t count : {0, 1, 3, 70})
          for (const bool clear : {false, true})
            check_sums_of(n, count, {run, mirrored}, clear, clear ? 0.3f : 1.0f);
      }
  }
  check_votes(5000, 300, 128);
  check_sums_of(5000, 300, {64, false}, true, 1);
  check_sums_of(65, 0, {64, false}, false, 0.5f);
  check_votes(65, 1100, 1);
}

}  // namespace penstock::kernels::cuda::check
