// Factors of one item on a device, with the interface of Factors for the CPU (../low_rank.hpp).
// Products are sums in an order that only devices use (kernels/cuda/low_rank.hpp), so factors are
// close to the CPU's factors but not equal in all bits; between devices bits are equal.
#pragma once

#include <kernels/cuda/factor.hpp>
#include <kernels/cuda/low_rank.hpp>
#include <methods/device/summed.hpp>
#include <methods/summed_values.hpp>

#include <algorithm>

namespace penstock::sdk::device {

class Factors {
 public:
  using Shape = kernels::low_rank::Shape;

  static uint64_t scratch_bytes(const Shape& shape, const SummedValues& values) {
    using namespace kernels::cuda::low_rank;
    return bytes_of_factors(shape, values) +
           std::max({multiply_workspace_bytes(shape),
                     factor_workspace_bytes(shape.rows, shape.rank),
                     factor_workspace_bytes(shape.cols, shape.rank)});
  }
  Factors(const Call& call, const Item& item, uint64_t rank, const SummedValues& values)
      : shape{item.rows(), item.cols(), rank},
        call_(call),
        item_(item),
        values_(values),
        factor_(call.scratch<float>(bytes_of_factors(shape, values) / sizeof(float)).data()),
        widened_(factor_ + factor_bytes(shape) / sizeof(float)),
        workspace_(workspace_of(call, bytes_of_factors(shape, values))) {}

  const Shape shape;

  // ---- Factors that are kept ----

  const float* draw(uint64_t rows, uint64_t stream_of_numbers) const {
    queue("draw a factor of", [&](void* stream) {
      return kernels::cuda::low_rank::draw_factor(factor_, rows, shape.rank,
                                                  source(stream_of_numbers), workspace_, stream);
    });
    return factor_;
  }
  const float* in_use(std::span<const float> state, kernels::RandomStream numbers) const {
    queue("take a factor of", [&](void* stream) {
      return kernels::cuda::low_rank::use_factor(state.data(), factor_, state.size() / shape.rank,
                                                 shape.rank, source(numbers), workspace_, stream);
    });
    return factor_;
  }
  void keep(std::span<const float> sum, std::span<float> state,
            kernels::RandomStream numbers) const {
    queue("keep a factor of", [&](void* stream) {
      return kernels::cuda::low_rank::keep_factor(
          sum.data(), state.data(), state.size() / shape.rank, shape.rank,
          source(of_this_step(numbers)), workspace_, stream);
    });
  }
  void orthogonalise(std::span<float> factor) const {
    queue("orthogonalise a factor of", [&](void* stream) {
      return kernels::cuda::low_rank::orthogonalise(factor.data(), factor.size() / shape.rank,
                                                    shape.rank, nullptr, workspace_, stream);
    });
  }
  void copy(std::span<const float> from, std::span<float> to) const {
    copy_bytes(call_, item_, from.data(), to.data(), to.size_bytes());
  }
  void clear(std::span<float> values) const { clear_floats(call_, item_, values); }
  uint64_t of_this_step(kernels::RandomStream numbers) const {
    return kernels::stream_of_step(numbers, call_.step->index);
  }

  // ---- Factors on the wire ----

  std::span<float> to_send(const PayloadWriter& payload, uint64_t entries) const {
    return values_.narrow() ? std::span(widened_, entries) : payload.room<float>(0);
  }
  // The kernel that rounds leaves what rounding has lost, so the bits are widened again.
  void send(std::span<float> sent, const PayloadWriter& payload) const {
    if (!values_.narrow()) return;
    const std::span<uint16_t> bits = payload.room<uint16_t>(0);
    const kernels::Fold factor{PENSTOCK_FORM_NONE, 0,       0,       0,      nullptr,
                               sent.data(),        nullptr, nullptr, nullptr};
    const kernels::cuda::NarrowRequest request{factor, bits.data(), sent.size(), true};
    queue("round a factor of", [&](void* stream) {
      return kernels::cuda::take_narrow(values_.type(), {&request, 1},
                                        values_.limit_among(call_.step->world), stream);
    });
    widen(bits.data(), sent);
  }
  std::span<const float> sum_of(const PayloadReader& payload, uint64_t entries) const {
    if (payload.absent()) return {};
    if (!values_.narrow()) return payload.section<float>(0, entries);
    const std::span<float> sum(widened_, entries);
    widen(payload.section<uint16_t>(0, entries).data(), sum);
    return sum;
  }
  bool sends_what_it_multiplies() const { return !values_.narrow(); }

  // ---- Products with work ----

  void multiply(const float* q, float* p, const kernels::Fold* fold) const {
    queue("multiply", [&](void* stream) {
      return kernels::cuda::low_rank::multiply(shape, work(), q, p, workspace_, stream, fold);
    });
  }
  void multiply_transposed(const float* p, float* q, const kernels::Fold* fold) const {
    queue("multiply", [&](void* stream) {
      return kernels::cuda::low_rank::multiply_transposed(shape, work(), p, q, workspace_, stream,
                                                          fold);
    });
  }
  void multiply_and_take_out(const float* q, float* p, const kernels::Fold* fold) const {
    multiply(q, p, fold);
    take_out(p, q);
  }
  void take_out(const float* p, const float* q) const {
    queue("take out of", [&](void* stream) {
      return kernels::cuda::low_rank::take_out(shape, work(), p, q, stream);
    });
  }
  void expand(const float* p, const float* q) const {
    queue("expand", [&](void* stream) {
      return kernels::cuda::low_rank::expand(shape, p, q, call_.result_scale(), item_.out().data(),
                                             stream);
    });
  }

 private:
  static uint64_t factor_bytes(const Shape& shape) {  // a multiple of 64
    return (std::max(shape.rows, shape.cols) * shape.rank * sizeof(float) + 63) / 64 * 64;
  }
  static uint64_t bytes_of_factors(const Shape& shape, const SummedValues& values) {
    return (values.narrow() ? 2 : 1) * factor_bytes(shape);
  }
  void widen(const uint16_t* bits, std::span<float> factor) const {
    const kernels::cuda::WidenRequest request{bits, factor.data(), factor.size()};
    queue("widen a factor of", [&](void* stream) {
      return kernels::cuda::widen_scaled(values_.type(), {&request, 1}, 1, stream);
    });
  }
  kernels::FactorSource source(uint64_t stream_of_numbers) const {
    return {call_.step->seed, item_.c().gradient, stream_of_numbers};
  }
  float* work() const { return item_.work().data(); }
  template <typename Kernels>
  void queue(std::string_view what, Kernels&& kernels) const {
    queue_on_device(call_, item_, what, kernels);
  }

  const Call& call_;
  const Item& item_;
  const SummedValues& values_;
  float* const factor_;   // room for the longer factor
  float* const widened_;  // as much room, if factors travel in 16 bits
  const kernels::cuda::Workspace workspace_;
};

}  // namespace penstock::sdk::device
