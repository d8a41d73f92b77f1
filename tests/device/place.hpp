// A place for calls of a plugin, the CPU or a simulated device, so that a test makes equal calls in
// both.
#pragma once

#include <cuda_runtime.h>

#include <penstock/plugin.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include <support/long.hpp>

#include "fixture.hpp"

namespace penstock::simulated {

using Bytes = std::vector<unsigned char>;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}
inline std::vector<float> floats_of(const Bytes& bytes) {
  return values_of<float>(bytes);
}

// Memory in one place, and the exec for calls there.
class Place {
 public:
  explicit Place(bool on_device, int device = 1) : on_device_(on_device) {
    exec_.struct_size = sizeof exec_;
    exec_.device_type = on_device ? PENSTOCK_DEVICE_CUDA : PENSTOCK_DEVICE_CPU;
    if (on_device) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      exec_.device_id = device;
      exec_.stream = new_stream();
    }
    (void)cudaSetDevice(
        0);  // outside of allocate(), and so during calls, another device is current
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

  bool is_device() const { return on_device_; }
  // The exec for calls that need at most `bytes` of scratch. Scratch of earlier calls stays valid.
  const penstock_exec& exec(uint64_t bytes = 0) {
    if (bytes > exec_.scratch_bytes) {
      exec_.scratch = allocate(bytes);
      exec_.scratch_bytes = bytes;
    }
    return exec_;
  }
  template <typename T>
  T* put(const std::vector<T>& values) {
    auto* memory = static_cast<T*>(allocate(values.size() * sizeof(T)));
    copy(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }
  template <typename T>
  void write(T* memory, const std::vector<T>& values) const {
    settle();
    copy(memory, values.data(), values.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> get(const T* memory, uint64_t n) const {
    std::vector<T> values(n);
    settle();
    copy(values.data(), memory, n * sizeof(T));
    return values;
  }

 private:
  void settle() const {
    if (on_device_) (void)cudaStreamSynchronize(static_cast<cudaStream_t>(exec_.stream));
  }
  void copy(void* target, const void* source, uint64_t bytes) const {
    if (bytes == 0) return;
    if (!on_device_) {
      std::memcpy(target, source, bytes);
      return;
    }
    EXPECT_EQ(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), cudaSuccess);
  }
  void* allocate(uint64_t bytes) {
    if (on_device_) (void)cudaSetDevice(exec_.device_id);
    void* memory = on_device_ ? device_bytes(std::max<uint64_t>(bytes, 1))
                              : std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    (void)cudaSetDevice(0);
    memory_.push_back(memory);
    return memory;
  }

  bool on_device_;
  penstock_exec exec_{};
  std::vector<void*> memory_;
};

// Larger than several blocks.
inline const int64_t kLargeSize = test::is_long() ? 70001 : 20011;

// Empty, single elements, odd sizes, around the size of a warp and of a word.
inline const int64_t kAwkwardSizes[] = {0, 1, 31, 63, 64, 65, 1000, kLargeSize};

// A third of the cases of a product of choices, always the same ones; all cases in long runs.
class Sample {
 public:
  bool takes() { return test::is_long() || random_() % 3 == 0; }

 private:
  std::mt19937 random_;
};

// n values. Equal seeds give equal values.
using Draw = std::vector<float> (*)(uint64_t n, uint64_t seed);

inline std::vector<float> drawn(uint64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random) * std::exp(normal(random));
  return values;
}

inline penstock_tensor tensor_of(void* data, uint64_t n, const penstock_exec& exec,
                                 uint32_t dtype = PENSTOCK_FLOAT32) {
  static const int64_t kNoShape = 0;
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.data = data;
  tensor.shape = &kNoShape;
  tensor.numel = n;
  tensor.dtype = dtype;
  tensor.device_type = exec.device_type;
  tensor.device_id = exec.device_id;
  return tensor;
}

}  // namespace penstock::simulated
