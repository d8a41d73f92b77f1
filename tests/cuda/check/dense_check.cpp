// Dense values: sent uncompressed or rounded to 16 bits, and received.
#include <penstock/memory.h>
#include <kernels/convert.hpp>
#include <kernels/cuda/dense.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/narrow_values.hpp>
#include "check.hpp"

#include <algorithm>
#include <memory>

namespace penstock::kernels::cuda::check {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

// A type of 16 bits and the CPU's conversions.
struct Cast {
  const char* name;
  ValueType type;
  Half half;
  void (*narrow)(const float*, uint16_t*, uint64_t) noexcept;
  void (*widen)(const uint16_t*, float*, uint64_t) noexcept;
  float largest;
};
constexpr Cast kCasts[] = {
    {"half", ValueType::kFloat16, Half::kFloat16, kernels::floats_to_halves,
     kernels::halves_to_floats, 65504.0f},
    {"bfloat16", ValueType::kBfloat16, Half::kBfloat16, kernels::floats_to_bfloat16s,
     kernels::bfloat16s_to_floats, 0x1.fep127f}};

Fold as_it_is(float* work) {
  return {PENSTOCK_FORM_NONE, 0, 0, 0, nullptr, work, nullptr};
}

// Several arrays at once, of any sizes, more than a launch takes. Each has another form of
// compensate or none, and every sixth array keeps nothing.
void check_many_casts(const Cast& cast) {
  constexpr uint64_t kArrays = 130;
  constexpr float kLimit = 2;
  struct One {
    uint32_t form;
    bool keeps;
    Floats before, gradient, velocity, left, u, widened;
    Halves bits;
    Array<float> work, grad, momentum, out;
    Array<uint16_t> sent;
  };
  std::vector<std::unique_ptr<One>> all;
  std::vector<NarrowRequest> narrow;
  std::vector<WidenRequest> widen;
  for (uint64_t a = 0; a < kArrays; ++a) {
    const uint64_t n = a % 7 == 0 ? a / 7 : 97 * a % 5000;
    all.emplace_back(new One{static_cast<uint32_t>(a % 4),
                             a % 6 != 0,
                             normal(n, a),
                             normal(n, a + 1),
                             normal(n, a + 2),
                             {},
                             {},
                             Floats(n),
                             Halves(n),
                             Array<float>(n),
                             Array<float>(n),
                             Array<float>(n),
                             Array<float>(n),
                             Array<uint16_t>(n)});
    One& one = *all.back();
    if (!one.keeps) one.form = PENSTOCK_FORM_NONE;
    const bool has_momentum = one.form > PENSTOCK_FORM_AFFINE;
    const auto fold = [&](const float* g, float* w, float* u) {
      return Fold{one.form, 0.9f, 0.7f, 1.0f / 3, g, w, has_momentum ? u : nullptr};
    };
    one.left = one.before, one.u = one.velocity;
    if (one.form != PENSTOCK_FORM_NONE)
      kernels::compensate(fold(one.gradient.data(), one.left.data(), one.u.data()), n,
                          CodePath::kPortable);
    Floats within = one.left;
    if (one.keeps)
      for (float& x : within) x = std::clamp(x, -kLimit, kLimit);
    cast.narrow(within.data(), one.bits.data(), n);
    cast.widen(one.bits.data(), one.widened.data(), n);
    if (one.keeps)
      for (uint64_t i = 0; i < n; ++i) one.left[i] -= one.widened[i];
    narrow.push_back({fold(one.grad.data(), one.work.data(), one.momentum.data()), one.sent.data(),
                      n, one.keeps});
    widen.push_back({one.sent.data(), one.out.data(), n});
  }
  both_ways(
      [&] {
        for (const auto& one : all) {
          one->work.put(one->before), one->grad.put(one->gradient);
          one->momentum.put(one->velocity), one->sent.spoil(), one->out.spoil();
        }
      },
      [&](void* s) {
        const int32_t error = take_narrow(cast.type, narrow, kLimit, s);
        return error != 0 ? error : widen_scaled(cast.type, widen, 1, s);
      },
      [&] {
        for (uint64_t a = 0; a < kArrays; ++a) {
          const One& one = *all[a];
          REQUIRE(one.sent.host() == one.bits, cast.name, a);
          REQUIRE(same_bits(one.work.host(), one.left), cast.name, a);
          REQUIRE(same_bits(one.momentum.host(), one.u), cast.name, a);
          REQUIRE(same_bits(one.out.host(), one.widened), cast.name, a);
        }
      });
}

void check_cast(const Input& input, const Cast& cast, float limit) {
  const uint64_t n = input.x.size();
  const std::string what = describe(cast.name, input.name, n, limit);
  Floats within = input.x, left = input.x, widened(n);
  Halves bits(n);
  for (float& x : within) x = std::clamp(x, -limit, limit);
  cast.narrow(within.data(), bits.data(), n);
  cast.widen(bits.data(), widened.data(), n);
  for (uint64_t i = 0; i < n; ++i) left[i] -= widened[i];
  Array<float> work(n), out(n);
  Array<uint16_t> sent(n);
  for (const float scale : {1.0f, 1.0f / 3}) {
    Floats expected = widened;
    for (float& x : expected) x *= scale;
    both_ways([&] { work.put(with_other_nans(input.x)), sent.spoil(), out.spoil(); },
              [&](void* s) {
                const NarrowRequest narrow{as_it_is(work.data()), sent.data(), n, true};
                const int32_t error = take_narrow(cast.type, {&narrow, 1}, limit, s);
                if (error != 0) return error;
                const WidenRequest widen{sent.data(), out.data(), n};
                return widen_scaled(cast.type, {&widen, 1}, scale, s);
              },
              [&] {
                REQUIRE(same_bits(sent.host(), bits, cast.half), what);
                REQUIRE(same_bits(work.host(), left), what);
                REQUIRE(same_bits(out.host(), expected), what);
              });
  }
}

void check_sending(uint64_t n, uint32_t form, dense::Left left) {
  const bool folds = form != PENSTOCK_FORM_NONE;
  const bool has_momentum = folds && form != PENSTOCK_FORM_AFFINE;
  const Floats before = normal(n, 1), gradient = normal(n, 2), velocity = normal(n, 3);
  Floats whole = before, u = velocity;
  if (folds)
    kernels::compensate({form, 0.9f, 0.7f, 1.0f / 3, gradient.data(), whole.data(),
                         has_momentum ? u.data() : nullptr},
                        n, CodePath::kPortable);
  const Floats rest = left == dense::Left::kNothing ? Floats(n) : whole;
  Array<float> work(before), grad(gradient), momentum(velocity), sent(n);
  const Fold fold{form,
                  0.9f,
                  0.7f,
                  1.0f / 3,
                  grad.data(),
                  work.data(),
                  has_momentum ? momentum.data() : nullptr};
  both_ways([&] { work.put(before), momentum.put(velocity), sent.spoil(); },
            [&](void* s) {
              return dense::send_all(work.data(), sent.data(), n, left, s, folds ? &fold : nullptr);
            },
            [&] {
              REQUIRE(same_bits(sent.host(), whole), "sent", n, form);
              REQUIRE(same_bits(work.host(), rest), "left", n, form);
              REQUIRE(same_bits(momentum.host(), u), "momentum", n, form);
            });
}

void check_moving(uint64_t n) {
  const Floats source = normal(n, 4);
  Floats scaled = source;
  for (float& x : scaled) x *= 1.0f / 3;
  const Array<float> from(source);
  Array<float> copied(n), times(n), cleared(n);
  both_ways([&] { copied.spoil(), times.spoil(), cleared.spoil(); },
            [&](void* s) {
              const uint64_t bytes = n * sizeof(float);
              int32_t error = dense::copy(from.data(), copied.data(), bytes, s);
              if (error == 0) error = dense::clear(cleared.data(), bytes, s);
              if (error != 0) return error;
              return dense::copy_scaled(from.data(), times.data(), n, 1.0f / 3, s);
            },
            [&] {
              REQUIRE(same_bits(copied.host(), source), "copied", n);
              REQUIRE(same_bits(cleared.host(), Floats(n)), "cleared", n);
              REQUIRE(same_bits(times.host(), scaled), "scaled", n);
            });
}

void refuse_dense() {
  Array<float> x(8), y(8);
  Array<uint16_t> bits(8);
  for (const ValueType type : {ValueType::kFloat32, ValueType::kInt8}) {
    const NarrowRequest narrow{as_it_is(x.data()), bits.data(), 8, true};
    REQUIRE(take_narrow(type, {&narrow, 1}, 1, nullptr) == cudaErrorInvalidValue,
            "a type of other than 16 bits");
    const WidenRequest widen{bits.data(), x.data(), 8};
    REQUIRE(widen_scaled(type, {&widen, 1}, 1, nullptr) == cudaErrorInvalidValue,
            "a type of other than 16 bits");
  }
  const Fold elsewhere{PENSTOCK_FORM_AFFINE, 1, 1, 1, x.data(), y.data(), nullptr};
  REQUIRE(dense::send_all(x.data(), y.data(), 8, dense::Left::kAll, nullptr, &elsewhere) ==
              cudaErrorInvalidValue,
          "a fold of another array");
  REQUIRE(dense::copy(nullptr, x.data(), 8, nullptr) == cudaErrorInvalidValue, "no source");
}

}  // namespace

void check_dense(const Extent& extent) {
  refuse_dense();
  for (const Cast& cast : kCasts) check_many_casts(cast);
  for (const uint64_t n : extent.sizes) {
    for (const Input& input : extent.inputs(n, false))
      for (const Cast& cast : kCasts)
        for (const float limit : {cast.largest, 1.0f}) check_cast(input, cast, limit);
    check_moving(n);
    for (const uint32_t form : {PENSTOCK_FORM_NONE, PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL,
                                PENSTOCK_FORM_NESTEROV})
      for (const dense::Left left : {dense::Left::kAll, dense::Left::kNothing})
        check_sending(n, form, left);
  }
}

}  // namespace penstock::kernels::cuda::check
