// Small operations that are ready together travel in one message, without an effect on results.

#include "core/operations/testing.hpp"
#include "tests/support/sanitized.hpp"

#include <algorithm>
#include <random>

namespace penstock::together_test {
namespace {

using testing::Array;
using testing::declare;
using testing::OperationsRank;
using testing::run_operations;
using testing::ThreadHub;

// An operation that differs from others in a property that must be equal within a message.
struct Asked {
  std::string name;
  uint32_t pattern, dtype, root;
  int64_t numel;
};

std::vector<Asked> a_mixture() {
  std::vector<Asked> all;
  for (int n = 0; n < 120; ++n) {
    const bool sums = n % 3 != 0;
    all.push_back({"mixed " + std::to_string(n),
                   sums ? uint32_t{PENSTOCK_ALL_REDUCE} : uint32_t{PENSTOCK_BROADCAST},
                   n % 4 == 1 ? uint32_t{PENSTOCK_INT32} : uint32_t{PENSTOCK_FLOAT32},
                   sums || n % 2 == 0 ? 0u : 1u, n % 7});
  }
  // Too large to be copied.
  all.push_back({"large", PENSTOCK_ALL_REDUCE, PENSTOCK_FLOAT32, 0, 300'000});
  return all;
}

void carry_all(OperationsRank rank, const std::vector<Asked>& asked, uint32_t order) {
  std::vector<size_t> places(asked.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::shuffle(places.begin(), places.end(), std::mt19937(order));
  std::vector<std::unique_ptr<Array>> arrays(asked.size());
  std::vector<std::shared_ptr<Operation>> operations(asked.size());
  for (const size_t i : places) {
    const Asked& one = asked[i];
    arrays[i] = std::make_unique<Array>(
        one.dtype, std::vector<int64_t>{one.numel},
        [&](uint64_t at) { return double(i + at % 5 + 1) * (rank.rank() + 1); });
    auto declaration = declare(one.pattern, one.name, arrays[i].get(), arrays[i].get());
    declaration.root = one.root;
    declaration.postscale = one.pattern == PENSTOCK_ALL_REDUCE ? 2 : 1;
    operations[i] = submit(rank, declaration);
  }
  const double ranks = rank.size() * (rank.size() + 1) / 2.0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const Status status = operations[i]->wait();
    ASSERT_TRUE(status.ok()) << status.message();
    const bool sums = asked[i].pattern == PENSTOCK_ALL_REDUCE;
    const std::vector<double> values = arrays[i]->values();
    for (size_t at = 0; at < values.size(); ++at)
      ASSERT_EQ(values[at], double(i + at % 5 + 1) * (sums ? 2 * ranks : double(asked[i].root + 1)))
          << asked[i].name << " at " << at;
  }
}

TEST(OperationsTogether, AMixtureComesOutAsIfEachTravelledAlone) {
  constexpr uint32_t kRounds = test::kSanitized ? 1 : 5;
  for (const bool ordered : {false, true})
    for (const uint32_t size : {2u, 3u, 4u}) {
      if (test::kSanitized && size != 3) continue;
      ThreadHub hub(size, ordered);
      run_operations(hub, [&](OperationsRank rank) {
        for (uint32_t round = 0; round < kRounds; ++round)
          carry_all(rank, a_mixture(), round * size + rank.rank());
      });
    }
}

TEST(OperationsTogether, ThoseSubmittedAtOnceStartAllOrNone) {
  ThreadHub hub(2, false);
  run_operations(hub, [&](OperationsRank rank) {
    std::vector<std::unique_ptr<Array>> arrays;
    std::vector<penstock_operation_declaration> declarations;
    for (const char* name : {"a", "b", "c", "b"}) {
      arrays.push_back(std::make_unique<Array>(PENSTOCK_FLOAT32, std::vector<int64_t>{3},
                                               [](uint64_t at) { return double(at); }));
      declarations.push_back(
          declare(PENSTOCK_ALL_REDUCE, name, arrays.back().get(), arrays.back().get()));
    }
    const auto refused = rank.operations.submit(declarations);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("'b' is still pending"), std::string::npos);
    declarations.pop_back();
    const auto started = rank.operations.submit(declarations);
    ASSERT_TRUE(started.ok()) << started.status().message();
    ASSERT_EQ(started.value().size(), 3u);
    for (const auto& operation : started.value()) EXPECT_TRUE(operation->wait().ok());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(arrays[i]->values(), (std::vector<double>{0, 2, 4}));
    EXPECT_EQ(arrays[3]->values(), (std::vector<double>{0, 1, 2}));
  });
}

// How many operations share a message depends on their times, so one round with several is enough.
TEST(OperationsTogether, SmallOnesNeedFewerMessagesThanThereAre) {
  constexpr int kRounds = 20, kNames = 50;
  ThreadHub hub(2, false);
  run_operations(hub, [&](OperationsRank rank) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::unique_ptr<Array>> arrays;
      std::vector<std::shared_ptr<Operation>> operations;
      for (int n = 0; n < kNames; ++n) {
        arrays.push_back(std::make_unique<Array>(PENSTOCK_FLOAT32, std::vector<int64_t>{10},
                                                 [&](uint64_t) { return n; }));
        operations.push_back(submit(rank, declare(PENSTOCK_ALL_REDUCE, std::to_string(n),
                                                  arrays[n].get(), arrays[n].get())));
      }
      for (const auto& operation : operations) ASSERT_TRUE(operation->wait().ok());
    }
  });
  EXPECT_LT(hub.slots.size(), size_t{kRounds * kNames});
}

}  // namespace
}  // namespace penstock::together_test
