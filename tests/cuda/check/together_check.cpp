// Many selections and many sums at once give the results of single selections and sums.
#include <penstock/memory.h>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include <kernels/element/keys.hpp>
#include <kernels/fold.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

namespace penstock::kernels::cuda::check {
namespace {

// ---- Selections ----

enum class By { kNumber, kThreshold, kKnownThreshold };

struct Asked {
  std::vector<float> x;
  uint64_t k;
  By by = By::kNumber;
  float threshold = 0;
  uint32_t form = PENSTOCK_FORM_NONE;
  bool taken = true;
  bool has_values = true;
};

// The result of a selection and the arrays after it.
struct Left {
  std::vector<uint32_t> indices;
  std::vector<float> values, work, momentum;
};

std::vector<float> grad_of(const Asked& asked) {
  return normal(asked.x.size(), 1000 + asked.x.size());
}
std::vector<float> momentum_of(const Asked& asked) {
  return normal(asked.x.size(), 2000 + asked.x.size());
}
Fold fold_over(const Asked& asked, const float* grad, float* work, float* momentum) {
  const bool has_momentum = asked.form == PENSTOCK_FORM_HEAVY_BALL;
  return {asked.form, 0.9f, 0.7f, 1.0f / 3, grad, work, has_momentum ? momentum : nullptr};
}

Left by_sorting(const Asked& asked) {
  Left left{{}, {}, asked.x, momentum_of(asked)};
  const std::vector<float> grad = grad_of(asked);
  if (asked.form != PENSTOCK_FORM_NONE)
    kernels::compensate(fold_over(asked, grad.data(), left.work.data(), left.momentum.data()),
                        asked.x.size(), CodePath::kPortable);
  const std::vector<float> x = left.work;
  const uint32_t least = asked.by == By::kNumber ? 0 : threshold_key(asked.threshold);
  for (uint32_t i = 0; i < x.size(); ++i)
    if (magnitude_key(x[i]) >= least) left.indices.push_back(i);
  std::stable_sort(left.indices.begin(), left.indices.end(), [&](uint32_t a, uint32_t b) {
    return magnitude_key(x[a]) > magnitude_key(x[b]);
  });
  left.indices.resize(std::min<uint64_t>(left.indices.size(), asked.k));
  std::sort(left.indices.begin(), left.indices.end());
  for (const uint32_t i : left.indices) left.values.push_back(x[i]);
  if (asked.taken)
    for (const uint32_t i : left.indices) left.work[i] = 0;
  return left;
}

// A selection on the device.
class Selecting {
 public:
  explicit Selecting(const Asked& asked)
      : asked_(asked),
        expected_(by_sorting(asked)),
        work_(asked.x),
        grad_(grad_of(asked)),
        momentum_(momentum_of(asked)),
        values_(asked.k),
        threshold_(std::vector<float>{asked.threshold}),
        indices_(asked.k),
        count_(1) {}

  uint64_t workspace_bytes() const { return select_workspace_bytes(asked_.x.size(), asked_.k); }
  void prepare() {
    work_.put(asked_.x), momentum_.put(momentum_of(asked_));
    values_.spoil(), indices_.spoil(), count_.spoil();
  }
  SelectRequest request() const {
    SelectRequest request{work_.data(), asked_.x.size(), asked_.k, indices_.data(),
                          asked_.has_values ? values_.data() : nullptr};
    if (asked_.taken) request.work = work_.data();
    if (asked_.by != By::kNumber) request.count = count_.data();
    if (asked_.by == By::kThreshold) request.threshold = threshold_.data();
    if (asked_.by == By::kKnownThreshold) request.known_threshold = asked_.threshold;
    if (asked_.form != PENSTOCK_FORM_NONE)
      request.fold = fold_over(asked_, grad_.data(), work_.data(), momentum_.data());
    return request;
  }
  void verify(const std::string& what) const {
    if (asked_.by != By::kNumber) REQUIRE(count_.host()[0] == expected_.indices.size(), what);
    std::vector<uint32_t> indices = indices_.host();
    std::vector<float> values = values_.host();
    indices.resize(expected_.indices.size()), values.resize(expected_.indices.size());
    REQUIRE(same_bits(indices, expected_.indices), what);
    REQUIRE(!asked_.has_values || same_bits(values, expected_.values), what);
    REQUIRE(same_bits(work_.host(), expected_.work), what);
    REQUIRE(same_bits(momentum_.host(), expected_.momentum), what);
  }

