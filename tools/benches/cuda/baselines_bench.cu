// Rows for comparison: plain reading, and exact top-k with CUB. The CUB of CUDA 13.0 sorts all
// entries to select. A later CUB with its own top-k would be faster.
#include "bench.hpp"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>

#include <cmath>

namespace penstock::kernels::cuda::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kSignBit = 31;  // the bits below are the magnitude and have the order of integers

unsigned blocks(uint64_t n) {
  return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

__global__ void write_magnitudes(const uint32_t* bits, uint32_t n, uint32_t* magnitudes,
                                 uint32_t* indices) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  magnitudes[i] = bits[i] & 0x7fffffffu;
  indices[i] = i;
}

__global__ void take_values(const float* x, const uint32_t* indices, uint32_t k, float* values) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < k) values[i] = x[indices[i]];
}

void add_read(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const auto n = static_cast<int>(x.size());
  auto* const sum = array<float>(1);
  size_t bytes = 0;
  SUCCEED(cub::DeviceReduce::Sum(nullptr, bytes, on_device, sum, n));
  void* const memory = allocate(bytes);
  double exact = 0, magnitudes = 0;
  for (const float value : x) exact += value, magnitudes += std::fabs(value);
  rows.push_back({"read (CUB's sum)", x.size() * sizeof(float),
                  [=](cudaStream_t stream) {
                    size_t room = bytes;
                    return static_cast<int32_t>(
                        cub::DeviceReduce::Sum(memory, room, on_device, sum, n, stream));
                  },
                  [=] {
                    // In float32, a sum adds at most thousands of terms in sequence.
                    return std::fabs(fetch(sum, 1)[0] - exact) <= 1e-3 * magnitudes;
                  }});
}

// The arrays of CUB's sort, before and after.
struct Sorted {
  uint32_t *magnitudes, *indices, *magnitudes_after, *indices_after;
};

void add_sorted(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const auto n = static_cast<uint32_t>(x.size()), k = n / 1000;
  const Sorted s{array<uint32_t>(n), array<uint32_t>(n), array<uint32_t>(n), array<uint32_t>(n)};
  auto* const indices = array<uint32_t>(k);
  auto* const values = array<float>(k);
  size_t all = 0, few = 0;
  SUCCEED(cub::DeviceRadixSort::SortPairsDescending(nullptr, all, s.magnitudes, s.magnitudes_after,
                                                    s.indices, s.indices_after, n, 0, kSignBit));
  SUCCEED(cub::DeviceRadixSort::SortKeys(nullptr, few, s.indices_after, indices, k));
  const Workspace of_all = workspace(all), of_few = workspace(few);
  rows.push_back({"exact top-k by CUB's sort, 0.1 %", x.size() * sizeof(float) + k * 8,
                  [=](cudaStream_t stream) {
                    const auto* const bits = reinterpret_cast<const uint32_t*>(on_device);
                    write_magnitudes<<<blocks(n), kThreads, 0, stream>>>(bits, n, s.magnitudes,
                                                                         s.indices);
                    size_t room = all;
                    cudaError_t error = cub::DeviceRadixSort::SortPairsDescending(
                        of_all.data, room, s.magnitudes, s.magnitudes_after, s.indices,
                        s.indices_after, n, 0, kSignBit, stream);
                    if (error != cudaSuccess) return static_cast<int32_t>(error);
                    room = few;
                    error = cub::DeviceRadixSort::SortKeys(of_few.data, room, s.indices_after,
                                                           indices, k, 0, 32, stream);
                    if (error != cudaSuccess) return static_cast<int32_t>(error);
                    take_values<<<blocks(k), kThreads, 0, stream>>>(on_device, indices, k, values);
                    return static_cast<int32_t>(cudaGetLastError());
                  },
                  // The sort is stable, so lower indices come first among equal magnitudes, as in
                  // our selection.
                  [=, &x] { return fetch(indices, k) == largest_on_cpu(x, k); }});
}

}  // namespace

void add_baselines(std::vector<Row>& rows, const std::vector<float>& x) {
  const float* const on_device = array(x);
  add_read(rows, x, on_device);
  add_sorted(rows, x, on_device);
}

}  // namespace penstock::kernels::cuda::bench
