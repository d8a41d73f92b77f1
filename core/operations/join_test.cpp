// Named operations that other ranks ask for while a rank has joined.
#include "core/operations/testing.hpp"
#include "tests/support/worlds.hpp"

#include <future>

namespace penstock::join_test {
namespace {

using testing::Array;
using testing::carry;
using testing::declare;
using testing::OperationsRank;
using testing::submit;
using testing::ThreadHub;

// The outcome of a join, as in Runtime, without sets.
class Joined {
 public:
  explicit Joined(OperationsRank rank) {
    rank.control.join({.sum = [&operations = rank.operations](
                                  WhileJoined::Sum sum) { operations.add_zeros(std::move(sum)); },
                       .step = [](StepNotice) {},
                       .ended =
                           [this](Status status, uint32_t last) {
                             ended_.set_value({std::move(status), last});
                           }});
  }
  std::pair<Status, uint32_t> wait() { return ended_.get_future().get(); }

 private:
  std::promise<std::pair<Status, uint32_t>> ended_;
};

uint32_t join(OperationsRank rank) {
  const auto [status, last] = Joined(rank).wait();
  EXPECT_TRUE(status.ok()) << status.message();
  return last;
}

class JoinedWorld : public ::testing::TestWithParam<std::tuple<uint32_t, bool>> {
 protected:
  void run(const std::function<void(OperationsRank rank)>& body) {
    ThreadHub hub(std::get<0>(GetParam()), std::get<1>(GetParam()));
    testing::run_operations(hub, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, JoinedWorld,
                         ::testing::Combine(test::worlds({1, 2, 3, 4}), ::testing::Bool()));

TEST_P(JoinedWorld, MeansCountARankThatHasJoinedAsZero) {
  run([](OperationsRank rank) {
    for (int round = 0; round < 3; ++round) {
      // In round k, rank r + k is the r-th rank that runs out of data.
      const uint32_t size = rank.size(),
                     steps = (rank.rank() + size - uint32_t(round) % size) % size;
      for (uint32_t step = 0; step < steps; ++step) {
        std::vector<std::unique_ptr<Array>> arrays;
        std::vector<std::shared_ptr<Operation>> operations;
        for (uint32_t dtype : {PENSTOCK_FLOAT32, PENSTOCK_FLOAT16, PENSTOCK_INT32}) {
          arrays.push_back(std::make_unique<Array>(dtype, std::vector<int64_t>{3, 2},
                                                   [&](uint64_t i) { return double(size * i); }));
          const std::string name = fmt::format("sum {} {}", dtype, step);
          auto declaration =
              declare(PENSTOCK_ALL_REDUCE, name, arrays.back().get(), arrays.back().get());
          declaration.average = dtype == PENSTOCK_INT32 ? 0 : 1;
          operations.push_back(submit(rank, declaration));
        }
        const uint32_t still_here = size - 1 - step;
        for (size_t k = 0; k < operations.size(); ++k) {
          const Status status = operations[k]->wait();
          ASSERT_TRUE(status.ok()) << status.message();
          const double each = k == 2 ? size : 1;
          for (uint64_t i = 0; i < 6; ++i)
            EXPECT_EQ(arrays[k]->values()[i], each * double(still_here) * double(i)) << k;
        }
      }
      EXPECT_EQ(join(rank), (size - 1 + uint32_t(round)) % size);
      Array one(PENSTOCK_FLOAT32, {2}, [](uint64_t) { return 1; });
      EXPECT_TRUE(carry(rank, declare(PENSTOCK_ALL_REDUCE, "after", &one, &one)).ok());
      EXPECT_EQ(one.values(), std::vector<double>(2, double(size)));
    }
  });
}

TEST_P(JoinedWorld, OtherOperationsAreRefusedOnTheRanksThatAsk) {
  run([](OperationsRank rank) {
    if (rank.size() == 1 || rank.rank() == 0) {
      EXPECT_LT(join(rank), rank.size());
    } else {
      const Array input(PENSTOCK_FLOAT32, {int64_t(rank.size()), 2}, [](uint64_t) { return 1; });
      for (uint32_t pattern : {PENSTOCK_ALL_GATHER, PENSTOCK_BROADCAST, PENSTOCK_ALL_TO_ALL,
                               PENSTOCK_REDUCE_SCATTER, PENSTOCK_BARRIER, PENSTOCK_ALL_REDUCE}) {
        const std::string name = fmt::format("of pattern {}", pattern);
        auto declaration = declare(pattern, name, &input);
        declaration.root = 1;
        if (pattern == PENSTOCK_ALL_REDUCE) declaration.reduction = PENSTOCK_REDUCE_MAX;
        const Status status = carry(rank, declaration);
        EXPECT_EQ(status.code(), Code::failed_precondition) << status.message();
        EXPECT_NE(status.message().find("rank 0 has joined"), std::string::npos)
            << status.message();
      }
      EXPECT_NE(join(rank), 0u);
    }
    // The names are free again on all ranks.
    const Array input(PENSTOCK_FLOAT32, {int64_t(rank.size()), 2}, [](uint64_t) { return 1; });
    const std::string name = fmt::format("of pattern {}", uint32_t{PENSTOCK_ALL_GATHER});
    const Status status = carry(rank, declare(PENSTOCK_ALL_GATHER, name, &input));
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(Joined, GroupsOfSomeRanksGoOn) {
  ThreadHub hub(3, true);
  testing::run_operations(hub, [](OperationsRank rank) {
    static constexpr uint32_t kTwo[] = {0, 2};
    if (rank.rank() == 2) {
      Array one(PENSTOCK_FLOAT64, {4}, [](uint64_t) { return 5; });
      auto declaration = declare(PENSTOCK_ALL_REDUCE, "of two", &one, &one);
      declaration.ranks = kTwo;
      declaration.n_ranks = 2;
      declaration.average = 1;
      EXPECT_TRUE(carry(rank, declaration).ok());
      EXPECT_EQ(one.values(), std::vector<double>(4, 2.5));
    }
    (void)join(rank);
  });
}

TEST(Joined, ARankThatLeavesEndsTheJoinByName) {
  testing::run_world(2, [&](Control& control) {
    if (control.rank() == 1) return control.stop();
    std::promise<Status> ended;
    control.join({.sum = [](WhileJoined::Sum) {},
                  .step = [](StepNotice) {},
                  .ended = [&](Status status, uint32_t) { ended.set_value(std::move(status)); }});
    const Status status = ended.get_future().get();
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_NE(status.message().find("rank 1 has left"), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace penstock::join_test
