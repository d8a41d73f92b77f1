// For tests: ranks on threads, each with a simulated device, a channel of the nccl transport over
// all ranks, and memory of that device.
#pragma once

#include <testing/gtest.hpp>
#include <testing/instances.hpp>
#include <testing/messages.hpp>

#include "tests/device/fixture.hpp"

#include <penstock/collective.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace penstock::test {

constexpr uint64_t kPatience = 30'000'000;  // us; a test that waits longer fails

inline const LoadedPlugin& nccl() {
  static const LoadedPlugin loaded =
      load_plugin(std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                  "collective-nccl-simulated.so");
  return loaded;
}

// A run's store, which the ranks' threads share.
class Store {
 public:
  Store() {
    table_.struct_size = sizeof table_;
    table_.context = this;
    table_.put = [](void* self, penstock_str key, penstock_str value) -> penstock_status* {
      Store& store = *static_cast<Store*>(self);
      std::lock_guard lock(store.mutex_);
      store.values_[std::string(sdk::view(key))] = sdk::view(value);
      store.changed_.notify_all();
      return nullptr;
    };
    table_.get = [](void* self, penstock_str key, uint64_t timeout_us, void* into,
                    void (*sink)(void*, penstock_str)) -> penstock_status* {
      Store& store = *static_cast<Store*>(self);
      const std::string name(sdk::view(key));
      std::unique_lock lock(store.mutex_);
      const bool came = store.changed_.wait_for(lock, std::chrono::microseconds(timeout_us),
                                                [&] { return store.values_.contains(name); });
      if (!came)
        return test_host()->status_new(test_host()->context, PENSTOCK_DEADLINE_EXCEEDED,
                                       sdk::str(name));
      sink(into, sdk::str(store.values_[name]));
      return nullptr;
    };
  }
  const penstock_key_value_store* table() const { return &table_; }

 private:
  penstock_key_value_store table_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// One rank, on the device whose number is its rank.
class NcclRank {
 public:
  NcclRank(Store& store, uint32_t rank, uint32_t size, const OptionSettings& more = {})
      : rank(rank), size(size), table(nccl().collective()), instance_(nccl(), with(more)) {
    EXPECT_EQ(cudaSetDevice(static_cast<int>(rank)), cudaSuccess);
    const std::vector<uint32_t> hosts(size, 0);
    penstock_world world{};
    world.struct_size = sizeof world;
    world.hosts = hosts.data();
    world.rank = rank;
    world.size = size;
    world.store = store.table();
    require(take(table.join(self(), kPatience, &world)), "join");
    stream = simulated::new_stream();
    exec.struct_size = sizeof exec;
    exec.stream = stream;
    exec.device_type = PENSTOCK_DEVICE_CUDA;
    exec.device_id = static_cast<int32_t>(rank);
  }
  ~NcclRank() {
    if (channel != nullptr) table.close(self(), channel);
    table.leave(self(), 0);
  }
  NcclRank(const NcclRank&) = delete;

  Outcome open(uint64_t timeout_us = kPatience) {
    std::vector<uint32_t> all(size);
    std::iota(all.begin(), all.end(), 0u);
    const std::vector<uint32_t> hosts(size, 0);
    penstock_group group{};
    group.struct_size = sizeof group;
    group.id = 1;
    group.world_ranks = all.data();
    group.hosts = hosts.data();
    group.rank = rank;
    group.size = size;
    group.level = PENSTOCK_LEVEL_WORLD;
    return take(table.open(self(), &group, nullptr, nullptr, timeout_us, &channel));
  }

  penstock_message message(uint32_t pattern, uint64_t tag,
                           uint32_t dtype = PENSTOCK_FLOAT32) const {
    penstock_message made = empty_message(pattern, tag, dtype, kPatience);
    made.exec = &exec;
    return made;
  }
  penstock_ticket* submit(const penstock_message& message) {
    penstock_ticket* ticket = nullptr;
    require(take(table.submit(self(), channel, &message, &ticket)), "submit");
    return ticket;
  }
  Outcome finish(penstock_ticket* ticket) { return test::finish(table, self(), ticket); }
  Outcome carry(const penstock_message& message) { return finish(submit(message)); }

  // Memory of the device that contains these values once the rank's stream has executed the copy.
  float* put(const std::vector<float>& values) {
    const uint64_t bytes = values.size() * sizeof(float);
    unsigned char* const host = simulated::pinned_bytes(bytes + 1);
    std::memcpy(host, values.data(), bytes);
    unsigned char* const memory = simulated::device_bytes(bytes + 1);
    EXPECT_EQ(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
    return reinterpret_cast<float*>(memory);
  }
  // The values in `memory` now. The message must be done, because this function waits for no other
  // stream.
  static std::vector<float> get(const float* memory, uint64_t count) {
    const cudaStream_t reader = simulated::new_stream();
    unsigned char* const host = simulated::pinned_bytes(count * sizeof(float) + 1);
    EXPECT_EQ(cudaMemcpyAsync(host, memory, count * sizeof(float), cudaMemcpyDeviceToHost, reader),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(reader), cudaSuccess);
    std::vector<float> values(count);
    std::memcpy(values.data(), host, count * sizeof(float));
    return values;
  }
  void* self() const { return instance_.self(); }

  const uint32_t rank, size;
  const penstock_collective& table;
  penstock_channel* channel = nullptr;
  cudaStream_t stream = nullptr;  // the stream of the code that produces the sent data
  penstock_exec exec{};

 private:
  static OptionSettings with(OptionSettings more) {
    // The library is loaded already, so that its name is enough.
    more.emplace_back("library", "libpenstock_device_simulated.so");
    return more;
  }
  Instance<penstock_collective> instance_;
};

// Runs `body` on `size` ranks with an open channel, on fresh simulated devices. `seed` decides in
// which order the devices work.
inline void on_ranks(uint32_t size, uint64_t seed, const std::function<void(NcclRank&)>& body) {
  simulated::Settings settings;
  settings.devices = static_cast<int>(size);
  settings.seed = seed;
  simulated::reset(settings);
  Store store;
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        NcclRank rank(store, r, size);
        require(rank.open(), "open");
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::test