 private:
  Asked asked_;
  Left expected_;
  Array<float> work_, grad_, momentum_, values_, threshold_;
  Array<uint32_t> indices_;
  Array<uint64_t> count_;
};

void check_together(const std::vector<Asked>& all, const std::string& name) {
  std::deque<Selecting> selecting;
  std::vector<SelectRequest> requests;
  uint64_t bytes = 0;
  for (const Asked& asked : all) {
    requests.push_back(selecting.emplace_back(asked).request());
    bytes += selecting.back().workspace_bytes();
  }
  Scratch scratch(bytes);
  both_ways(
      [&] {
        scratch.spoil();
        for (Selecting& one : selecting) one.prepare();
      },
      [&](void* stream) { return select(requests, scratch.get(), stream); },
      [&] {
        for (size_t i = 0; i < all.size(); ++i)
          selecting[i].verify(describe(name, i, all[i].x.size(), all[i].k));
      });
}

std::vector<Asked> of_every_kind() {
  const std::vector<float> zeros(70001), ties(5000, -2.0f);
  std::vector<float> few(9000);
  for (uint64_t i = 0; i < few.size(); i += 1000) few[i] = std::nanf("");
  for (uint64_t i = 1; i < few.size(); i += 700) few[i] = static_cast<float>(i);
  std::vector<Asked> all{{{}, 0},
                         {{}, 0, By::kKnownThreshold, 1},
                         {{3}, 1},
                         {normal(5, 1), 5},
                         {normal(100, 2), 0},
                         {normal(100, 3), 0, By::kThreshold, 1},
                         {zeros, 100},
                         {zeros, 100, By::kThreshold, 0},
                         {ties, 17},
                         {ties, 17, By::kKnownThreshold, 1.5f},
                         {few, 20},
                         {few, 20, By::kKnownThreshold, 0},
                         {normal(4096, 4), 4096},
                         {normal(4097, 5), 40},
                         {normal(66000, 6), 66000},
                         {normal(100000, 7), 1000},
                         {normal(100000, 8), 3000, By::kThreshold, 2.5f},
                         {normal(30000, 9), 30, By::kKnownThreshold, 2.5f},
                         {normal(30000, 10), 30, By::kThreshold, std::nanf("")}};
  for (const uint32_t form : {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL})
    for (const uint64_t n : {1, 5000, 80000}) {
      all.push_back({normal(n, 20 + n), (n + 99) / 100, By::kNumber, 0, form});
      all.push_back({normal(n, 30 + n), n / 2, By::kKnownThreshold, 1, form, false});
    }
  all.push_back({normal(3000, 40), 0, By::kNumber, 0, PENSTOCK_FORM_AFFINE});
  all.push_back({normal(3000, 41), 30, By::kNumber, 0, PENSTOCK_FORM_NONE, true, false});
  all.push_back({{}, 0});
  return all;
}

// More selections than one launch begins, or than a warp searches at once.
std::vector<Asked> small_ones(uint64_t how_many) {
  std::vector<Asked> all;
  for (uint64_t i = 0; i < how_many; ++i) {
    const uint64_t n = i * 37 % 501;
    all.push_back({normal(n, 50 + i), (n + 49) / 50});
  }
  return all;
}

// ---- Sums ----

struct SumAsked {
  uint64_t n;
  uint64_t n_senders;
  SumOver over;
  float scale;
};

void check_sums_together(const std::vector<SumAsked>& all, const std::string& name) {
  std::deque<Array<uint32_t>> indices;
  std::deque<Array<float>> values;
  std::deque<Array<float>> outs;
  std::vector<std::vector<float>> expected;
  SparseSums sums;
  for (size_t i = 0; i < all.size(); ++i) {
    const SumAsked& asked = all[i];
    std::vector<float>& sum = expected.emplace_back(normal(asked.n, i));
    if (asked.over == SumOver::kZeros) std::fill(sum.begin(), sum.end(), 0.0f);
    std::vector<SparseSender> senders;
    for (uint64_t s = 0; s < asked.n_senders; ++s) {
      std::vector<uint32_t> chosen;
      for (uint64_t j = s; j < asked.n; j += 3 + s) chosen.push_back(static_cast<uint32_t>(j));
      const std::vector<float> sent = normal(chosen.size(), 100 * i + s);
      for (size_t j = 0; j < chosen.size(); ++j) sum[chosen[j]] += sent[j];
      senders.push_back(
          {indices.emplace_back(chosen).data(), values.emplace_back(sent).data(), chosen.size()});
    }
    if (asked.scale != 1)
      for (float& value : sum) value *= asked.scale;
    REQUIRE(sums.has_room_for(senders.size()), name, i);
    sums.add({senders, asked.over, asked.scale, outs.emplace_back(asked.n).data(), asked.n});
  }
  both_ways(
      [&] {
        for (size_t i = 0; i < all.size(); ++i) outs[i].put(normal(all[i].n, i));
      },
      [&](void* stream) { return sum_sparse(sums, stream); },
      [&] {
        for (size_t i = 0; i < all.size(); ++i)
          REQUIRE(same_bits(outs[i].host(), expected[i]), name, i, all[i].n);
      });
}

void check_room_for_sums() {
  const std::vector<SparseSender> many(SparseSums::kMostOfAllSenders / 3);
  SparseSums of_senders;
  for (int i = 0; i < 3; ++i) of_senders.add({many, SumOver::kZeros, 1, nullptr, 0});
  REQUIRE(of_senders.has_room_for(0) && !of_senders.has_room_for(1), "senders");
  SparseSums of_sums;
  for (uint64_t i = 0; i < SparseSums::kMostSums; ++i) {
    REQUIRE(of_sums.has_room_for(1), "sums", i);
    of_sums.add({{}, SumOver::kZeros, 1, nullptr, 0});
  }
  REQUIRE(!of_sums.has_room_for(0), "sums");
}

}  // namespace

void check_many_together(const Extent& extent) {
  check_together({}, "nothing");
  check_together(of_every_kind(), "every kind");
  for (const uint64_t how_many : {2, 20, 21, 41, 75}) check_together(small_ones(how_many), "small");
  std::vector<Asked> with_a_large_one = small_ones(25);
  const uint64_t large = *std::max_element(extent.sizes.begin(), extent.sizes.end());
  with_a_large_one.insert(with_a_large_one.begin() + 7, {normal(large, 3), large / 100});
  check_together(with_a_large_one, "small and large");

  check_room_for_sums();
  check_sums_together({}, "no sums");
  check_sums_together({{0, 1, SumOver::kZeros, 1},
                       {1, 1, SumOver::kZeros, 0.5f},
                       {4096, 3, SumOver::kWhatIsThere, 0.25f},
                       {0, 0, SumOver::kZeros, 1},
                       {0, 2, SumOver::kWhatIsThere, 1},
                       {4097, 2, SumOver::kZeros, 1},
                       {50000, 32, SumOver::kZeros, 1.0f / 3},
                       {77, 0, SumOver::kZeros, 1},
                       {77, 0, SumOver::kWhatIsThere, 2},
                       {0, 1, SumOver::kZeros, 1}},
                      "sums");
  check_sums_together(std::vector<SumAsked>(24, {5000, 4, SumOver::kZeros, 0.5f}), "full");
}

}  // namespace penstock::kernels::cuda::check
