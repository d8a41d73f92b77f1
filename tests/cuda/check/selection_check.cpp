// Selection: the k largest, all above a threshold, with and without a fold, and the k-th magnitude.
#include <penstock/memory.h>
#include <kernels/cuda/rows.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/rows.hpp>
#include <kernels/select.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock::kernels::cuda::check {
namespace {

class HostScratch {
 public:
  explicit HostScratch(uint64_t bytes) : bytes_(bytes), memory_(bytes + 64) {}
  SelectScratch get() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return {reinterpret_cast<void*>((at + 63) / 64 * 64), bytes_};
  }

 private:
  uint64_t bytes_;
  std::vector<char> memory_;
};

// The result of a selection and the arrays after it.
struct Outcome {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  std::vector<float> work;
  uint64_t count = 0;
};

constexpr CodePath kPath = CodePath::kPortable;

Outcome largest_on_cpu(std::vector<float> x, uint64_t k) {
  HostScratch scratch(select_scratch_bytes(x.size(), k));
  Outcome result{std::vector<uint32_t>(k), std::vector<float>(k), {}, k};
  kernels::take_largest(x.data(), x.size(), k, result.indices.data(), result.values.data(),
                        scratch.get(), kPath);
  result.work = std::move(x);
  return result;
}

Outcome above_on_cpu(std::vector<float> x, float threshold, uint64_t capacity) {
  HostScratch scratch(select_scratch_bytes(x.size(), capacity));
  Outcome result{std::vector<uint32_t>(capacity), std::vector<float>(capacity), {}, 0};
  result.count = kernels::take_above(x.data(), x.size(), threshold, capacity, result.indices.data(),
                                     result.values.data(), scratch.get(), kPath);
  result.indices.resize(result.count);
  result.values.resize(result.count);
  result.work = std::move(x);
  return result;
}

void compare(const Outcome& expected, const Array<uint32_t>& indices, const Array<float>& values,
             const std::vector<float>& work, const std::string& what) {
  std::vector<uint32_t> got_indices = indices.host();
  std::vector<float> got_values = values.host();
  got_indices.resize(expected.count);
  got_values.resize(expected.count);
  REQUIRE(same_bits(got_indices, expected.indices), what);
  REQUIRE(same_bits(got_values, expected.values), what);
  REQUIRE(same_bits(work, expected.work), what);
}

void check_largest(const Input& input, uint64_t k) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, k);
  Outcome expected = largest_on_cpu(input.x, k);
  const std::vector<float> x = with_other_nans(input.x);
  Array<float> work(x), values(k);
  Array<uint32_t> indices(k);
  Scratch scratch(select_workspace_bytes(n, k));
  const auto prepare = [&] { work.put(x), values.spoil(), indices.spoil(), scratch.spoil(); };
  both_ways(
      prepare,
      [&](void* stream) {
        return take_largest(work.data(), n, k, indices.data(), values.data(), scratch.get(),
                            stream);
      },
      [&] { compare(expected, indices, values, work.host(), what); });
  expected.work = input.x;
  both_ways(
      prepare,
      [&](void* stream) {
        return select_largest(work.data(), n, k, indices.data(), values.data(), scratch.get(),
                              stream);
      },
      [&] { compare(expected, indices, values, work.host(), what); });
}

void check_above(const Input& input, float limit, uint64_t capacity) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, limit, capacity);
  const Outcome expected = above_on_cpu(input.x, limit, capacity);
  const std::vector<float> x = with_other_nans(input.x);
  Array<float> work(x), values(capacity), threshold(std::vector<float>{limit});
  Array<uint32_t> indices(capacity);
  Array<uint64_t> count(1);
  Scratch scratch(select_workspace_bytes(n, capacity));
  both_ways([&] { work.put(x), values.spoil(), indices.spoil(), count.spoil(), scratch.spoil(); },
            [&](void* stream) {
              return take_above(work.data(), n, threshold.data(), capacity, indices.data(),
                                values.data(), count.data(), scratch.get(), stream);
            },
            [&] {
              REQUIRE(count.host()[0] == expected.count, what);
              compare(expected, indices, values, work.host(), what);
            });
}

// The fold's arrays on the host and on the device.
struct FoldCase {
  Fold host;
  std::vector<float> grad, work, momentum;
};

