// Plugins that work on a device, against themselves on the CPU: one file, one instance, the same
// calls in both places, and the same bits.
#include <cuda_runtime.h>
#include <penstock/fold.h>

#include <testing/gtest.hpp>
#include <testing/instances.hpp>

#include <cmath>
#include <random>

#include "fixture.hpp"

namespace penstock::simulated::plugins_test {

using test::LoadedPlugin;
using test::take;

class PluginsOnADevice : public SimulatedDevice {};

LoadedPlugin simulated_plugin(const std::string& file) {
  return test::load_plugin(std::string(PENSTOCK_SIMULATED_PLUGINS) + "/" + file);
}

// Memory of one place, and the exec of calls there.
class Place {
 public:
  explicit Place(bool on_device, int device = 1) : on_device_(on_device) {
    exec_.struct_size = sizeof exec_;
    exec_.device_type = on_device ? PENSTOCK_DEVICE_CUDA : PENSTOCK_DEVICE_CPU;
    exec_.scratch_bytes = 1 << 22;
    if (on_device) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      exec_.device_id = device;
      exec_.stream = new_stream();
    }
    exec_.scratch = allocate(exec_.scratch_bytes);
    (void)cudaSetDevice(0);  // calls find another device as the current one
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    for (void* memory : memory_) {
      if (on_device_) (void)cudaFree(memory);
      if (!on_device_) std::free(memory);
    }
    if (on_device_) (void)cudaStreamDestroy(static_cast<cudaStream_t>(exec_.stream));
  }

  const penstock_exec& exec() const { return exec_; }
  template <typename T>
  T* put(const std::vector<T>& values) {
    (void)cudaSetDevice(exec_.device_id);
    auto* memory = static_cast<T*>(allocate(values.size() * sizeof(T)));
    copy(memory, values.data(), values.size() * sizeof(T));
    (void)cudaSetDevice(0);
    return memory;
  }
  template <typename T>
  std::vector<T> get(const T* memory, uint64_t n) const {
    std::vector<T> values(n);
    if (on_device_) (void)cudaStreamSynchronize(static_cast<cudaStream_t>(exec_.stream));
    copy(values.data(), memory, n * sizeof(T));
    return values;
  }

 private:
  void copy(void* target, const void* source, uint64_t bytes) const {
    if (bytes == 0) return;
    if (!on_device_) {
      std::memcpy(target, source, bytes);
      return;
    }
    EXPECT_EQ(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), cudaSuccess);
  }
  void* allocate(uint64_t bytes) {
    void* memory = on_device_ ? device_bytes(std::max<uint64_t>(bytes, 1))
                              : std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    memory_.push_back(memory);
    return memory;
  }

  bool on_device_;
  penstock_exec exec_{};
  std::vector<void*> memory_;
};

std::vector<float> drawn(uint64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random) * std::exp(normal(random));
  return values;
}

penstock_tensor tensor_of(float* data, uint64_t n, const penstock_exec& exec) {
  static const int64_t kNoShape = 0;
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.data = data;
  tensor.shape = &kNoShape;
  tensor.numel = n;
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = exec.device_type;
  tensor.device_id = exec.device_id;
  return tensor;
}

