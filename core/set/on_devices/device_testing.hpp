// For tests: ranks with gradients on simulated CUDA devices. A script of steps runs on devices and
// on the CPU, and its results are compared to the bit.
#pragma once

#include "core/set/testing.hpp"
#include "core/tensor/elements.hpp"
#include "tests/device/simulated.hpp"

#include <support/long.hpp>

#include <cmath>
#include <limits>
#include <random>

namespace penstock::testing {

using Values = std::vector<std::vector<float>>;
using Bytes = std::vector<std::string>;  // of each gradient

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline Result<RuntimeHandle> open_rank_over_devices(const std::string& config) {
  penstock_runtime_options options{};
  options.struct_size = sizeof options;
  options.config_text = str(config);
  return Runtime::open_over(penstock_device, options);
}

// Resets the simulator to `settings`. At the end of the scope there must be no misuse, no leak, and
// no kernel that was loaded in a step.
class SimulatedDevices {
 public:
  explicit SimulatedDevices(uint64_t seed = 1, double early = 0, int count = 2,
                            bool sums_by_rank = true) {
    simulated::Settings settings;
    settings.devices = count;
    settings.seed = seed;
    settings.early = early;
    settings.sums_by_rank = sums_by_rank;
    simulated::reset(settings);
  }
  ~SimulatedDevices() {
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
    EXPECT_EQ(simulated::waits().for_load, 0u) << "kernels were launched that no plan had loaded";
    simulated::reset();
  }
};

inline void with_device_ranks(uint32_t size, const std::string& scheme,
                              const std::function<void(Runtime&, uint32_t)>& body) {
  with_ranks(size, scheme, body, open_rank_over_devices);
}

inline size_t numel_of(const std::vector<int64_t>& shape) {
  size_t numel = 1;
  for (int64_t extent : shape) numel *= static_cast<size_t>(extent);
  return numel;
}

inline std::vector<GradientShape> lying_on(std::vector<GradientShape> shapes, const Place& place) {
  for (GradientShape& shape : shapes) shape.lies_on = place;
  return shapes;
}

inline Place on_cuda(int32_t id) {
  return {PENSTOCK_DEVICE_CUDA, id};
}

// The storage of a gradient in any place. On a device a stream of the owner writes and reads it,
// each time as late as possible.
class Storage {
 public:
  explicit Storage(const GradientShape& shape)
      : dtype_(shape.dtype), numel_(numel_of(shape.shape)), place_(shape.lies_on) {
    if (place_.is_cpu()) {
      on_cpu_ = Buffer(bytes());
      return;
    }
    const Device device(penstock_device, place_.device_id);
    auto memory = DeviceMemory::make(device, bytes());
    auto upload = PinnedMemory::make(device, bytes());
    auto download = PinnedMemory::make(device, bytes());
    auto stream = Stream::make(device, false);
    for (const Status& status :
         {memory.status(), upload.status(), download.status(), stream.status()})
      EXPECT_TRUE(status.ok()) << status.message();
    on_device_ = std::move(*memory);
    upload_ = std::move(*upload);
    download_ = std::move(*download);
    stream_ = std::move(*stream);
  }

