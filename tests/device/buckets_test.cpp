// A bucket of many gradients on a device. The selected entries of each gradient and the results
// equal those on the CPU, and a few launches handle all gradients.
#include "ranks.hpp"

namespace penstock::simulated::buckets_test {

class BucketsOnADevice : public WellUsedDevice {};

// Gradients of several ranks, with one compressor. Each call has every gradient of a rank.
class Bucket {
 public:
  Bucket(bool on_device, const Method& method, uint32_t ranks, const std::vector<int64_t>& sizes)
      : compressor_(method), place_(on_device), n_(sizes.size()), exec_(place_.exec()) {
    exec_.scratch_bytes = 0;  // sum of the gradients' needs, as in the core
    for (uint32_t rank = 0; rank < ranks; ++rank)
      for (const int64_t n : sizes) {
        const Case of{.shape = {n}, .ranks = ranks, .form = PENSTOCK_FORM_AFFINE};
        PlacedGradient& gradient = gradients_.emplace_back(place_, compressor_, of, rank);
        if (rank == 0) exec_.scratch_bytes += gradient.exec().scratch_bytes;
        own_.emplace_back(place_, gradient.planned());
      }
    exec_.scratch = place_.exec(exec_.scratch_bytes).scratch;
  }

  // Every second gradient is compensated in the encode, and the others are not compensated.
  test::Outcome encode(uint32_t rank) {
    std::vector<penstock_item*> items;
    std::vector<penstock_payload*> payloads;
    std::vector<const penstock_fold*> folds;
    const penstock_fold fold = of(rank, 0).fold();
    for (uint64_t i = 0; i < n_; ++i) {
      items.push_back(&of(rank, i).item());
      payloads.push_back(own_[rank * n_ + i].c());
      folds.push_back(i % 2 == 0 ? &fold : nullptr);
    }
    return test::take(compressor_.folding().encode(compressor_.instance.self(), &exec_,
                                                   &of(rank, 0).step(), 0, items.data(), n_,
                                                   payloads.data(), folds.data()));
  }
  // The payload of the rank for its gradient i.
  const Sent& sent(uint32_t rank, uint64_t i) {
    return sent_[{i, rank}] = own_[rank * n_ + i].sent();
  }
  // Rank 0 decodes every payload.
  test::Outcome decode() {
    test::ItemViews items;
    for (uint64_t i = 0; i < n_; ++i) items.push_back(&of(0, i).item());
    std::deque<PlacedPayload> brought;
    std::vector<const penstock_payload*> payloads;
    for (const auto& [from, sent] : sent_) {
      const auto& [i, rank] = from;
      payloads.push_back(
          brought.emplace_back(place_, of(rank, i).planned(), sent, int32_t(rank)).c());
    }
    penstock_step step = of(0, 0).step();
    step.result_scale = 0.25;
    return compressor_.instance.decode(exec_, step, 0, items, payloads, payloads.size() / n_,
                                       PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
  }
  PlacedGradient& of(uint32_t rank, uint64_t i) { return gradients_[rank * n_ + i]; }

 private:
  const Compressor compressor_;
  Place place_;
  uint64_t n_;
  penstock_exec exec_;
  std::deque<PlacedGradient> gradients_;
  std::deque<PlacedPayload> own_;
  std::map<std::pair<uint64_t, uint32_t>, Sent> sent_;  // by gradient, then rank
};

// The payloads, the rest in `work` and the results.
Seen left_behind(bool on_device, const Method& method, uint32_t ranks,
                 const std::vector<int64_t>& sizes) {
  Bucket bucket(on_device, method, ranks, sizes);
  Seen seen;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(bucket.encode(rank).message, "");
    for (uint64_t i = 0; i < sizes.size(); ++i) {
      const std::string name = sdk::text("rank ", rank, " gradient ", i);
      const Sent& sent = bucket.sent(rank, i);
      for (uint64_t s = 0; s < sent.sections.size(); ++s)
        seen[sdk::text(name, " section ", s)] = sent.sections[s].bytes;
      seen[name + " work"] = bucket.of(rank, i).get("work");
    }
  }
  EXPECT_EQ(bucket.decode().message, "");
  for (uint64_t i = 0; i < sizes.size(); ++i)
    seen[sdk::text("result ", i)] = bucket.of(0, i).get("gradient");
  return seen;
}

void expect_the_bits_of_the_cpu(const Method& method, uint32_t ranks,
                                const std::vector<int64_t>& sizes) {
  EXPECT_EQ(
      difference(left_behind(true, method, ranks, sizes), left_behind(false, method, ranks, sizes)),
      "")
      << text_of(method) << ", " << sizes.size() << " gradients on " << ranks;
}

std::vector<int64_t> small_sizes(int64_t how_many) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < how_many; ++i) sizes.push_back(100 + i * 37 % 300);
  return sizes;
}

TEST_F(BucketsOnADevice, HaveTheBitsOfTheCpuInEveryTypeOfValues) {
  const std::vector<int64_t> sizes{0, 1, kLargeSize, 0, 31, 64, 65, 1000, 1, 4097, 0};
  for (const char* type : {"fp32", "fp16", "bf16", "int8"})
    for (const char* name : {"topk", "threshold"})
      expect_the_bits_of_the_cpu({name, {{"value_type", type}}}, 2, sizes);
}

// More gradients than one selection takes, and more ranks than one launch adds.
TEST_F(BucketsOnADevice, OfAnySizeHaveTheBitsOfTheCpu) {
  for (const auto& [gradients, ranks] : {std::pair<int64_t, uint32_t>{64, 1}, {65, 2}, {3, 40}})
    for (const char* name : {"topk", "threshold"})
      expect_the_bits_of_the_cpu({name}, ranks, small_sizes(gradients));
}

TEST_F(BucketsOnADevice, OfNineteenGradientsTakeEightLaunchesToChooseAndOneToAddUp) {
  for (const char* name : {"topk", "threshold"}) {
    Bucket bucket(true, {name, {{"value_type", "fp32"}}}, 4, small_sizes(19));
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const uint64_t before = calls(Call::kLaunch);
      EXPECT_EQ(bucket.encode(rank).message, "");
      EXPECT_EQ(calls(Call::kLaunch) - before, 8u) << name;
      for (uint64_t i = 0; i < 19; ++i) (void)bucket.sent(rank, i);
    }
    const uint64_t before = calls(Call::kLaunch);
    EXPECT_EQ(bucket.decode().message, "");
    EXPECT_EQ(calls(Call::kLaunch) - before, 1u) << name;
  }
}

TEST_F(BucketsOnADevice, TellWhichOneTheDeviceRefuses) {
  Bucket bucket(true, {"topk"}, 1, small_sizes(3));
  fail_call(Call::kLaunch, 2, 719);
  const test::Outcome outcome = bucket.encode(0);
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cannot select from a bucket with gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::buckets_test
