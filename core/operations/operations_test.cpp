// Named operations between ranks that are threads: results, order, groups, disagreement, ends.
#include "core/operations/operations.hpp"

#include "core/operations/testing.hpp"
#include "tests/support/worlds.hpp"

#include <atomic>
#include <limits>
#include <random>

namespace penstock::operations_test {
namespace {

using testing::Array;
using testing::carry;
using testing::declare;
using testing::element;
using testing::OperationsRank;
using testing::submit;
using testing::ThreadHub;

std::vector<double> output_of(Operation& operation, uint32_t dtype) {
  const Status status = operation.wait();
  EXPECT_TRUE(status.ok()) << status.message();
  const Result<Operation::Output> output = operation.result();
  std::vector<double> values;
  if (!output.ok()) return values;
  for (uint64_t i = 0; i < output.value().bytes / dtype_bytes(dtype); ++i) {
    values.push_back(element(dtype, output.value().data, i));
  }
  return values;
}

std::vector<uint64_t> rows_of(const Operation& operation) {
  const Operation::Output output = operation.result().value();
  return {output.rows.begin(), output.rows.end()};
}

// World size, and whether messages of a channel match by order or by tag.
class OperationsWorld : public ::testing::TestWithParam<std::tuple<uint32_t, bool>> {
 protected:
  void run(const std::function<void(OperationsRank rank)>& body) {
    ThreadHub hub(std::get<0>(GetParam()), std::get<1>(GetParam()));
    testing::run_operations(hub, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, OperationsWorld,
                         ::testing::Combine(test::worlds({1, 2, 3, 4, 8}), ::testing::Bool()));

TEST_P(OperationsWorld, ReductionsOfEveryTypeAreThoseOfPlainLoops) {
  run([](OperationsRank rank) {
    for (uint32_t dtype = PENSTOCK_FLOAT32; dtype <= PENSTOCK_BOOL; ++dtype) {
      if (dtype == PENSTOCK_UINT16) continue;  // the test's transport leaves it out, see below
      for (uint32_t reduction = PENSTOCK_REDUCE_SUM; reduction <= PENSTOCK_REDUCE_PRODUCT;
           ++reduction) {
        const bool is_bool = dtype == PENSTOCK_BOOL;
        if (is_bool && (reduction == PENSTOCK_REDUCE_SUM || reduction == PENSTOCK_REDUCE_PRODUCT))
          continue;
        // The products of eight ranks stay small.
        const auto value = [&](uint32_t r, uint64_t i) -> double {
          return is_bool ? (r + i) % 3 == 0 : 1.0 + static_cast<double>((r + i) % 3 == 0);
        };
        for (int64_t numel : {0, 1, 7, 2000}) {
          const Array input(dtype, {numel}, [&](uint64_t i) { return value(rank.rank(), i); });
          const Array output(dtype, {numel}, [](uint64_t) { return 0; });
          std::vector<double> expected;
          for (int64_t i = 0; i < numel; ++i) {
            double all = value(0, static_cast<uint64_t>(i));
            for (uint32_t r = 1; r < rank.size(); ++r) {
              all = testing::reduced(reduction, all, value(r, static_cast<uint64_t>(i)));
            }
            expected.push_back(all);
          }
          penstock_operation_declaration declaration =
              declare(PENSTOCK_ALL_REDUCE, "x", &input, &output);
          declaration.reduction = reduction;
          const Status status = carry(rank, declaration);
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_EQ(output.values(), expected) << "dtype " << dtype << ", reduction " << reduction;
        }
      }
    }
  });
}

TEST_P(OperationsWorld, InPlaceWithScalesAndAverageAsHorovodRounds) {
  run([](OperationsRank rank) {
    const auto carry_scaled = [&](uint32_t dtype, double value, double prescale, double postscale,
                                  bool average) {
      const Array array(dtype, {3}, [&](uint64_t) { return value; });
      penstock_operation_declaration declaration =
          declare(PENSTOCK_ALL_REDUCE, "scaled", &array, &array);
      declaration.prescale = prescale;
      declaration.postscale = postscale;
      declaration.average = average ? 1 : 0;
      const Status status = carry(rank, declaration);
      EXPECT_TRUE(status.ok()) << status.message();
      return array.values()[2];
    };
    const double size = rank.size();
    EXPECT_EQ(carry_scaled(PENSTOCK_FLOAT32, 5, 1, 1, true), 5);
    EXPECT_EQ(carry_scaled(PENSTOCK_BFLOAT16, 5, 1, 1, true), 5);
    EXPECT_EQ(carry_scaled(PENSTOCK_FLOAT16, 3, 0.5, 2, false), 3 * size);
    EXPECT_EQ(carry_scaled(PENSTOCK_FLOAT64, 3, 0.5, 1, true), 1.5);
    // Each rank's 7 * 0.5 is truncated to 3 before the sum.
    EXPECT_EQ(carry_scaled(PENSTOCK_INT32, 7, 0.5, 1, false), 3 * size);
    EXPECT_EQ(carry_scaled(PENSTOCK_INT64, -7, 1, 0.5, true), -3);
    EXPECT_EQ(carry_scaled(PENSTOCK_INT32, 49, 1, 1, true), 49);
  });
}

TEST_P(OperationsWorld, AMeanOfSixteenBitFloatsArrivesWhereverItFits) {
  run([](OperationsRank rank) {
    for (const uint32_t dtype : {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16}) {
      const double large = dtype == PENSTOCK_FLOAT16 ? 40000 : 0x1p120;
      const double small = dtype == PENSTOCK_FLOAT16 ? 0x1p-24 : 0x1p-133;
      for (const uint32_t pattern : {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER})
        for (const bool is_mean : {true, false}) {
          const Array input(dtype, {8}, [&](uint64_t i) { return i % 2 == 0 ? large : small; });
          penstock_operation_declaration declaration = declare(pattern, "halves", &input);
          declaration.average = is_mean ? 1 : 0;
          const std::shared_ptr<Operation> operation = submit(rank, declaration);
          const bool fits = dtype == PENSTOCK_BFLOAT16;
          const double sum = fits ? large * rank.size() : std::numeric_limits<double>::infinity();
          const double above = is_mean || rank.size() == 1 ? large : sum;
          const double below = is_mean ? small : small * rank.size();
          for (const double value : output_of(*operation, dtype))
            EXPECT_EQ(value, value > 1 ? above : below) << rank.size() << " ranks";
        }
    }
  });
}

TEST(Operations, OverATransportWithoutMeansOfItsOwnTheSumIsDivided) {
  ThreadHub hub(4, false);
  hub.takes_means = false;
  testing::run_operations(hub, [](OperationsRank rank) {
    const Array array(PENSTOCK_FLOAT16, {3}, [](uint64_t i) { return double(i); });
    penstock_operation_declaration declaration =
        declare(PENSTOCK_ALL_REDUCE, "halves", &array, &array);
    declaration.average = 1;
    const Status status = carry(rank, declaration);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(array.values(), (std::vector<double>{0, 1, 2}));
  });
}

TEST_P(OperationsWorld, ManyNamesSubmittedInAnyOrderFindEachOther) {
  run([](OperationsRank rank) {
    constexpr int kNames = 60;
    std::vector<int> order(kNames);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(rank.rank() + 1));
    std::vector<std::unique_ptr<Array>> arrays(kNames);
    std::vector<std::shared_ptr<Operation>> operations(kNames);
    for (int n : order) {
      arrays[n] = std::make_unique<Array>(PENSTOCK_FLOAT32, std::vector<int64_t>{n},
                                          [&](uint64_t) { return n; });
      const std::string name = "gradient " + std::to_string(n);
      operations[n] =
          submit(rank, declare(PENSTOCK_ALL_REDUCE, name, arrays[n].get(), arrays[n].get()));
    }
    for (int n = 0; n < kNames; ++n) {
      const Status status = operations[n]->wait();
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(operations[n]->done());
      EXPECT_EQ(arrays[n]->values(), std::vector<double>(n, n * static_cast<double>(rank.size())));
    }
  });
}

TEST_P(OperationsWorld, AllGatherJoinsDifferentFirstDimensions) {
  run([](OperationsRank rank) {
    // Rank r brings r rows: rank 0 none.
    const Array input(PENSTOCK_INT16, {rank.rank(), 3},
                      [&](uint64_t i) { return rank.rank() * 100.0 + double(i); });
    const std::shared_ptr<Operation> operation =
        submit(rank, declare(PENSTOCK_ALL_GATHER, "g", &input));
    std::vector<double> expected;
    std::vector<uint64_t> rows;
    for (uint32_t r = 0; r < rank.size(); ++r) {
      rows.push_back(r);
      for (uint32_t i = 0; i < r * 3; ++i) expected.push_back(r * 100.0 + i);
    }
    EXPECT_EQ(output_of(*operation, PENSTOCK_INT16), expected);
    EXPECT_EQ(rows_of(*operation), rows);
  });
}

TEST_P(OperationsWorld, AnOutputOfTheWrongSizeIsThatRanksErrorOnly) {
  run([](OperationsRank rank) {
    const Array input(PENSTOCK_FLOAT32, {1}, [&](uint64_t) { return rank.rank(); });
    const Array output(PENSTOCK_FLOAT32, {rank.size() + (rank.rank() == 0 ? 1 : 0)},
                       [](uint64_t) { return -1; });
    const Status status = carry(rank, declare(PENSTOCK_ALL_GATHER, "g", &input, &output));
    if (rank.rank() == 0) {
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_EQ(output.values(), std::vector<double>(rank.size() + 1, -1));
    } else {
      EXPECT_TRUE(status.ok()) << status.message();
      for (uint32_t r = 0; r < rank.size(); ++r) EXPECT_EQ(output.values()[r], r);
    }
  });
}

TEST_P(OperationsWorld, BroadcastGivesEveryRankTheRootsValues) {
  run([](OperationsRank rank) {
    for (uint32_t root = 0; root < rank.size(); ++root) {
      for (int64_t numel : {0, 1, 5}) {
        const Array input(PENSTOCK_BOOL, {numel},
                          [&](uint64_t i) { return rank.rank() == root && i % 2 == 0; });
        const Array output(PENSTOCK_BOOL, {numel}, [](uint64_t) { return 0; });
        penstock_operation_declaration declaration =
            declare(PENSTOCK_BROADCAST, "b", &input, &output);
        declaration.root = root;
        ASSERT_TRUE(carry(rank, declaration).ok());
        for (int64_t i = 0; i < numel; ++i)
          EXPECT_EQ(output.values()[static_cast<size_t>(i)], i % 2 == 0);
        declaration.output = nullptr;
        EXPECT_EQ(output_of(*submit(rank, declaration), PENSTOCK_BOOL), output.values());
        declaration.output = declaration.input;
        ASSERT_TRUE(carry(rank, declaration).ok());
        EXPECT_EQ(input.values(), output.values());
      }
    }
  });
}

TEST_P(OperationsWorld, AllToAllMovesRowsBySplitsOrInEqualParts) {
  run([](OperationsRank rank) {
    // Rank r has r + c rows for rank c, and one more row that is not sent.
    std::vector<uint64_t> splits;
    for (uint32_t c = 0; c < rank.size(); ++c) splits.push_back(rank.rank() + c);
    const uint64_t sum = std::accumulate(splits.begin(), splits.end(), uint64_t{0});
    const auto value = [](uint32_t from, uint64_t i) {
      return from * 1000.0 + static_cast<double>(i);
    };
    const Array input(PENSTOCK_INT32, {static_cast<int64_t>(sum + 1), 2},
                      [&](uint64_t i) { return value(rank.rank(), i); });
    penstock_operation_declaration declaration = declare(PENSTOCK_ALL_TO_ALL, "a", &input);
    declaration.splits = splits.data();
    declaration.n_splits = splits.size();
    std::shared_ptr<Operation> operation = submit(rank, declaration);
    std::vector<double> expected;
    std::vector<uint64_t> rows;
    for (uint32_t r = 0; r < rank.size(); ++r) {
      uint64_t begin = 0;
      for (uint32_t c = 0; c < rank.rank(); ++c) begin += r + c;
      rows.push_back(r + rank.rank());
      for (uint64_t i = 0; i < rows.back() * 2; ++i) expected.push_back(value(r, begin * 2 + i));
    }
    EXPECT_EQ(output_of(*operation, PENSTOCK_INT32), expected);
    EXPECT_EQ(rows_of(*operation), rows);

    const Array equal(PENSTOCK_INT32, {rank.size()},
                      [&](uint64_t i) { return value(rank.rank(), i); });
    operation = submit(rank, declare(PENSTOCK_ALL_TO_ALL, "a", &equal));
    expected.clear();
    for (uint32_t r = 0; r < rank.size(); ++r) expected.push_back(value(r, rank.rank()));
    EXPECT_EQ(output_of(*operation, PENSTOCK_INT32), expected);
  });
}

TEST_P(OperationsWorld, ReduceScatterGivesTheRemainderToTheLowestRanks) {
  run([](OperationsRank rank) {
    for (uint64_t rows : {0, 1, 5, 17}) {
      const Array input(PENSTOCK_FLOAT32, {static_cast<int64_t>(rows), 3},
                        [](uint64_t i) { return double(i); });
      penstock_operation_declaration declaration = declare(PENSTOCK_REDUCE_SCATTER, "r", &input);
      declaration.prescale = 0.5;
      declaration.postscale = 4;
      const std::shared_ptr<Operation> operation = submit(rank, declaration);
      std::vector<double> expected;
      std::vector<uint64_t> shares(rank.size());
      for (uint64_t row = 0; row < rows; ++row) ++shares[row % rank.size()];
      const uint64_t begin =
          std::accumulate(shares.begin(), shares.begin() + rank.rank(), uint64_t{0});
      for (uint64_t i = begin * 3; i < (begin + shares[rank.rank()]) * 3; ++i) {
        expected.push_back(static_cast<double>(i) * 2 * rank.size());
      }
      EXPECT_EQ(output_of(*operation, PENSTOCK_FLOAT32), expected);
      EXPECT_EQ(rows_of(*operation), shares);
      EXPECT_EQ(input.values().size(), rows * 3);
      for (uint64_t i = 0; i < rows * 3; ++i) EXPECT_EQ(input.values()[i], static_cast<double>(i));
    }
  });
}

TEST_P(OperationsWorld, ABarrierPassesWhileAnotherOperationWaits) {
  run([](OperationsRank rank) {
    const Array array(PENSTOCK_FLOAT32, {2}, [](uint64_t) { return 1; });
    const penstock_operation_declaration late =
        declare(PENSTOCK_ALL_REDUCE, "late", &array, &array);
    std::shared_ptr<Operation> operation;
    if (rank.rank() != 0) operation = submit(rank, late);
    if (operation != nullptr) {
      EXPECT_FALSE(operation->done());
      EXPECT_EQ(operation->result().status().code(), Code::failed_precondition);
    }
    EXPECT_TRUE(carry(rank, declare(PENSTOCK_BARRIER, "barrier", nullptr)).ok());
    if (rank.rank() == 0) operation = submit(rank, late);
    EXPECT_TRUE(operation->wait().ok());
    EXPECT_EQ(array.values()[0], rank.size());
  });
}

TEST_P(OperationsWorld, OverlappingGroupsInAnyOrderOpenTheirChannelsWithoutDeadlock) {
  ThreadHub hub(std::get<0>(GetParam()), std::get<1>(GetParam()));
  testing::run_operations(hub, [](OperationsRank rank) {
    if (rank.size() < 2) return;
    // All pairs: every rank is in several groups and asks for their operations in its own order.
    std::vector<std::vector<uint32_t>> pairs;
    for (uint32_t a = 0; a < rank.size(); ++a) {
      for (uint32_t b = a + 1; b < rank.size(); ++b) {
        if (a == rank.rank() || b == rank.rank()) pairs.push_back({a, b});
      }
    }
    std::shuffle(pairs.begin(), pairs.end(), std::mt19937(rank.rank() + 1));
    std::vector<std::unique_ptr<Array>> arrays;
    std::vector<std::shared_ptr<Operation>> operations;
    for (const std::vector<uint32_t>& pair : pairs) {
      arrays.push_back(std::make_unique<Array>(PENSTOCK_INT64, std::vector<int64_t>{3},
                                               [&](uint64_t) { return 1 << rank.rank(); }));
      penstock_operation_declaration declaration =
          declare(PENSTOCK_ALL_REDUCE, "pair", arrays.back().get(), arrays.back().get());
      declaration.ranks = pair.data();
      declaration.n_ranks = pair.size();
      operations.push_back(submit(rank, declaration));
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Status status = operations[i]->wait();
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(arrays[i]->values()[2], (1 << pairs[i][0]) + (1 << pairs[i][1]));
    }
  });
  // Each group has one id, and no other group has this id.
  std::map<uint64_t, std::vector<uint32_t>> groups;
  for (const auto& [id, ranks] : hub.opened) {
    EXPECT_NE(id, kFirstGroupId);
    EXPECT_EQ(groups.try_emplace(id, ranks).first->second, ranks);
  }
}

TEST_P(OperationsWorld, AgreedTasksRunInOneOrderWithOneNumber) {
  const uint32_t size = std::get<0>(GetParam());
  std::vector<std::vector<uint64_t>> serials(size);
  run([&](OperationsRank rank) {
    std::vector<std::thread> threads;
    for (int n = 0; n < 6; ++n) {
      threads.emplace_back([&, n] {
        const Status status = rank.operations.run_agreed(
            "set " + std::to_string(n), "same",
            Group::joined(rank.rank(), std::vector<uint32_t>(size)).value(), [&](uint64_t serial) {
              serials[rank.rank()].push_back(serial * 10 + static_cast<uint64_t>(n));
              return n == 3 ? internal("no") : Status();
            });
        EXPECT_EQ(status.ok(), n != 3);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  for (const std::vector<uint64_t>& order : serials) EXPECT_EQ(order, serials[0]);
  EXPECT_EQ(serials[0].size(), 6u);
}

}  // namespace
}  // namespace penstock::operations_test
