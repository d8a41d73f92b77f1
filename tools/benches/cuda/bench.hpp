// Shared by the parts of the benchmark: rows, and device memory that lives as long as the program.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/workspace.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::kernels::cuda::bench {

// One line of the result.
struct Row {
  std::string what;
  uint64_t bytes;                            // bytes that must be read and written, at the least
  std::function<int32_t(cudaStream_t)> run;  // queues the work, many times
  std::function<bool()> verify;              // after one run: whether the result is the CPU's
};

// Throws a message, which ends the making or the run of a row.
[[noreturn]] void fail(const std::string& what);
void require(cudaError_t error, const char* call);
#define SUCCEED(call) \
  ::penstock::kernels::cuda::bench::require(static_cast<cudaError_t>(call), #call)

// Never freed, because everything lives until the program ends.
void* allocate(uint64_t bytes);
template <typename T>
T* array(uint64_t count) {
  return static_cast<T*>(allocate(count * sizeof(T)));
}
template <typename T>
T* array(const std::vector<T>& values) {
  T* const memory = array<T>(values.size());
  SUCCEED(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}
template <typename T>
std::vector<T> fetch(const T* memory, uint64_t count) {
  std::vector<T> values(count);
  SUCCEED(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}
inline Workspace workspace(uint64_t bytes) {
  return {allocate(bytes), bytes};
}

// Normal values times a heavy tail, as in gradients.
std::vector<float> gradient(uint64_t n);

// The indices that the CPU selects.
std::vector<uint32_t> largest_on_cpu(const std::vector<float>& x, uint64_t k);

void add_baselines(std::vector<Row>& rows, const std::vector<float>& x);
void add_selection(std::vector<Row>& rows, const std::vector<float>& x);
void add_quantisation(std::vector<Row>& rows, const std::vector<float>& x);
void add_low_rank(std::vector<Row>& rows, const std::vector<float>& x);
void add_table(std::vector<Row>& rows, const std::vector<float>& x, const std::string& library);

}  // namespace penstock::kernels::cuda::bench
