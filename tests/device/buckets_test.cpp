// A bucket of many gradients on a device: what is chosen from each, and what comes of it, are as on
// the CPU, by a few launches for all of them.
#include <testing/gtest.hpp>

#include "planned.hpp"

namespace penstock::simulated::buckets_test {

class BucketsOnADevice : public SimulatedDevice {};

// Gradients of one compressor on each of several ranks, in calls that have all of them.
class Bucket {
 public:
  Bucket(bool on_device, const StepCase& of, const std::vector<uint64_t>& sizes)
      : place_(on_device), n_(sizes.size()) {
    uint64_t scratch_bytes = 0;
    for (uint64_t rank = 0; rank < of.ranks; ++rank)
      for (const uint64_t n : sizes) {
        StepCase one = of;
        one.n = n;
        scratch_bytes += gradients_.emplace_back(place_, one, rank).exec().scratch_bytes;
      }
    exec_ = place_.exec();
    // The core adds up what the gradients of a call want.
    const uint64_t of_a_rank = scratch_bytes / of.ranks;
    EXPECT_LE(of_a_rank, exec_.scratch_bytes);
    exec_.scratch_bytes = of_a_rank;
    step_.struct_size = sizeof step_;
    step_.grad_scale = 8;
    step_.world = uint32_t(of.ranks);
    step_.result_scale = 0.25;
  }

  // Every second gradient is compensated in the same sweep; the others are as they are.
  test::Outcome encode(uint64_t rank) {
    std::vector<penstock_item*> items;
    std::vector<penstock_payload*> payloads;
    std::vector<const penstock_fold*> folds;
    penstock_fold fold{};
    fold.struct_size = sizeof fold;
    fold.form = PENSTOCK_FORM_AFFINE;
    fold.beta = 0.75;
    fold.gamma = 1.5;
    for (uint64_t i = 0; i < n_; ++i) {
      items.push_back(&of(rank, i).item());
      payloads.push_back(&of(rank, i).payload());
      folds.push_back(i % 2 == 0 ? &fold : nullptr);
    }
    const test::CompressorInstance& compressor = of(rank, 0).compressor();
    const auto* encoder = static_cast<const penstock_fold_encoder*>(
        compressor.table().extension(compressor.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
    return test::take(encoder->encode(compressor.self(), &exec_, &step_, 0, items.data(), n_,
                                      payloads.data(), folds.data()));
  }
  void bring_to_host(uint64_t rank) {
    for (uint64_t i = 0; i < n_; ++i) {
      of(rank, i).settle_counts();
      of(rank, i).bring_to_host();
    }
  }
  test::Outcome decode(uint64_t ranks) {
    std::vector<const penstock_item*> items;
    std::vector<const penstock_payload*> payloads;
    for (uint64_t i = 0; i < n_; ++i) {
      items.push_back(&of(0, i).item());
      for (uint64_t rank = 0; rank < ranks; ++rank) payloads.push_back(&of(rank, i).payload());
    }
    return test::take(of(0, 0).compressor().table().decode(
        of(0, 0).compressor().self(), &exec_, &step_, 0, items.data(), n_, payloads.data(), ranks,
        PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST));
  }
  PlannedGradient& of(uint64_t rank, uint64_t i) { return gradients_[rank * n_ + i]; }
  uint64_t size() const { return n_; }

 private:
  Place place_;
  uint64_t n_;
  std::deque<PlannedGradient> gradients_;
  penstock_exec exec_{};
  penstock_step step_{};
};

std::vector<Bytes> left_behind(bool on_device, const StepCase& of,
                               const std::vector<uint64_t>& sizes) {
  Bucket bucket(on_device, of, sizes);
  std::vector<Bytes> left;
  for (uint64_t rank = 0; rank < of.ranks; ++rank) {
    EXPECT_EQ(bucket.encode(rank).message, "");
    bucket.bring_to_host(rank);
    for (uint64_t i = 0; i < sizes.size(); ++i) {
      PlannedGradient& gradient = bucket.of(rank, i);
      left.push_back(bytes_of(gradient.work()));
      for (uint64_t s = 0; s < gradient.payload().n_sections; ++s) left.push_back(gradient.sent(s));
    }
  }
  EXPECT_EQ(bucket.decode(of.ranks).message, "");
  for (uint64_t i = 0; i < sizes.size(); ++i) left.push_back(bytes_of(bucket.of(0, i).out()));
  return left;
}

const std::vector<uint64_t> kAwkwardSizes = {0, 1, 70001, 0, 31, 64, 65, 1000, 1, 4097, 0};

std::vector<uint64_t> small_sizes(uint64_t how_many) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < how_many; ++i) sizes.push_back(100 + i * 37 % 300);
  return sizes;
}

TEST_F(BucketsOnADevice, HaveTheBitsOfTheCpuInEveryTypeOfValues) {
  for (const char* type : {"fp32", "fp16", "bf16", "int8"})
    for (const char* plugin : {"topk", "threshold"}) {
      const StepCase of{plugin, {{"value_type", type}}, 0};
      EXPECT_TRUE(left_behind(true, of, kAwkwardSizes) == left_behind(false, of, kAwkwardSizes))
          << plugin << " " << type;
    }
  for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
}

// More gradients than are chosen from at once, and more ranks than one launch adds up.
TEST_F(BucketsOnADevice, OfAnySizeHaveTheBitsOfTheCpu) {
  for (const auto& [gradients, ranks] : {std::pair<uint64_t, uint64_t>{64, 1}, {65, 2}, {3, 40}})
    for (const char* plugin : {"topk", "threshold"}) {
      const StepCase of{plugin, {}, 0, ranks};
      const std::vector<uint64_t> sizes = small_sizes(gradients);
      EXPECT_TRUE(left_behind(true, of, sizes) == left_behind(false, of, sizes))
          << plugin << ", " << gradients << " gradients on " << ranks;
    }
}

TEST_F(BucketsOnADevice, OfTwentyGradientsTakeEightLaunchesToChooseAndOneToAddUp) {
  for (const char* plugin : {"topk", "threshold"}) {
    Bucket bucket(true, {plugin, {}, 0, 4}, small_sizes(20));
    for (uint64_t rank = 0; rank < 4; ++rank) {
      const uint64_t before = calls(Call::kLaunch);
      EXPECT_EQ(bucket.encode(rank).message, "");
      EXPECT_EQ(calls(Call::kLaunch) - before, 8u) << plugin;
      bucket.bring_to_host(rank);
    }
    const uint64_t before = calls(Call::kLaunch);
    EXPECT_EQ(bucket.decode(4).message, "");
    EXPECT_EQ(calls(Call::kLaunch) - before, 1u) << plugin;
  }
}

TEST_F(BucketsOnADevice, TellWhichOneTheDeviceRefuses) {
  Bucket bucket(true, {"topk", {}, 0, 1}, small_sizes(3));
  fail_call(Call::kLaunch, 2, 719);
  const test::Outcome outcome = bucket.encode(0);
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cannot select from a bucket with gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::buckets_test
