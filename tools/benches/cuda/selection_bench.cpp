// Rows of selection and sums. Rows select without taking entries out of `work`, because the next
// round needs these entries. A fold with beta 0 keeps `work` equal in every round.
#include <penstock/memory.h>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/rows.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/norm.hpp>
#include <kernels/rows.hpp>
#include <kernels/scatter.hpp>
#include <kernels/select.hpp>
#include "bench.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

namespace penstock::kernels::cuda::bench {

std::vector<uint32_t> largest_on_cpu(const std::vector<float>& x, uint64_t k) {
  const uint64_t bytes = select_scratch_bytes(x.size(), k);
  std::vector<char> memory(bytes + 64);
  void* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::vector<uint32_t> indices(k);
  kernels::select_largest(x.data(), x.size(), k, indices.data(), nullptr, {aligned, bytes},
                          select_code_path(""));
  return indices;
}

namespace {

void add_largest(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device,
                 double density, const char* name) {
  const uint64_t n = x.size(), k = static_cast<uint64_t>(static_cast<double>(n) * density);
  auto* const indices = array<uint32_t>(k);
  auto* const values = array<float>(k);
  const Workspace work = workspace(select_workspace_bytes(n, k));
  rows.push_back(
      {std::string("exact top-k, ") + name, n * 4 + k * 8,
       [=](cudaStream_t s) { return select_largest(on_device, n, k, indices, values, work, s); },
       [=, &x] { return fetch(indices, k) == largest_on_cpu(x, k); }});
}

// A bucket of small gradients, where most of the cost is launches: in one call, and in one call per
// gradient.
void add_bucket(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  constexpr uint64_t kArrays = 20, kNumel = 16 * 1024, kChosen = kNumel / 100;
  if (x.size() < kArrays * kNumel) return;
  auto* const indices = array<uint32_t>(kArrays * kChosen);
  auto* const values = array<float>(kArrays * kChosen);
  const Workspace work = workspace(kArrays * select_workspace_bytes(kNumel, kChosen));
  std::vector<SelectRequest> requests;
  for (uint64_t i = 0; i < kArrays; ++i)
    requests.push_back(
        {on_device + i * kNumel, kNumel, kChosen, indices + i * kChosen, values + i * kChosen});
  const auto verify = [=, &x] {
    const std::vector<uint32_t> found = fetch(indices, kArrays * kChosen);
    for (uint64_t i = 0; i < kArrays; ++i) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(i * kNumel);
      const std::vector<uint32_t> expected = largest_on_cpu({begin, begin + kNumel}, kChosen);
      if (!std::equal(expected.begin(), expected.end(), found.data() + i * kChosen)) return false;
    }
    return true;
  };
  const uint64_t bytes = kArrays * (kNumel * 4 + kChosen * 8);
  rows.push_back({"exact top-k of 20 arrays of 16384, at once, 1 %", bytes,
                  [=](cudaStream_t s) { return select(requests, work, s); }, verify});
  rows.push_back({"the same, one by one", bytes,
                  [=](cudaStream_t s) {
                    for (const SelectRequest& request : requests)
                      if (const int32_t error = select({&request, 1}, work, s); error != 0)
                        return error;
                    return int32_t{0};
                  },
                  verify});
}

// With beta 0 and gamma 1 `work` becomes the gradient, for any earlier values. The bytes are as
// with any memory.
void add_folded(std::vector<Row>& rows, const std::vector<float>& x, const float* grad,
                bool momentum) {
  const uint64_t n = x.size(), k = n / 100;
  auto* const indices = array<uint32_t>(k);
  auto* const values = array<float>(k);
  auto* const target = array(std::vector<float>(n, 0.0f));
  auto* const u = momentum ? array(std::vector<float>(n, 0.0f)) : nullptr;
  const Workspace work = workspace(select_workspace_bytes(n, k));
  const Fold fold{momentum ? uint32_t{PENSTOCK_FORM_HEAVY_BALL} : uint32_t{PENSTOCK_FORM_AFFINE},
                  0.0f,
                  1.0f,
                  1.0f,
                  grad,
                  target,
                  u};
  rows.push_back({momentum ? "momentum, residual and exact top-k in one pass, 1 %"
                           : "residual and exact top-k in one pass, taken out, 1 %",
                  n * (momentum ? 20 : 12) + k * 8,
                  [=](cudaStream_t s) {
                    if (momentum)  // otherwise work would grow; clearing does not count as bytes
                      return select_largest(target, n, k, indices, values, work, s, &fold);
                    return take_largest(target, n, k, indices, values, work, s, &fold);
                  },
                  [=, &x] { return fetch(indices, k) == largest_on_cpu(x, k); }});
}

void add_above(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const uint64_t n = x.size(), capacity = n / 50;
  const std::vector<uint32_t> largest = largest_on_cpu(x, n / 100);
  float limit = INFINITY;
  for (const uint32_t index : largest) limit = std::min(limit, std::fabs(x[index]));
  auto* const threshold = array(std::vector<float>{limit});
  auto* const indices = array<uint32_t>(capacity);
  auto* const values = array<float>(capacity);
  auto* const count = array<uint64_t>(1);
  const Workspace work = workspace(select_workspace_bytes(n, capacity));
  rows.push_back(
      {"all above a known threshold, 1 %", n * 4 + n / 100 * 8,
       [=](cudaStream_t s) {
         return select_above(on_device, n, threshold, capacity, indices, values, count, work, s);
       },
       [=] {
         // Ties at the threshold may add a few entries.
         const uint64_t found = fetch(count, 1)[0];
         return found >= largest.size() && found <= largest.size() + largest.size() / 100;
       }});
}

void add_rows_of(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const uint64_t width = 1024, n_rows = x.size() / width, k = 10;
  auto* const indices = array<uint32_t>(n_rows * k);
  auto* const values = array<float>(n_rows * k);
  rows.push_back(
      {"top-k of rows of 1024, k = 10", n_rows * (width * 4 + k * 8),
       [=](cudaStream_t s) { return select_rows(on_device, n_rows, width, k, indices, values, s); },
       [=, &x] {
         const uint64_t bytes = select_rows_scratch_bytes(width);
         const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(64, bytes),
                                                             std::free);
         std::vector<uint32_t> expected(n_rows * k);
         kernels::select_rows(x.data(), n_rows, width, k, expected.data(), nullptr,
                              {memory.get(), bytes}, select_code_path(""));
         return fetch(indices, n_rows * k) == expected;
       }});
}

