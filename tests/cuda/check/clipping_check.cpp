// Clipping. Norms differ from the CPU only by the bound for another order of a sum. With equal
// norms, compensate gives the bits of the CPU.
#include <penstock/memory.h>
#include <kernels/cuda/clipping.hpp>
#include <kernels/norm.hpp>
#include "check.hpp"

#include <cmath>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;
constexpr double kScale = 4;
constexpr uint32_t kForms[] = {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL,
                               PENSTOCK_FORM_NESTEROV};

// reduce.hpp has the bound for two orders of a sum. The rounding to float is added.
void check_norm(const Input& input) {
  const uint64_t n = input.x.size();
  const auto terms = static_cast<double>(n);
  const double expected = kernels::sum_of_squares(input.x.data(), n, kPath) / (kScale * kScale);
  const double most =
      (0x1p-52 * (terms / 16 + terms / 4194304 + 80) + 0x1p-23) * expected + 0x1p-149;
  Array<float> x(input.x), result(1);
  Scratch scratch(square_norm_workspace_bytes(n));
  both_ways([&] { result.spoil(), scratch.spoil(); },
            [&](void* stream) {
              return square_norm(x.data(), n, kScale, result.data(), scratch.get(), stream);
            },
            [&] {
              const float got = result.host()[0];
              // A square may exceed float32. Then both results are infinite.
              REQUIRE(got == static_cast<float>(expected) || std::fabs(got - expected) <= most,
                      input.name, n, got, expected);
            });
}

// The arrays of a compensation on the device, and their copies on the CPU.
struct Compensation {
  Compensation(const std::vector<float>& grad, uint32_t form)
      : form(form),
        n(grad.size()),
        grad(grad),
        work(normal(n, 2)),
        momentum(normal(n, 3)),
        grad_there(grad),
        work_there(n),
        momentum_there(n) {}
  Fold fold_there() const {
    return fold_of(grad_there.data(), work_there.data(), momentum_there.data());
  }
  void begin() {
    work_there.put(work);
    momentum_there.put(momentum);
  }
  void require_as_clipped_by(const Clip& clip, const std::string& what) {
    std::vector<float> w = work, u = momentum;
    const Fold fold = fold_of(grad.data(), w.data(), u.data());
    kernels::compensate_clipped(fold, clip, n, kPath);
    REQUIRE(same_bits(work_there.host(), w), what, "work", form, n);
    REQUIRE(same_bits(momentum_there.host(), u), what, "momentum", form, n);
  }

  uint32_t form;
  uint64_t n;
  std::vector<float> grad, work, momentum;
  Array<float> grad_there, work_there, momentum_there;

 private:
  Fold fold_of(const float* g, float* w, float* u) const {
    const bool has_momentum = form != PENSTOCK_FORM_AFFINE;
    return {form, 0.9f, 1.5f, 1 / float{kScale}, g, w, has_momentum ? u : nullptr};
  }
};

void check_known_clip(const Input& input, uint32_t form) {
  Compensation of(input.x, form);
  for (const Clip& clip : {Clip{}, Clip{0.25f}, Clip{1, 0.1f}})
    both_ways([&] { of.begin(); },
              [&](void* s) { return compensate_clipped(of.fold_there(), clip, of.n, s); },
              [&] { of.require_as_clipped_by(clip, input.name); });
}

// The squares of integers have one sum in every order, so the norm has the bits of the CPU.
void check_clip_to_norm(uint64_t n, uint32_t form) {
  std::vector<float> whole(n);
  for (uint64_t i = 0; i < n; ++i) whole[i] = static_cast<float>(i * 7 % 31) - 15;
  Compensation of(whole, form);
  Scratch scratch(square_norm_workspace_bytes(n));
  const double norm = std::sqrt(kernels::sum_of_squares(whole.data(), n, kPath)) / kScale;
  for (const double most : {norm / 3, norm * 2 + 1})
    both_ways([&] { of.begin(), scratch.spoil(); },
              [&](void* s) {
                return compensate_clipped_to_norm(of.fold_there(), kScale, most, n, scratch.get(),
                                                  s);
              },
              [&] {
                const double square = kernels::sum_of_squares(whole.data(), n, kPath);
                of.require_as_clipped_by(Clip::to_norm(std::sqrt(square / (kScale * kScale)), most),
                                         "to a norm");
              });
}

}  // namespace

void check_clipping(const Extent& extent) {
  for (const uint64_t n : extent.sizes)
    for (const Input& input : extent.inputs(n, true)) check_norm(input);
  for (const uint64_t n : extent.few_sizes)
    for (const uint32_t form : kForms) {
      for (const Input& input : extent.inputs(n, true)) check_known_clip(input, form);
      check_clip_to_norm(n, form);
    }
}

}  // namespace penstock::kernels::cuda::check