  uint64_t bytes() const { return numel_ * dtype_bytes(dtype_); }
  void* stream() const { return place_.is_cpu() ? nullptr : stream_.handle(); }
  penstock_tensor tensor() const {
    static const int64_t kNoShape = 0;
    penstock_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.shape = &kNoShape;
    tensor.data = place_.is_cpu() ? on_cpu_.data() : on_device_.data();
    tensor.numel = numel_;
    tensor.dtype = dtype_;
    tensor.device_type = place_.device_type;
    tensor.device_id = place_.device_id;
    return tensor;
  }
  // On a device this queues the copy. The last copy has already run.
  void write(const std::vector<float>& values) {
    void* target = place_.is_cpu() ? on_cpu_.data() : upload_.data();
    if (numel_ != 0) from_float32(dtype_, values.data(), target, numel_);
    if (place_.is_cpu()) return;
    const Status status = stream_.copy_to_device(on_device_.data(), target, bytes());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Waits until the queued work of the stream has run or can never run.
  void settle() const {
    if (!place_.is_cpu()) (void)stream_.wait();
  }
  // The values that work on the stream would see.
  std::string read() const {
    if (!place_.is_cpu()) {
      EXPECT_TRUE(stream_.copy_to_host(download_.data(), on_device_.data(), bytes()).ok());
      EXPECT_TRUE(stream_.wait().ok());
    }
    const std::byte* data = place_.is_cpu() ? on_cpu_.data() : download_.data();
    return {reinterpret_cast<const char*>(data), bytes()};
  }

 private:
  const uint32_t dtype_;
  const uint64_t numel_;
  const Place place_;
  Buffer on_cpu_;
  DeviceMemory on_device_;
  PinnedMemory upload_, download_;
  Stream stream_;
};

// Exchanges the only gradient of a set, a gradient of ones, and waits for the result.
inline Status exchange_ones(Set& set, Storage& storage) {
  storage.write(std::vector<float>(storage.bytes() / sizeof(float), 1));
  PENSTOCK_TRY(set.gradient_ready(0, storage.tensor(), storage.stream()));
  return set.wait_all();
}

// Ways to wait for the results of a step and to end it.
enum class Waits { for_all, for_each, by_streams, by_the_end };

inline Status end_step(Set& set, const std::vector<Storage>& storage, Waits waits,
                       uint32_t outcome) {
  if (set.defers()) PENSTOCK_TRY(set.backward_end());
  if (waits == Waits::for_all) PENSTOCK_TRY(set.wait_all());
  for (size_t i = 0; i < storage.size(); ++i) {
    if (waits == Waits::for_each) PENSTOCK_TRY(set.wait(i));
    if (waits == Waits::by_streams) PENSTOCK_TRY(set.wait_stream(i, storage[i].stream()));
  }
  return set.step_end(outcome);
}

// The actions of each rank in each step depend only on the rank and the step.
struct Script {
  std::vector<GradientShape> shapes;
  std::string scheme;
  uint32_t size = 1;
  uint64_t steps = 8;
  uint32_t flags = 0;
};

// Heavy-tailed, so that a selection has large entries to choose.
inline Values gradients_of(const Script& script, uint32_t rank, uint64_t step) {
  std::mt19937_64 random(1000 * step + rank);
  std::normal_distribution<float> normal;
  Values gradients;
  for (const GradientShape& shape : script.shapes) {
    auto& values = gradients.emplace_back(numel_of(shape.shape));
    for (float& value : values) value = normal(random) * std::exp(normal(random));
  }
  return gradients;
}

// One cycle of the steps of take_step and its effects; twice in long runs.
inline uint64_t scripted_steps() {
  return test::is_long() ? 12 : 8;
}

// A step of the script. The kinds of steps alternate: plain; forgotten; with a gradient that some
// rank has not computed; void; with a gradient that the last rank leaves out.
inline Status take_step(const Script& script, Set& set, std::vector<Storage>& storage,
                        uint32_t rank, uint64_t step) {
  Values gradients = gradients_of(script, rank, step);
  if (step % 6 == 4 && rank == 0) gradients[0][0] = std::numeric_limits<float>::infinity();
  for (size_t i = storage.size(); i-- > 0;) {
    if (step % 6 == 3 && i == 1 && rank == step % script.size) {
      PENSTOCK_TRY(set.gradient_absent(i, storage[i].tensor()));
      continue;
    }
    storage[i].write(gradients[i]);
    if (step % 6 == 5 && i == 1 && rank == script.size - 1) continue;
    PENSTOCK_TRY(set.gradient_ready(i, storage[i].tensor(), storage[i].stream()));
  }
  return end_step(set, storage, Waits(step % 4),
                  step % 6 == 2 ? PENSTOCK_STEP_FORGOTTEN : PENSTOCK_STEP_APPLIED);
}

// The place of each gradient of a rank.
using Places = std::function<Place(uint32_t rank, size_t gradient)>;
inline Place on_the_cpu(uint32_t, size_t) {
  return {};
}

inline std::vector<GradientShape> placed(const Script& script, const Places& places,
                                         uint32_t rank) {
  std::vector<GradientShape> shapes = script.shapes;
  for (size_t i = 0; i < shapes.size(); ++i) shapes[i].lies_on = places(rank, i);
  return shapes;
}

// The contents of the gradients' storage on every rank after every step: [rank][step].
inline std::vector<std::vector<Bytes>> results_of(const Script& script, const Places& places) {
  std::vector<std::vector<Bytes>> results(script.size);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const std::vector<GradientShape> shapes = placed(script, places, rank);
    std::vector<Storage> storage;
    for (const GradientShape& shape : shapes) storage.emplace_back(shape);
    auto set = make_set(runtime, shapes, script.flags);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < script.steps; ++step) {
      ASSERT_OK(take_step(script, **set, storage, rank, step));
      Bytes& read = results[rank].emplace_back();
      for (const Storage& one : storage) read.push_back(one.read());
    }
  });
  return results;
}

// The first difference between two runs. Empty if the runs are equal.
inline std::string difference(const std::vector<std::vector<Bytes>>& got,
                              const std::vector<std::vector<Bytes>>& expected) {
  if (got == expected) return {};
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    if (got[rank].size() != expected[rank].size())
      return fmt::format("rank {} has {} steps, expected {}", rank, got[rank].size(),
                         expected[rank].size());
    for (size_t step = 0; step < expected[rank].size(); ++step)
      for (size_t g = 0; g < expected[rank][step].size(); ++g)
        if (got[rank][step][g] != expected[rank][step][g])
          return fmt::format("rank {}, step {}, gradient {}", rank, step, g);
  }
  return "another number of ranks";
}

}  // namespace penstock::testing
