// Part of transport_ranks: after the first step the plugin must not allocate.
#include "rank.hpp"

#include <support/allocations.hpp>

#include <algorithm>
#include <vector>

namespace penstock::test {
namespace {

// One step of all-reduces that are all under way together. As in the core, a tag is used again only
// after eight steps.
void reduce_together(std::vector<std::vector<float>>& data, penstock_channel* channel,
                     uint64_t step) {
  static std::vector<penstock_ticket*> tickets;  // the test itself allocates only in its first step
  tickets.assign(data.size(), nullptr);
  // Without an order, ranks begin at different ends. No ring may wait for another rank's ring.
  const bool backwards = !native && me->rank % 2 != 0;
  const auto nth = [&](size_t i) { return backwards ? data.size() - 1 - i : i; };
  for (size_t i = 0; i < data.size(); ++i) {
    auto message = message_of(PENSTOCK_ALL_REDUCE, step % 8 * data.size() + nth(i));
    message.send = message.receive = data[nth(i)].data();
    message.count = data[nth(i)].size();
    ASSERT_TRUE(take(me->table.submit(me->self(), channel, &message, &tickets[i])).ok());
  }
  for (size_t left = data.size(); left > 0;) {
    for (penstock_ticket*& ticket : tickets) {
      if (ticket == nullptr) continue;
      uint32_t state = PENSTOCK_PENDING;
      ASSERT_TRUE(take(me->table.progress(me->self(), ticket, &state)).ok());
      if (state == PENSTOCK_PENDING) continue;
      me->table.release(me->self(), ticket);
      ticket = nullptr;
      --left;
    }
    std::this_thread::yield();
  }
}

TEST(Ranks, AllocatesNothingAfterTheFirstStepWhateverTheSizes) {
  // Sizes around every limit, and more long messages than rings.
  std::vector<std::vector<float>> data;
  for (int i = 0; i < 12; ++i)
    for (uint64_t count : {0, 5, 1024, 3000, 17'000, 150'000}) data.emplace_back(count, 1.0f);
  std::vector<uint32_t> all(me->size);
  for (uint32_t r = 0; r < me->size; ++r) all[r] = r;
  penstock_channel* channel = me->open(all, 77);  // a new channel, without state of other tests
  for (uint64_t step = 0; step < 10; ++step) {
    for (auto& values : data) std::fill(values.begin(), values.end(), float(me->rank + 1));
    const uint64_t before = process_allocations;
    reduce_together(data, channel, step);
    const uint64_t allocations = process_allocations - before;
    const float sum = float(me->size * (me->size + 1)) / 2;
    for (const auto& values : data)
      EXPECT_EQ(std::count(values.begin(), values.end(), sum), std::ptrdiff_t(values.size()));
    if (step == 0) {
      EXPECT_GT(allocations, 0u) << "the count does not see the plugin";
    } else {
      EXPECT_EQ(allocations, 0u) << "in step " << step;
    }
  }
  me->table.close(me->self(), channel);
}

TEST(Ranks, GathersAllocateNothingAfterTheFirst) {
  std::vector<uint64_t> counts(me->size), offsets(me->size);
  std::vector<float> data(40'000, 1.0f), gathered(40'000 * me->size);
  for (uint32_t r = 0; r < me->size; ++r) offsets[r] = 40'000 * r;
  for (int step = 0; step < 4; ++step) {
    const uint64_t before = process_allocations;
    for (uint64_t count : {40'000, 10, 3000}) {
      counts.assign(me->size, 40'000);
      auto message = message_of(PENSTOCK_ALL_GATHER, 40);
      message.send = data.data();
      message.count = count;
      message.receive = gathered.data();
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      EXPECT_TRUE(me->exchange(message).ok());
    }
    const uint64_t allocations = process_allocations - before;
    EXPECT_TRUE(step == 0 || allocations == 0) << allocations << " in step " << step;
  }
}

}  // namespace
}  // namespace penstock::test
