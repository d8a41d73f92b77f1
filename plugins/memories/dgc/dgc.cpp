// The memory of Deep Gradient Compression: momentum before selection, masked where entries were
// sent, and clipping of the local gradient. A gradient that is sent whole gets its momentum after
// averaging. Source: Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018.
#include <kernels/fold.hpp>
#include <kernels/norm.hpp>
#include <methods/agreed.hpp>
#include <methods/device/clipping.hpp>
#include <methods/device/masking.hpp>
#include <methods/device/sparse.hpp>
#include <methods/payload.hpp>
#include <methods/sign_values.hpp>
#include <penstock/memory.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

enum class Clipping { kNone, kNorm, kNormGlobal, kValue, kValueGlobal };

Clipping clipping_named(std::string_view name) {
  if (name == "norm") return Clipping::kNorm;
  if (name == "norm_global") return Clipping::kNormGlobal;
  if (name == "value") return Clipping::kValue;
  if (name == "value_global") return Clipping::kValueGlobal;
  return Clipping::kNone;
}

class Dgc {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("momentum", 0.9)
          .at_least(0)
          .at_most(1)
          .summary("factor of heavy-ball or Nesterov momentum; the optimizer must have none"),
      sdk::bool_option("nesterov", false).summary("Nesterov momentum"),
      sdk::bool_option("momentum_masking", true)
          .summary("forget the momentum of entries that were sent"),
      sdk::choice_option("clipping", "none",
                         {"none", "norm", "norm_global", "value", "value_global"})
          .summary("clip the local gradient before it is accumulated; global: by the root mean "
                   "square over ranks of its norm"),
      sdk::real_option("clip", 1)
          .at_least(std::numeric_limits<float>::min())
          .at_most(1e30)
          .summary("largest norm; for value the largest magnitude; for value_global in units of "
                   "the norm")};

  explicit Dgc(const sdk::Options& values)
      : momentum_(values.real("momentum")),
        nesterov_(values.boolean("nesterov")),
        masking_(values.boolean("momentum_masking")),
        clipping_(clipping_named(values.choice("clipping"))),
        clip_(values.real("clip")),
        path_(sdk::agreed_code_path("")) {}

  void describe(penstock_memory_traits& traits) const {
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void plan(const sdk::Item& item, const penstock_compressor_need& compressor,
            sdk::MemoryNeed& need) {
    need.n_scalars = global() ? 1 : 0;
    if (momentum_ > 0) need.flags = PENSTOCK_MEMORY_OWNS_MOMENTUM;
    if ((compressor.flags & PENSTOCK_NEED_LOSSLESS) != 0) {
      // The mean is equal on all ranks, and so is its momentum.
      need.states.add("momentum", item.rows(), item.cols(), PENSTOCK_STATE_REPLICATED);
      return;
    }
    need.momentum_state =
        need.states.add("momentum", item.rows(), item.cols(), PENSTOCK_STATE_MASS);
    need.work_state = need.states.add("velocity", item.rows(), item.cols(), PENSTOCK_STATE_MASS);
    need.work_is = PENSTOCK_WORK_IS_STATE;
    need.beta = momentum_;
    if (clipping_ == Clipping::kNone)  // with clipping, compensate has no published form
      need.form = nesterov_ ? PENSTOCK_FORM_NESTEROV : PENSTOCK_FORM_HEAVY_BALL;
    // squares of the item on a device; all ranks declare them, because ranks may differ in devices
    if (by_norm())
      need.states.add("squares", 1, sdk::device::square_norm_room(item.numel()),
                      PENSTOCK_STATE_SOFT, PENSTOCK_FLOAT64);
  }

  // Measures the square of the local norm. For gradients that are sent whole it is 0, because only
  // their mean is clipped.
  void measure(const sdk::Call& call, const sdk::Item& item, std::span<float> scalars) {
    if (scalars.empty()) return;
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device())
        return sdk::device::measure_square_norm(call, item, squares_of(item), scalars.data());
    scalars[0] = item.lossless() ? 0 : static_cast<float>(square_norm(call, item.grad()));
  }

  void compensate(const sdk::Call& call, const sdk::Item& item, std::span<const float> summed) {
    if (item.lossless()) return;
    const std::span<const float> grad = item.grad();
    const std::span<float> u = item.state(kMomentum);
    const std::span<float> v = item.work();
    const kernels::Fold fold{
        nesterov_ ? uint32_t{PENSTOCK_FORM_NESTEROV} : uint32_t{PENSTOCK_FORM_HEAVY_BALL},
        static_cast<float>(momentum_),
        1,
        static_cast<float>(1 / call.step->grad_scale),
        grad.data(),
        v.data(),
        u.data()};
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return compensate_on_device(call, item, fold, summed);
    if (clipping_ == Clipping::kNone) return kernels::compensate(fold, v.size(), path_);
    const double norm = clipping_ == Clipping::kNorm ? std::sqrt(square_norm(call, grad))
                                                     : global_norm(call, summed);
    kernels::compensate_clipped(fold, clip_for(norm), v.size(), path_);
  }

  // Momentum factor masking: clears the momentum of sent entries, so that it does not continue in
  // an old direction.
  void record(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& taken) {
    if (!masking_ || item.lossless()) return;
    const std::span<float> u = item.state(kMomentum);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::mask(call, item, taken, u);
    if (taken.kind() == PENSTOCK_PAYLOAD_DENSE) std::fill(u.begin(), u.end(), 0.0f);
    // Signs and their means are coded, but their indices are those of a sparse payload.
    const bool has_signs =
        taken.kind() == PENSTOCK_PAYLOAD_CODED && sdk::SignValues::are_in(taken.c());
    if (taken.kind() != PENSTOCK_PAYLOAD_SPARSE && !has_signs) return;
    const std::span<const uint32_t> indices = taken.section<uint32_t>(0);
    const uint64_t in_range = kernels::zero_at(indices.data(), indices.size(), u.data(), u.size());
    if (in_range != indices.size())
      throw taken.error("has index ", indices[in_range], ", expected one below ", u.size());
  }

  // Adds the payload to the velocity. It is called before masking, so sending has changed only the
  // velocity.
  void give_back(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    if (item.lossless()) return;
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::add_payload(call, item, payload, item.work());
    sdk::add_payload(payload, item.work());
  }

  // Clips the mean of a gradient that was sent whole, and applies momentum to it. The mean still
  // has the loss scale.
  void finish(const sdk::Call& call, const sdk::Item& item) {
    if (!item.lossless()) return;
    const std::span<float> out = item.out();
    const std::span<float> u = item.state(kMomentum);
    const auto scale = static_cast<float>(call.step->grad_scale);
    const auto unscale = static_cast<float>(1 / call.step->grad_scale);
    const auto m = static_cast<float>(momentum_);
    const kernels::Clip clip = clip_for(by_norm() ? std::sqrt(square_norm(call, out)) : 0);
    for (uint64_t i = 0; i < out.size(); ++i) {
      const float g = clip(out[i] * unscale);
      u[i] = nesterov_ ? m * (u[i] + g) : m * u[i] + g;
      out[i] = (nesterov_ ? u[i] + g : u[i]) * scale;
    }
  }

  // Only the velocity contains gradients that were never applied; the momentum ends here.
  void drain(const sdk::Call& call, const sdk::Item& item) {
    const std::span<float> u = item.state(kMomentum);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return drain_on_device(call, item);
    std::fill(u.begin(), u.end(), 0.0f);
    if (item.lossless()) return;
    const std::span<float> v = item.state(kVelocity);
    const std::span<float> out = item.out();
    for (uint64_t i = 0; i < v.size(); ++i) out[i] += v[i];
    std::fill(v.begin(), v.end(), 0.0f);
  }

 private:
  static constexpr uint64_t kMomentum = 0;  // the first of both lists of states
  static constexpr uint64_t kVelocity = 1;  // of compressed gradients

  // ---- on a device: only compressed gradients. A gradient that is sent whole has momentum that is
  // equal on all ranks, so it is not device-resident. ----

  void compensate_on_device(const sdk::Call& call, const sdk::Item& item, const kernels::Fold& fold,
                            std::span<const float> summed) const {
    if (clipping_ == Clipping::kNone) return sdk::device::compensate(call, item, fold);
    if (clipping_ == Clipping::kNorm)
      return sdk::device::compensate_clipped_to_norm(call, item, fold, clip_, squares_of(item));
    sdk::device::compensate_clipped(call, item, fold, clip_for(global_norm(call, summed)));
  }
  static std::span<double> squares_of(const sdk::Item& item) {
    return item.state<double>(item.c().n_states - 1);
  }
  static void drain_on_device(const sdk::Call& call, const sdk::Item& item) {
    const std::span<float> v = item.state(kVelocity);
    sdk::device::add(call, item, v.data(), item.out());
    sdk::device::clear(call, item, v);
    sdk::device::clear(call, item, item.state(kMomentum));
  }

  bool global() const {
    return clipping_ == Clipping::kNormGlobal || clipping_ == Clipping::kValueGlobal;
  }

  bool by_norm() const { return clipping_ == Clipping::kNorm || global(); }

  // The root mean square over ranks; 0 for clipping that needs no global norm.
  double global_norm(const sdk::Call& call, std::span<const float> summed) const {
    return global() ? std::sqrt(double{summed[0]} / call.step->world) : 0;
  }
  double square_norm(const sdk::Call& call, std::span<const float> scaled) const {
    const double scale = call.step->grad_scale;
    return kernels::sum_of_squares(scaled.data(), scaled.size(), path_) / (scale * scale);
  }

  kernels::Clip clip_for(double norm) const {
    switch (clipping_) {
      case Clipping::kNorm:
      case Clipping::kNormGlobal:
        return kernels::Clip::to_norm(norm, clip_);
      case Clipping::kValue:
        return {.bound = static_cast<float>(clip_)};
      case Clipping::kValueGlobal:
        return {.bound = static_cast<float>(clip_ * norm)};
      default:
        return {};
    }
  }

  double momentum_;
  bool nesterov_;
  bool masking_;
  Clipping clipping_;
  double clip_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_MEMORY(Dgc, "memory/dgc", "0.1.0",
                "momentum correction with masking and local clipping; keeps the values that were "
                "not sent",
                "Lin et al., Deep Gradient Compression, ICLR 2018");