void add_sums(std::vector<Row>& rows, const std::vector<float>& x, const float* on_device) {
  const uint64_t n = x.size();
  const Workspace work = workspace(reduce_workspace_bytes(n));
  auto* const squares = array<double>(1);
  rows.push_back({"sum of squares", n * 4,
                  [=](cudaStream_t s) { return sum_of_squares(on_device, n, squares, work, s); },
                  [=, &x] {
                    const double expected =
                        kernels::sum_of_squares(x.data(), n, widest_code_path());
                    return std::fabs(fetch(squares, 1)[0] - expected) <= 1e-9 * expected;
                  }});
  auto* const facts = array<Statistics>(1);
  rows.push_back({"sums of |x|, x^2 and ln |x|, largest", n * 4,
                  [=](cudaStream_t s) { return statistics(on_device, n, true, facts, work, s); },
                  [=, &x] {
                    const Statistics expected =
                        kernels::statistics(x.data(), n, {}, widest_code_path());
                    return fetch(facts, 1)[0].nonzero == expected.nonzero;
                  }});
  std::vector<float> limits;
  for (int j = 0; j < 8; ++j) limits.push_back(1.0f + static_cast<float>(j));
  auto* const thresholds = array(limits);
  auto* const counts = array<uint64_t>(limits.size());
  rows.push_back(
      {"counts of 8 thresholds", n * 4,
       [=](cudaStream_t s) { return count_above(on_device, n, thresholds, 8, counts, s); },
       [=, &x] {
         std::vector<uint64_t> expected(8);
         kernels::count_above(x.data(), n, limits, expected.data(), widest_code_path());
         return fetch(counts, 8) == expected;
       }});
}

void add_scatter(std::vector<Row>& rows, const std::vector<float>& x) {
  const uint64_t n = x.size();
  const std::vector<uint32_t> chosen = largest_on_cpu(x, n / 100);
  auto* const indices = array(chosen);
  auto* const values = array(std::vector<float>(chosen.size(), 1.0f));
  auto* const out = array(std::vector<float>(n, 0.0f));
  auto* const good = array<uint64_t>(1);
  const Workspace work = workspace(kScatterWorkspaceBytes);
  const uint64_t count = chosen.size();
  rows.push_back(
      {"add 1 % of entries at their indices", count * 16,
       [=](cudaStream_t s) { return scatter_add(indices, values, count, out, n, good, work, s); },
       [=] { return fetch(good, 1)[0] == count && fetch(out, n)[chosen[0]] == 1.0f; }});
}

}  // namespace

void add_selection(std::vector<Row>& rows, const std::vector<float>& x) {
  const float* const on_device = array(x);
  add_largest(rows, x, on_device, 0.001, "0.1 %");
  add_largest(rows, x, on_device, 0.01, "1 %");
  add_bucket(rows, x, on_device);
  add_folded(rows, x, on_device, false);
  add_folded(rows, x, on_device, true);
  add_above(rows, x, on_device);
  add_rows_of(rows, x, on_device);
  add_sums(rows, x, on_device);
  add_scatter(rows, x);
}

}  // namespace penstock::kernels::cuda::bench