void check_fold(const FoldCase& fold, uint64_t k, const std::string& name) {
  const uint64_t n = fold.grad.size();
  const std::string what = describe(name, n, k, fold.host.form);
  std::vector<float> compensated = fold.work, momentum = fold.momentum;
  Fold on_host = fold.host;
  on_host.grad = fold.grad.data();
  on_host.work = compensated.data();
  on_host.momentum = fold.host.form == PENSTOCK_FORM_AFFINE ? nullptr : momentum.data();
  kernels::compensate(on_host, n, kPath);
  const Outcome expected = largest_on_cpu(compensated, k);

  Array<float> work(fold.work), grad(fold.grad), u(fold.momentum), values(k);
  Array<uint32_t> indices(k);
  Scratch scratch(select_workspace_bytes(n, k));
  Fold on_device = fold.host;
  on_device.grad = grad.data();
  on_device.work = work.data();
  on_device.momentum = fold.host.form == PENSTOCK_FORM_AFFINE ? nullptr : u.data();
  const auto prepare = [&] {
    work.put(fold.work), u.put(fold.momentum), indices.spoil(), scratch.spoil();
  };
  both_ways(
      prepare,
      [&](void* stream) {
        return take_largest(work.data(), n, k, indices.data(), values.data(), scratch.get(), stream,
                            &on_device);
      },
      [&] {
        compare(expected, indices, values, work.host(), what);
        REQUIRE(same_bits(u.host(), momentum), what);
      });
  both_ways(
      prepare, [&](void* stream) { return compensate(on_device, n, stream); },
      [&] {
        REQUIRE(same_bits(work.host(), compensated), what);
        REQUIRE(same_bits(u.host(), momentum), what);
      });
}

void check_folds(uint64_t n) {
  const std::vector<float> grad = normal(n, n), work = normal(n, n + 1),
                           momentum = normal(n, n + 2);
  for (const uint32_t form :
       {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV})
    for (const uint64_t k : {uint64_t{0}, n / 100, n})
      check_fold({{form, 0.9f, 0.7f, 1.0f / 3, nullptr, nullptr, nullptr}, grad, work, momentum}, k,
                 "fold");
}

// Arrays that begin between multiples of 16 bytes, so that wide loads must not read before them.
void check_between(uint64_t n) {
  const uint64_t k = n / 100;
  const std::vector<float> grad = normal(n, n), before = normal(n, n + 1);
  for (const uint64_t off : {1, 2, 3}) {
    std::vector<float> work = before;
    const Fold on_host{PENSTOCK_FORM_AFFINE, 0.9f,   0.7f, 1.0f, grad.data() + off,
                       work.data() + off,    nullptr};
    kernels::compensate(on_host, n - off, kPath);
    const Outcome plain = largest_on_cpu({before.begin() + off, before.end()}, k);
    const Outcome folded = largest_on_cpu({work.begin() + off, work.end()}, k);
    Array<float> on_device(before), gradient(grad), values(k);
    Array<uint32_t> indices(k);
    Scratch scratch(select_workspace_bytes(n - off, k));
    Fold fold = on_host;
    fold.grad = gradient.data() + off, fold.work = on_device.data() + off;
    for (const bool folds : {false, true})
      both_ways([&] { on_device.put(before), indices.spoil(), scratch.spoil(); },
                [&](void* stream) {
                  return take_largest(on_device.data() + off, n - off, k, indices.data(),
                                      values.data(), scratch.get(), stream,
                                      folds ? &fold : nullptr);
                },
                [&] {
                  std::vector<float> left = on_device.host();
                  left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(off));
                  compare(folds ? folded : plain, indices, values, left,
                          describe("between", n, off, folds));
                });
  }
}

void check_kth(const Input& input, uint64_t stride) {
  const uint64_t n = input.x.size() / stride;
  if (n == 0) return;
  for (const uint64_t k : {uint64_t{1}, (n + 1) / 2, n}) {
    std::vector<uint32_t> keys(n);
    HostScratch host(kSelectFixedBytes);
    const float expected =
        kernels::kth_magnitude(input.x.data(), n, stride, k, keys.data(), host.get());
    Array<float> x(with_other_nans(input.x)), magnitude(1);
    Scratch scratch(select_workspace_bytes(n, k));
    both_ways([&] { magnitude.spoil(), scratch.spoil(); },
              [&](void* stream) {
                return kth_magnitude(x.data(), n, stride, k, magnitude.data(), scratch.get(),
                                     stream);
              },
              [&] { REQUIRE(same_bits(magnitude.host(), {expected}), input.name, n, stride, k); });
  }
}

