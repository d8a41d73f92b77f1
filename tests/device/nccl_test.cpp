// NCCL's operations between ranks that are threads, each with a simulated device.
#include <nccl.h>

#include <array>
#include <atomic>
#include <functional>
#include <set>
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::nccl_test {

constexpr int kRanks = 4;

// The objects of one rank.
struct Rank {
  int rank;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;

  // Device memory that is filled with these values in the order of the stream.
  float* put(const std::vector<float>& values) const {
    void* memory = device_bytes(values.size() * sizeof(float));
    EXPECT_EQ(cudaMemcpyAsync(memory, values.data(), values.size() * sizeof(float),
                              cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    return static_cast<float*>(memory);
  }
  std::vector<float> get(const float* memory, std::size_t count) const {
    std::vector<float> values(count);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost,
                              stream),
              cudaSuccess);
    return values;
  }
};

class SimulatedNccl : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    begin_ranks(1);
  }
  static void begin_ranks(uint64_t seed, bool sums_by_rank = true) {
    Settings settings;
    settings.sums_by_rank = sums_by_rank;
    settings.devices = kRanks;
    settings.seed = seed;
    begin(settings);
  }
  // Runs `body` on kRanks threads that share a communicator.
  static void on_ranks(const std::function<void(Rank&)>& body) {
    ncclUniqueId id{};
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&body, id, r] {
        EXPECT_EQ(cudaSetDevice(r), cudaSuccess);
        Rank rank{r};
        rank.stream = new_stream();
        EXPECT_EQ(ncclCommInitRank(&rank.communicator, kRanks, id, r), ncclSuccess);
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(SimulatedNccl, AllReduceSumsOverRanksUnderEverySeed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    begin_ranks(seed);
    on_ranks([](Rank& rank) {
      float* values = rank.put({static_cast<float>(rank.rank), 1.0f});
      for (int time = 0; time < 3; ++time)
        EXPECT_EQ(
            ncclAllReduce(values, values, 2, ncclFloat32, ncclSum, rank.communicator, rank.stream),
            ncclSuccess);
      EXPECT_EQ(rank.get(values, 2), (std::vector<float>{6 * 16, 4 * 16}));
      EXPECT_EQ(ncclCommFinalize(rank.communicator), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(rank.communicator), ncclSuccess);
    });
    EXPECT_TRUE(reports().empty());
  }
}

