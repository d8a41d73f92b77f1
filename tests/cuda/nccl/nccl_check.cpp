// The nccl transport on a device of this machine, with one rank: every pattern, after work that is
// still queued. Prints the result, or "skipped:" and the reason.
//
//   nccl_cuda_check PLUGIN [NCCL]
//
// The simulated device tests several ranks (plugins/collectives/nccl), because NCCL needs one
// device per rank.
#include <testing/plugin.hpp>

#include <penstock/collective.h>

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace {

using namespace penstock;  // NOLINT: a program of its own

constexpr uint64_t kElements = 1'000'003;
constexpr uint64_t kPatience = 30'000'000;  // us

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(sdk::text(what, ": ", cudaGetErrorString(error)));
}

struct Skipped {
  std::string why;
};

class OneRank {
 public:
  OneRank(const test::LoadedPlugin& plugin, const char* library) : table_(plugin.collective()) {
    test::OptionSettings settings{{"device", 0}};
    if (library != nullptr) settings.emplace_back("library", library);
    const test::OptionValues values(*plugin.module, settings);
    require(table_.create(values.data(), values.size(), &self_), "create");
    penstock_world world{};
    world.struct_size = sizeof world;
    world.hosts = &number_;
    world.size = 1;
    const test::Outcome joined = test::take(table_.join(self_, kPatience, &world));
    if (joined.code == PENSTOCK_FAILED_PRECONDITION) throw Skipped{joined.message};
    test::require(joined, "join");
    penstock_group group{};
    group.struct_size = sizeof group;
    group.id = 1;
    group.world_ranks = group.hosts = &number_;
    group.size = 1;
    group.level = PENSTOCK_LEVEL_WORLD;
    require(table_.open(self_, &group, nullptr, nullptr, kPatience, &channel_), "open");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    exec_.struct_size = sizeof exec_;
    exec_.stream = stream_;
    exec_.device_type = PENSTOCK_DEVICE_CUDA;
    for (float** memory : {&sent_, &received_})
      check(cudaMalloc(reinterpret_cast<void**>(memory), kElements * sizeof(float)), "cudaMalloc");
    check(cudaHostAlloc(reinterpret_cast<void**>(&host_), kElements * sizeof(float),
                        cudaHostAllocPortable),
          "cudaHostAlloc");
  }
  ~OneRank() {
    if (channel_ != nullptr) table_.close(self_, channel_);
    if (self_ != nullptr) table_.leave(self_, 0), table_.destroy(self_);
    (void)cudaFree(sent_);
    (void)cudaFree(received_);
    (void)cudaFreeHost(host_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  OneRank(const OneRank&) = delete;

  // With one rank every pattern copies its input. Throws if the copy differs.
  void carry(uint32_t pattern, const char* name, uint32_t flags = 0) {
    const float first = static_cast<float>(++round_);
    for (uint64_t i = 0; i < kElements; ++i) host_[i] = first + static_cast<float>(i % 1000);
    check(cudaMemsetAsync(received_, 0, kElements * sizeof(float), stream_), "cudaMemsetAsync");
    check(cudaMemcpyAsync(sent_, host_, kElements * sizeof(float), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    uint64_t count = kElements;
    const uint64_t offset = 0, send_count = kElements;
    penstock_message message{};
    message.struct_size = sizeof message;
    message.pattern = pattern;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.dtype = PENSTOCK_FLOAT32;
    message.deadline_us = kPatience;
    message.flags = flags;
    message.exec = &exec_;
    message.send = sent_;
    message.receive = received_;
    message.count = kElements;
    message.send_counts = &send_count;
    message.receive_counts = &count;
    message.receive_offsets = &offset;
    finish(message, name);
    if (pattern != PENSTOCK_BARRIER) compare(first, name);
  }

 private:
  static void require(penstock_status* status, const char* call) {
    test::require(test::take(status), call);
  }
  void finish(const penstock_message& message, const char* name) {
    penstock_ticket* ticket = nullptr;
    require(table_.submit(self_, channel_, &message, &ticket), name);
    uint32_t state = PENSTOCK_PENDING;
    while (state == PENSTOCK_PENDING) {
      require(table_.progress(self_, ticket, &state), name);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    table_.release(self_, ticket);
  }
  void compare(float first, const char* name) {
    check(cudaMemcpy(host_, received_, kElements * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (uint64_t i = 0; i < kElements; ++i)
      if (host_[i] != first + static_cast<float>(i % 1000))
        throw std::runtime_error(sdk::text(name, ": element ", i, " is ", host_[i], ", expected ",
                                           first + static_cast<float>(i % 1000)));
  }

  const penstock_collective& table_;
  const uint32_t number_ = 0;
  void* self_ = nullptr;
  penstock_channel* channel_ = nullptr;
  cudaStream_t stream_ = nullptr;
  penstock_exec exec_{};
  float *sent_ = nullptr, *received_ = nullptr, *host_ = nullptr;
  int round_ = 0;
};

void run(const char* file, const char* library) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0)
    throw Skipped{error == cudaSuccess ? "no device" : cudaGetErrorString(error)};
  OneRank rank(test::load_plugin(file), library);
  rank.carry(PENSTOCK_ALL_REDUCE, "all-reduce");
  rank.carry(PENSTOCK_REDUCE_SCATTER, "reduce-scatter");
  rank.carry(PENSTOCK_ALL_GATHER, "all-gather, counts told");
  rank.carry(PENSTOCK_ALL_GATHER, "all-gather, counts known", PENSTOCK_MESSAGE_EXACT_COUNTS);
  rank.carry(PENSTOCK_ALL_TO_ALL, "all-to-all, counts told");
  rank.carry(PENSTOCK_ALL_TO_ALL, "all-to-all, counts known", PENSTOCK_MESSAGE_EXACT_COUNTS);
  rank.carry(PENSTOCK_BROADCAST, "broadcast");
  rank.carry(PENSTOCK_BARRIER, "barrier");
  std::printf("ok: every pattern of the nccl transport, %llu elements, one rank\n",
              static_cast<unsigned long long>(kElements));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: nccl_cuda_check PLUGIN [NCCL]\n");
    return 2;
  }
  try {
    run(argv[1], argc == 3 ? argv[2] : nullptr);
  } catch (const Skipped& skipped) {
    std::printf("skipped: %s\n", skipped.why.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_cuda_check: %s\n", error.what());
    return 1;
  }
  return 0;
}
