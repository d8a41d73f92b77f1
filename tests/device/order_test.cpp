// Programs of many streams, with many seeds. A program with all its events has one result. The test
// finds a program that lacks an event.
#include <array>
#include <bitset>
#include <optional>
#include <random>

#include "fixture.hpp"

namespace penstock::simulated::order_test {

class SimulatedOrder : public SimulatedDevice {};

constexpr uint64_t kSeeds = 200;
constexpr std::size_t kStreams = 4, kBuffers = 5, kSteps = 60;

// Copies and fills of buffers, on streams that a seed chooses. Each step waits for the last use of
// its buffers. The program stores the value that each step wrote. A careless program leaves out the
// waits of one step in its middle. The step is the first whose missing order changes a value.
class Program {
 public:
  Program(uint64_t seed, bool careless) : random_(seed), careless_(careless) {
    for (Lane& lane : lanes_) lane.stream = new_stream();
    kept_ = device_bytes(kSteps);
    for (Buffer& buffer : buffers_) {
      buffer.memory = device_bytes(1);
      buffer.value = static_cast<unsigned char>(200 + (&buffer - buffers_.data()));
      EXPECT_EQ(cudaMemset(buffer.memory, buffer.value, 1), cudaSuccess);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void run() {
    for (std::size_t step = 0; step < kSteps; ++step) {
      Lane& lane = lanes_[random_() % kStreams];
      Buffer& to = buffers_[random_() % kBuffers];
      Buffer& from = buffers_[random_() % kBuffers];
      wait(lane, step, to, from);
      if (&to == &from) {
        to.value = static_cast<unsigned char>(step);
        EXPECT_EQ(cudaMemsetAsync(to.memory, to.value, 1, lane.stream), cudaSuccess);
      } else {
        to.value = from.value;
        copy(to.memory, from.memory, lane.stream);
      }
      copy(kept_ + step, to.memory, lane.stream);
      expected_.push_back(to.value);
      lane.before.set(step);
      to.last_use = from.last_use = Use{new_event(), step, lane.before, false};
      to.last_use->wrote = true;
      EXPECT_EQ(cudaEventRecord(to.last_use->event, lane.stream), cudaSuccess);
      if (random_() % 8 == 0) (void)cudaEventQuery(to.last_use->event);
    }
    EXPECT_EQ(careless_, was_careless_) << "no step needed its waits";
  }

  bool is_right() const { return read(kept_, kSteps) == expected_; }

 private:
  using Steps = std::bitset<kSteps>;
  struct Use {
    cudaEvent_t event;
    std::size_t step;
    Steps before;  // steps that end before the event
    bool wrote;    // the use wrote the buffer; otherwise it only read
  };
  struct Buffer {
    unsigned char* memory;
    unsigned char value;  // after all steps so far
    std::optional<Use> last_use;
  };
  struct Lane {
    cudaStream_t stream;
    Steps before;  // steps that end before the next work
  };

  static void copy(unsigned char* to, const unsigned char* from, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, 1, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  }

  void wait(Lane& lane, std::size_t step, const Buffer& to, const Buffer& from) {
    const auto unordered = [&](const Buffer& buffer) {
      return buffer.last_use && !lane.before[buffer.last_use->step];
    };
    const bool needed =
        to.value != from.value && (unordered(to) || (unordered(from) && from.last_use->wrote));
    if (careless_ && !was_careless_ && needed && step >= kSteps / 3) {
      was_careless_ = true;
      return;
    }
    for (const Buffer* buffer : {&to, &from}) {
      if (!buffer->last_use) continue;
      EXPECT_EQ(cudaStreamWaitEvent(lane.stream, buffer->last_use->event), cudaSuccess);
      lane.before |= buffer->last_use->before;
    }
  }

  std::mt19937_64 random_;
  bool careless_, was_careless_ = false;
  std::array<Lane, kStreams> lanes_{};
  std::array<Buffer, kBuffers> buffers_{};
  unsigned char* kept_ = nullptr;
  std::vector<unsigned char> expected_;
};

TEST_F(SimulatedOrder, AProgramWithAllItsEventsHasOneResult) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    Program program(seed % 10, false);
    program.run();
    EXPECT_TRUE(program.is_right()) << "seed " << seed;
  }
}

TEST_F(SimulatedOrder, AProgramThatLacksAnEventIsFoundOut) {
  int found_programs = 0, found_runs = 0;
  for (uint64_t kind = 0; kind < 10; ++kind) {
    int found = 0;
    for (uint64_t seed = 0; seed < kSeeds / 10; ++seed) {
      begin_with_seed(seed);
      Program program(kind, true);
      program.run();
      found += program.is_right() ? 0 : 1;
    }
    found_programs += found > 0 ? 1 : 0;
    found_runs += found;
  }
  EXPECT_GE(found_programs, 9) << "of 10";
  EXPECT_GE(found_runs, 100) << "of 200";
}

// The smallest such program: produce on one stream, consume on another.
TEST_F(SimulatedOrder, AMissingWaitIsFoundUnderAThirdOfAllSeeds) {
  int found = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(2);
    const cudaStream_t producer = new_stream(), consumer = new_stream();
    SUCCEEDS(cudaMemsetAsync(memory, 7, 1, producer));
    SUCCEEDS(cudaMemcpyAsync(memory + 1, memory, 1, cudaMemcpyDeviceToDevice, consumer));
    SUCCEEDS(cudaStreamSynchronize(consumer));
    found += read(memory, 2)[1] != 7 ? 1 : 0;
  }
  EXPECT_GE(found, static_cast<int>(kSeeds / 3));
}

TEST_F(SimulatedOrder, OneSeedGivesOneOrder) {
  std::vector<unsigned char> results[2];
  for (std::vector<unsigned char>& result : results) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      begin_with_seed(seed);
      unsigned char* memory = device_bytes(1);
      for (int value = 0; value < 4; ++value)
        SUCCEEDS(cudaMemsetAsync(memory, value, 1, new_stream()));
      result.push_back(read(memory, 1)[0]);
    }
  }
  EXPECT_EQ(results[0], results[1]);
  for (const unsigned char value : {0, 1, 2, 3})
    EXPECT_GT(std::count(results[0].begin(), results[0].end(), value), 3) << int{value};
}

}  // namespace penstock::simulated::order_test