TEST_F(SimulatedNccl, GatherScatterAndBroadcastPutPiecesByRank) {
  on_ranks([](Rank& rank) {
    const auto mine = static_cast<float>(rank.rank + 1);
    float* one = rank.put({mine});
    float* four = rank.put({0, 0, 0, 0});
    EXPECT_EQ(ncclAllGather(one, four, 1, ncclFloat32, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(rank.get(four, 4), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(ncclReduceScatter(four, one, 1, ncclFloat32, ncclAvg, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(rank.get(one, 1), (std::vector<float>{mine}));
    EXPECT_EQ(ncclBroadcast(one, four + 2, 1, ncclFloat32, 3, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(rank.get(four, 4), (std::vector<float>{1, 2, 4, 4}));
  });
}

TEST_F(SimulatedNccl, AGroupSendsAroundARing) {
  on_ranks([](Rank& rank) {
    float* out = rank.put({static_cast<float>(rank.rank)});
    float* in = rank.put({-1});
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(
        ncclSend(out, 1, ncclFloat32, (rank.rank + 1) % kRanks, rank.communicator, rank.stream),
        ncclSuccess);
    EXPECT_EQ(ncclRecv(in, 1, ncclFloat32, (rank.rank + kRanks - 1) % kRanks, rank.communicator,
                       rank.stream),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(rank.get(in, 1)[0], static_cast<float>((rank.rank + kRanks - 1) % kRanks));
  });
  EXPECT_TRUE(reports().empty());
}

TEST_F(SimulatedNccl, AGroupMaySendToItself) {
  on_ranks([](Rank& rank) {
    float* out = rank.put({static_cast<float>(rank.rank)});
    float* in = rank.put({-1});
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(out, 1, ncclFloat32, rank.rank, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(ncclRecv(in, 1, ncclFloat32, rank.rank, rank.communicator, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(rank.get(in, 1)[0], static_cast<float>(rank.rank));
  });
  EXPECT_TRUE(reports().empty());
}

TEST_F(SimulatedNccl, AReductionReachesItsRootAlone) {
  on_ranks([](Rank& rank) {
    float* values = rank.put({1, 2});
    float* sum = rank.put({-1, -1});
    EXPECT_EQ(ncclReduce(values, sum, 2, ncclFloat32, ncclSum, 2, rank.communicator, rank.stream),
              ncclSuccess);
    const std::vector<float> expected = {kRanks, 2 * kRanks};
    EXPECT_EQ(rank.get(sum, 2), rank.rank == 2 ? expected : (std::vector<float>{-1, -1}));
  });
  EXPECT_TRUE(reports().empty());
}

TEST_F(SimulatedNccl, HalvesAndBytesAreSummedToo) {
  on_ranks([](Rank& rank) {
    unsigned char* memory = device_bytes(4);
    const unsigned char host[4] = {0x00, 0x3c, 200, 1};  // 1.0 as a half, then two bytes
    EXPECT_EQ(cudaMemcpyAsync(memory, host, 4, cudaMemcpyHostToDevice, rank.stream), cudaSuccess);
    EXPECT_EQ(
        ncclAllReduce(memory, memory, 1, ncclFloat16, ncclSum, rank.communicator, rank.stream),
        ncclSuccess);
    EXPECT_EQ(ncclAllReduce(memory + 2, memory + 2, 2, ncclUint8, ncclMax, rank.communicator,
                            rank.stream),
              ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    EXPECT_EQ(read(memory, 4), (std::vector<unsigned char>{0x00, 0x44, 200, 1}));  // 4.0
  });
}

TEST_F(SimulatedNccl, NothingMovesBeforeAllRanksHaveCome) {
  on_ranks([](Rank& rank) {
    float* values = rank.put({1});
    if (rank.rank == 0) {
      const cudaEvent_t done = new_event();
      EXPECT_EQ(
          ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, rank.communicator, rank.stream),
          ncclSuccess);
      EXPECT_EQ(cudaEventRecord(done, rank.stream), cudaSuccess);
      for (int asked = 0; asked < 100; ++asked) EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
    }
  });
  EXPECT_GE(queued(), 2u);
}

TEST_F(SimulatedNccl, OrdersThatDifferOnOneStreamAreADeadlock) {
  ncclUniqueId other_id{};
  ASSERT_EQ(ncclGetUniqueId(&other_id), ncclSuccess);
  std::atomic<int> issued{0};
  on_ranks([&](Rank& rank) {
    ncclComm_t other = nullptr;
    EXPECT_EQ(ncclCommInitRank(&other, kRanks, other_id, rank.rank), ncclSuccess);
    float* values = rank.put({1});
    const bool turned = rank.rank == 2;
    for (const ncclComm_t communicator :
         {turned ? other : rank.communicator, turned ? rank.communicator : other})
      EXPECT_EQ(ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, communicator, rank.stream),
                ncclSuccess);
    ++issued;
    while (issued < kRanks) std::this_thread::yield();
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaErrorLaunchFailure);
  });
  const std::vector<Report> all = reports();
  ASSERT_GE(all.size(), 2u);
  EXPECT_TRUE(contains(all.front().sentence, "this can deadlock")) << all.front().sentence;
  EXPECT_TRUE(contains(all.back().sentence, "for ever")) << all.back().sentence;
}

// On separate streams the two operations may pass each other or not.
TEST_F(SimulatedNccl, OrdersThatDifferOnTwoStreamsAreReported) {
  ncclUniqueId other_id{};
  ASSERT_EQ(ncclGetUniqueId(&other_id), ncclSuccess);
  std::atomic<int> issued{0};
  on_ranks([&](Rank& rank) {
    ncclComm_t other = nullptr;
    EXPECT_EQ(ncclCommInitRank(&other, kRanks, other_id, rank.rank), ncclSuccess);
    float* values = rank.put({1, 1});
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    const cudaStream_t second = new_stream();
    for (const bool first : {rank.rank != 1, rank.rank == 1})
      EXPECT_EQ(ncclAllReduce(values + first, values + first, 1, ncclFloat32, ncclSum,
                              first ? rank.communicator : other, first ? rank.stream : second),
                ncclSuccess);
    ++issued;
    while (issued < kRanks) std::this_thread::yield();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  });
  ASSERT_FALSE(reports().empty());
  for (const Report& report : reports()) EXPECT_EQ(report.misuse, Misuse::kRanksDiffer);
}

TEST_F(SimulatedNccl, ArgumentsThatDifferAreReported) {
  on_ranks([](Rank& rank) {
    float* values = rank.put({1, 1});
    EXPECT_EQ(ncclAllReduce(values, values, rank.rank == 3 ? 2 : 1, ncclFloat32, ncclSum,
                            rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  });
  ASSERT_FALSE(reports().empty());
  EXPECT_TRUE(contains(reports().front().sentence, "other arguments"));
}

TEST_F(SimulatedNccl, AnAbortEndsTheWorkOfAll) {
  on_ranks([](Rank& rank) {
    float* values = rank.put({1});
    if (rank.rank == 0) {
      EXPECT_EQ(ncclCommAbort(rank.communicator), ncclSuccess);
      return;
    }
    const ncclResult_t said =
        ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, rank.communicator, rank.stream);
    EXPECT_TRUE(said == ncclSuccess || said == ncclRemoteError || said == ncclInvalidUsage);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(rank.communicator, &error), ncclSuccess);
    EXPECT_EQ(error, ncclRemoteError);
    EXPECT_EQ(ncclCommAbort(rank.communicator), ncclSuccess);
  });
}

// The rounding of a sum of these four numbers shows which two were added first.
TEST_F(SimulatedNccl, SumsAreInAnOrderThatTheSizeOfAMessageChangesAndTheSameOnAllRanks) {
  std::array<std::set<float>, kRanks> seen;
  for (std::size_t count = 4; count < 8; ++count) {
    std::array<std::vector<float>, kRanks> sums;
    begin_ranks(count, false);
    on_ranks([&](Rank& rank) {
      constexpr std::array<float, kRanks> kValues{1e8f, 3, -1e8f, 5};
      float* values = rank.put(std::vector<float>(count, kValues[rank.rank]));
      EXPECT_EQ(ncclAllReduce(values, values, count, ncclFloat32, ncclSum, rank.communicator,
                              rank.stream),
                ncclSuccess);
      sums[rank.rank] = rank.get(values, count);
    });
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(sums[r], sums[0]);
      seen[r].insert(sums[r][0]);
    }
    EXPECT_GT(std::set<float>(sums[0].begin(), sums[0].end()).size(), 1u);
  }
  EXPECT_GT(seen[0].size(), 1u);
}

TEST_F(SimulatedNccl, TwoRanksOnOneDeviceAreRefused) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t first = nullptr, second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInvalidUsage);
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(first, &error), ncclSuccess);
  EXPECT_EQ(error, ncclInProgress);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclSuccess);
  EXPECT_EQ(ncclCommGetAsyncError(first, &error), ncclSuccess);
  EXPECT_EQ(error, ncclSuccess);
}

TEST_F(SimulatedNccl, PageableMemoryIsRefused) {
  on_ranks([](Rank& rank) {
    float host = 1;
    EXPECT_EQ(ncclAllReduce(&host, &host, 1, ncclFloat32, ncclSum, rank.communicator, rank.stream),
              ncclInvalidArgument);
  });
  EXPECT_EQ(reports().front().misuse, Misuse::kWrongPointer);
}

}  // namespace penstock::simulated::nccl_test
