// What the parts of the check share: arrays on the device, inputs of many kinds, and running a call
// twice, at once and as a captured graph.
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

// "name n k ..." of whatever was being checked.
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

// Device memory with a guard behind it, which must be as it was when the array goes. Filled with a
// pattern until something is put in.
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

// A workspace of exactly the bytes asked for.
class Scratch {
 public:
  explicit Scratch(uint64_t bytes) : bytes_(bytes), memory_(bytes) {}
  Workspace get() const { return {memory_.data(), bytes_}; }
  void spoil() { memory_.spoil(); }

 private:
  uint64_t bytes_;
  Bytes memory_;
};

// prepare(), queue(stream), verify(); then the same with what was queued captured as a graph,
// twice, so that nothing may rest on what the run before left behind.
void both_ways(const std::function<void()>& prepare, const std::function<int32_t(void*)>& queue,
               const std::function<void()>& verify);

struct Input {
  std::string name;
  std::vector<float> x;
};
// Normal values.
std::vector<float> normal(uint64_t n, uint64_t seed);

// How far the check goes.
struct Extent {
  std::vector<uint64_t> sizes;      // for everything
  std::vector<uint64_t> few_sizes;  // for what has many variants
  uint64_t all_kinds_up_to;         // larger sizes come with a few kinds of input only
  uint64_t most_rows;               // of a matrix

  // Normal, Laplace, Student t with 3 degrees of freedom, constant, zeros of both signs, sparse,
  // one spike, ascending, alternating, few values, subnormal; and, where `finite` is false, one
  // with NaN and infinities.
  std::vector<Input> inputs(uint64_t n, bool finite) const;
};

// The parts. The first difference ends a part, and no other.
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