void check_rows_of(const Input& input, uint64_t rows, uint64_t width, uint64_t k) {
  const std::string what = describe(input.name, rows, width, k);
  HostScratch host(select_rows_scratch_bytes(width));
  std::vector<uint32_t> expected(rows * k);
  std::vector<float> expected_values(rows * k);
  kernels::select_rows(input.x.data(), rows, width, k, expected.data(), expected_values.data(),
                       host.get(), kPath);
  Array<float> x(with_other_nans(input.x)), values(rows * k);
  Array<uint32_t> indices(rows * k);
  both_ways([&] { values.spoil(), indices.spoil(); },
            [&](void* stream) {
              return select_rows(x.data(), rows, width, k, indices.data(), values.data(), stream);
            },
            [&] {
              REQUIRE(same_bits(indices.host(), expected), what);
              REQUIRE(same_bits(values.host(), expected_values), what);
            });
}

// Columns of matrices. On the CPU they are rows of the transposed matrix, with sorted positions.
void check_lanes_of(const Input& input, const Lanes& shape, uint64_t k) {
  const uint64_t rows = shape.blocks * shape.lanes;
  const std::string what = describe(input.name, shape.blocks, shape.length, shape.lanes, k);
  std::vector<float> turned(rows * shape.length);
  std::vector<uint32_t> from(turned.size()), expected(rows * k);
  for (uint64_t i = 0; i < turned.size(); ++i) {
    const uint64_t block = i / (shape.length * shape.lanes),
                   in_block = i % (shape.length * shape.lanes);
    const uint64_t row = block * shape.lanes + in_block % shape.lanes;
    const uint64_t at = row * shape.length + in_block / shape.lanes;
    turned[at] = input.x[i];
    from[at] = static_cast<uint32_t>(i);
  }
  HostScratch host(select_rows_scratch_bytes(shape.length));
  kernels::select_rows(turned.data(), rows, shape.length, k, expected.data(), nullptr, host.get(),
                       kPath);
  for (uint32_t& position : expected) position = from[position];
  std::sort(expected.begin(), expected.end());
  Array<float> x(with_other_nans(input.x));
  Array<uint32_t> indices(rows * k);
  Scratch scratch(select_lanes_workspace_bytes(shape, k));
  both_ways([&] { indices.spoil(), scratch.spoil(); },
            [&](void* stream) {
              return select_lanes(x.data(), shape, k, indices.data(), scratch.get(), stream);
            },
            [&] { REQUIRE(same_bits(indices.host(), expected), what); });
}

}  // namespace

void check_selection(const Extent& extent) {
  for (const uint64_t n : extent.sizes) {
    const std::set<uint64_t> ks{0,     std::min<uint64_t>(1, n),     n / 1000, n / 100,
                                n / 2, n - std::min<uint64_t>(1, n), n};
    for (const Input& input : extent.inputs(n, false)) {
      for (const uint64_t k : ks) check_largest(input, k);
      for (const float limit : {0.0f, 0.5f, 3.0f, std::nanf("")})
        for (const uint64_t capacity : {uint64_t{0}, n / 100, n})
          check_above(input, limit, capacity);
      check_kth(input, 1);
      check_kth(input, 7);
    }
    check_folds(n);
    if (n > 3) check_between(n);
  }
}

void check_rows(const Extent& extent) {
  for (const uint64_t n : extent.few_sizes)
    for (const Input& input : extent.inputs(n, false))
      for (const uint64_t width : {1, 3, 64, 1000, 1025, 5000, 8193})
        for (const uint64_t k : std::set<uint64_t>{0, 1, width / 10, width})
          check_rows_of(input, std::min(n / width, extent.most_rows), width, k);
  for (const uint64_t n : extent.few_sizes)
    for (const Input& input : extent.inputs(n, false))
      for (const uint64_t length : {1, 100, 1500})
        for (const uint64_t lanes : {1, 5, 33})
          for (const uint64_t k : std::set<uint64_t>{0, 1, length / 10, length})
            check_lanes_of(input, {std::min<uint64_t>(n / (length * lanes), 3), length, lanes}, k);
}

}  // namespace penstock::kernels::cuda::check
