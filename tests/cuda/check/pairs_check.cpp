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
#include <memory>
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

// A payload with every third entry of x. With `is_counted` the device knows the count, and the
// capacity is larger.
class Payload {
 public:
  Payload(const std::vector<float>& x, ValueType type, bool is_taken, bool is_counted)
      : type_(type), is_taken_(is_taken), before_(with_other_nans(x)), left_(x) {
    for (uint64_t i = x.size() % 3; i < x.size(); i += 3)
      chosen_.push_back(static_cast<uint32_t>(i));
    narrow(x);
    const uint64_t k = chosen_.size(), capacity = is_counted ? k + 100 : k;
    chosen_.resize(capacity, 0xffffffffu);
    indices_ = std::make_unique<Array<uint32_t>>(chosen_);
    work_ = std::make_unique<Array<float>>(x.size());
    values_ = std::make_unique<Array<uint8_t>>(capacity * width_of(type));
    if (is_counted) count_ = std::make_unique<Array<uint64_t>>(std::vector<uint64_t>{k});
  }

  SentEntries sent() {
    const uint64_t* const count = count_ == nullptr ? nullptr : count_->data();
    float* const scale = has_scale(type_) ? scale_.data() : nullptr;
    return {{work_->data(), indices_->data(), count, chosen_.size()},
            values_->data(),
            scale,
            is_taken_};
  }
  void prepare() { work_->put(before_), values_->spoil(), scale_.spoil(); }
  void verify(const std::string& what) {
    if (has_scale(type_)) REQUIRE(same_bits(scale_.host(), {expected_scale_}), what);
    std::vector<uint8_t> got = values_->host();
    got.resize(bytes_.size());
    REQUIRE(same_bits(got, bytes_, type_), what);
    REQUIRE(same_bits(work_->host(), left_), what);
  }

 private:
  // What the CPU sends, and leaves of x.
  void narrow(const std::vector<float>& x) {
    std::vector<float> exact;
    for (const uint32_t index : chosen_) exact.push_back(x[index]);
    float largest = 0;
    for (const float value : exact) largest = std::max(largest, std::fabs(value));
    expected_scale_ = kernels::value_scale(type_, largest);
    std::vector<float> rounded = exact;
    bytes_.resize(exact.size() * width_of(type_));
    kernels::narrow_values(type_, rounded.data(), exact.size(), bytes_.data(), expected_scale_);
    for (uint64_t j = 0; is_taken_ && j < exact.size(); ++j)
      left_[chosen_[j]] = type_ == ValueType::kFloat32 ? 0 : exact[j] - rounded[j];
  }

  ValueType type_;
  bool is_taken_;
  std::vector<float> before_, left_;
  std::vector<uint32_t> chosen_;
  std::vector<uint8_t> bytes_;
  float expected_scale_ = 1;
  std::unique_ptr<Array<uint32_t>> indices_;
  std::unique_ptr<Array<float>> work_;
  std::unique_ptr<Array<uint8_t>> values_;
  std::unique_ptr<Array<uint64_t>> count_;
  Array<float> scale_{1};
};

void check_send(std::deque<Payload>& payloads, ValueType type, const std::string& what) {
  std::vector<SentEntries> all;
  for (Payload& payload : payloads) all.push_back(payload.sent());
  both_ways(
      [&] {
        for (Payload& payload : payloads) payload.prepare();
      },
      [&](void* s) { return send_values(type, all, s); },
      [&] {
        for (Payload& payload : payloads) payload.verify(what);
      });
}

void check_send(const Input& input, ValueType type, bool is_taken) {
  const uint64_t n = input.x.size();
  std::deque<Payload> one;
  one.emplace_back(input.x, type, is_taken, n % 2 == 0);
  check_send(one, type, describe(input.name, n, width_of(type), is_taken));
}

// More payloads than a launch handles, some of them empty, and one of many tiles.
void check_send_together(ValueType type) {
  std::deque<Payload> payloads;
  for (uint64_t i = 0; i < 100; ++i)
    payloads.emplace_back(normal(i == 60 ? 40000 : 37 * (i % 7), i), type, i % 4 != 0, i % 3 == 0);
  check_send(payloads, type, describe("together", width_of(type)));
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
  for (const ValueType type : kTypes) check_send_together(type);
  for (const uint64_t n : extent.sizes) {
    for (const ValueType type : kTypes) check_narrow_sum(n, type);
    for (const Input& input : extent.inputs(n, false))
      for (const ValueType type : kTypes)
        for (const bool is_taken : {false, true}) check_send(input, type, is_taken);
    for (const Input& input : extent.inputs(n, true)) {
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
