// Shared by the parts of the check: arrays on the device, inputs of many kinds, and a function that
// runs a call directly and twice as a captured graph.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/workspace.hpp>
#include "same_bits.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace penstock::kernels::cuda::check {

[[noreturn]] void fail(const char* file, int line, const std::string& what);

#define REQUIRE(condition, ...)                                         \
  do {                                                                  \
    if (!(condition))                                                   \
      ::penstock::kernels::cuda::check::fail(                           \
          __FILE__, __LINE__,                                           \
          std::string(#condition) + ", " +                              \
              ::penstock::kernels::cuda::check::describe(__VA_ARGS__)); \
  } while (0)

// "name n k ...", a description of the checked case.
inline std::string describe() {
  return {};
}
template <typename First, typename... Rest>
std::string describe(const First& first, const Rest&... rest) {
  std::string text;
  if constexpr (std::is_convertible_v<First, std::string>)
    text = first;
  else
    text = std::to_string(first);
  return text + " " + describe(rest...);
}

void require(cudaError_t error, const char* call, const char* file, int line);
#define SUCCEED(call)                                                                        \
  ::penstock::kernels::cuda::check::require(static_cast<cudaError_t>(call), #call, __FILE__, \
                                            __LINE__)

// Device memory with a guard behind it. The guard must be unchanged at the destruction. The memory
// contains a pattern until values are written.
class Bytes {
 public:
  explicit Bytes(uint64_t bytes);
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes();
  void* data() const { return data_; }
  void spoil();
  void put(const void* from);
  void get(void* to) const;

 private:
  uint64_t bytes_;
  void* data_ = nullptr;
};

template <typename T>
class Array {
 public:
  explicit Array(uint64_t count) : count_(count), bytes_(count * sizeof(T)) {}
  explicit Array(const std::vector<T>& values) : Array(values.size()) { put(values); }
  T* data() const { return static_cast<T*>(bytes_.data()); }
  uint64_t size() const { return count_; }
  void spoil() { bytes_.spoil(); }
  void put(const std::vector<T>& values) { bytes_.put(values.data()); }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    bytes_.get(values.data());
    return values;
  }

 private:
  uint64_t count_;
  Bytes bytes_;
};

// A workspace of exactly the requested size.
class Scratch {
 public:
  explicit Scratch(uint64_t bytes) : bytes_(bytes), memory_(bytes) {}
  Workspace get() const { return {memory_.data(), bytes_}; }
  void spoil() { memory_.spoil(); }

 private:
  uint64_t bytes_;
  Bytes memory_;
};

// Runs prepare(), queue(stream), verify(). Then it captures the queued work as a graph and runs the
// graph twice, so that a run must not depend on values of the run before.
void both_ways(const std::function<void()>& prepare, const std::function<int32_t(void*)>& queue,
               const std::function<void()>& verify);

struct Input {
  std::string name;
  std::vector<float> x;
};
// Normal values.
std::vector<float> normal(uint64_t n, uint64_t seed);

// The extent of the check.
struct Extent {
  std::vector<uint64_t> sizes;      // for everything
  std::vector<uint64_t> few_sizes;  // for parts with many variants
  uint64_t all_kinds_from;          // sizes from this one to the next have every kind of input
  uint64_t all_kinds_up_to;         // other sizes have only a few kinds
  uint64_t most_rows;               // most rows of a matrix

  // Normal, Laplace, Student t with 3 degrees of freedom, constant, zeros of both signs, sparse,
  // one spike, ascending, alternating, few values, subnormal. If `finite` is false, also inputs
  // with NaN and infinities.
  std::vector<Input> inputs(uint64_t n, bool finite) const;
};

// The parts. A part ends at its first difference, and the next part still runs.
void check_selection(const Extent& extent);
void check_rows(const Extent& extent);
void check_pairs(const Extent& extent);
void check_many_together(const Extent& extent);
void check_thresholds(const Extent& extent);
void check_steered(const Extent& extent);
void check_one_sign(const Extent& extent);
void check_sums(const Extent& extent);
void check_signs(const Extent& extent);
void check_stochastic(const Extent& extent);
void check_codes(const Extent& extent);
void check_values(const Extent& extent);
void check_masking(const Extent& extent);
void check_clipping(const Extent& extent);
void check_low_rank(const Extent& extent);
void check_orthogonalise(const Extent& extent);
void check_factors(const Extent& extent);
void check_dense(const Extent& extent);
void check_refusals();

}  // namespace penstock::kernels::cuda::check