// A gradient on one rank, its residual, and what it sends.
struct Sender {
  Sender(Place& place, uint64_t n, uint64_t k, uint64_t seed)
      : grad(place.put(drawn(n, seed))),
        work(place.put(drawn(n, 100 + seed))),
        indices(place.put(std::vector<uint32_t>(k, 7))),
        values(place.put(std::vector<float>(k, 7))) {
    item.struct_size = sizeof item;
    item.name = sdk::str("gradient");
    item.numel = item.rows = n;
    item.cols = 1;
    item.grad = item.out = tensor_of(grad, n, place.exec());
    item.work = residual = tensor_of(work, n, place.exec());
    item.flags = PENSTOCK_ITEM_KEEP;
    item.states = &states;
    item.n_states = 1;
    for (penstock_section* section : sections) {
      section->struct_size = sizeof *section;
      section->capacity = k;
    }
    pair[0].data = indices;
    pair[0].dtype = PENSTOCK_UINT32;
    pair[0].role = PENSTOCK_ROLE_INDICES;
    pair[1].data = values;
    pair[1].dtype = PENSTOCK_FLOAT32;
    pair[1].role = PENSTOCK_ROLE_VALUES;
    payload.struct_size = sizeof payload;
    payload.sections = sections;
    payload.n_sections = 2;
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  float* grad;
  float* work;
  uint32_t* indices;
  float* values;
  penstock_tensor residual{};
  const penstock_tensor* states = &residual;
  penstock_item item{};
  penstock_section pair[2]{};
  penstock_section* sections[2] = {&pair[0], &pair[1]};
  penstock_payload payload{};
};

// All arrays of a few ranks after each call of a step, one after the other.
struct Seen {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<uint32_t>> indices;
  bool operator==(const Seen& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() &&
             (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    };
    return indices == other.indices &&
           std::equal(floats.begin(), floats.end(), other.floats.begin(), other.floats.end(), same);
  }
};

struct Case {
  uint64_t n;
  uint64_t ranks;
  bool folds;
};

Seen step(bool on_device, const Case& of) {
  const LoadedPlugin topk = simulated_plugin("compressor-topk-simulated.so");
  const LoadedPlugin residual = simulated_plugin("memory-residual-simulated.so");
  const test::CompressorInstance compressor(topk, {{"density", 0.05}});
  const test::MemoryInstance memory(residual, {{"beta", 0.75}, {"gamma", 1.5}});
  const uint64_t k = std::min<uint64_t>(of.n, uint64_t(std::ceil(0.05 * double(of.n))));
  Place place(on_device);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 8;
  step.world = uint32_t(of.ranks);
  std::deque<Sender> senders;
  Seen seen;
  for (uint64_t r = 0; r < of.ranks; ++r) {
    Sender& sender = senders.emplace_back(place, of.n, k, r);
    penstock_item* item = &sender.item;
    penstock_payload* payload = &sender.payload;
    if (of.folds) {
      penstock_fold fold{};
      fold.struct_size = sizeof fold;
      fold.form = PENSTOCK_FORM_AFFINE;
      fold.beta = 0.75;
      fold.gamma = 1.5;
      const penstock_fold* folds = &fold;
      const auto* encoder = static_cast<const penstock_fold_encoder*>(
          compressor.table().extension(compressor.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
      EXPECT_EQ(take(encoder->encode(compressor.self(), &place.exec(), &step, 0, &item, 1, &payload,
                                     &folds))
                    .message,
                "");
    } else {
      EXPECT_EQ(memory.compensate(place.exec(), step, {item}, nullptr).message, "");
      EXPECT_EQ(compressor.encode(place.exec(), step, 0, {item}, {payload}).message, "");
    }
    EXPECT_EQ(payload->kind, uint32_t{PENSTOCK_PAYLOAD_SPARSE});
    EXPECT_EQ(sender.pair[0].count, k);
    seen.floats.push_back(place.get(sender.work, of.n));
    seen.floats.push_back(place.get(sender.values, k));
    seen.indices.push_back(place.get(sender.indices, k));
  }
  std::vector<const penstock_payload*> payloads;
  for (Sender& sender : senders) payloads.push_back(&sender.payload);
  Sender& first = senders.front();
  step.result_scale = 1.0 / double(of.ranks);
  EXPECT_EQ(compressor
                .decode(place.exec(), step, 0, {&first.item}, payloads, of.ranks,
                        PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST)
                .message,
            "");
  seen.floats.push_back(place.get(first.grad, of.n));
  EXPECT_EQ(memory.give_back(place.exec(), step, {&first.item}, {&first.payload}).message, "");
  seen.floats.push_back(place.get(first.work, of.n));
  EXPECT_EQ(memory.drain(place.exec(), {&first.item}).message, "");
  seen.floats.push_back(place.get(first.grad, of.n));
  seen.floats.push_back(place.get(first.work, of.n));
  return seen;
}

TEST_F(PluginsOnADevice, HaveTheBitsOfTheCpu) {
  for (const Case& of :
       {Case{0, 2, true}, Case{1, 1, true}, Case{31, 3, true}, Case{5000, 2, false},
        Case{5000, 4, true}, Case{70000, 2, true}, Case{90, 40, true}}) {
    EXPECT_TRUE(step(true, of) == step(false, of)) << of.n << " entries on " << of.ranks;
    for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
  }
}

TEST_F(PluginsOnADevice, LaunchNineKernelsForAStepAndThreeToGiveBackAndDrain) {
  const uint64_t before = calls(Call::kLaunch);
  (void)step(true, {5000, 1, true});
  // Eight of the selection, one sum, and give_back and drain: three.
  EXPECT_EQ(calls(Call::kLaunch) - before, 12u);
}

TEST_F(PluginsOnADevice, SayWhereTheyWork) {
  const uint64_t both = uint64_t{1} << PENSTOCK_DEVICE_CPU | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  const LoadedPlugin topk = simulated_plugin("compressor-topk-simulated.so");
  const auto devices = [&](const test::OptionSettings& settings) {
    return test::CompressorInstance(topk, settings).describe().device_types;
  };
  EXPECT_EQ(devices({}), both);
  EXPECT_EQ(devices({{"scope", "bucket"}}), uint64_t{1} << PENSTOCK_DEVICE_CPU);
  EXPECT_EQ(devices({{"value_type", "fp16"}}), uint64_t{1} << PENSTOCK_DEVICE_CPU);
  EXPECT_EQ(test::MemoryInstance(simulated_plugin("memory-residual-simulated.so"))
                .describe()
                .device_types,
            both);
}

TEST_F(PluginsOnADevice, TellTheGradientThatTheDeviceRefuses) {
  const test::CompressorInstance compressor(simulated_plugin("compressor-topk-simulated.so"));
  Place place(true);
  Sender sender(place, 100, 1, 1);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  fail_call(Call::kLaunch, 2, 719);
  const test::Outcome outcome =
      compressor.encode(place.exec(), step, 0, {&sender.item}, {&sender.payload});
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cuda:1 cannot select from gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::plugins_test
