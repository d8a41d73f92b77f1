// DeMo: the gradient's blocks of 64 x 64 go through a discrete cosine transform, the largest
// coefficients of each block are sent, and the result is the sign of the mean.
// Source: Peng, Chen, Su, Quesnelle, Kingma, Liu, "DeMo: Decoupled Momentum Optimization",
// arXiv:2411.19870, 2024. See README.md for where this differs and why.
#include "dct.hpp"

#include <methods/block_compressor.hpp>

namespace sdk = penstock::sdk;

namespace {

// Over the ranks i of which a coefficient was sent:
//   out = sign(inverse DCT of (the mean of the coefficient over i));  work_i -= inverse DCT of the
//   sent
class Demo : public sdk::BlockCompressor<Demo> {
 public:
  static inline const sdk::OptionList options{
      k_option(32), value_type_option("fp32"),
      sdk::bool_option("sign", true)
          .summary("the result is the sign of the mean, 1 or -1, or 0; otherwise the mean itself")};

  explicit Demo(const sdk::Options& values)
      : BlockCompressor(values, kOverSenders), sign_(values.boolean("sign")) {}

  void forward(const sdk::Block& block, float* numbers) const { dct_.forward(block, numbers); }
  void backward(const sdk::Block& block, float* numbers) const { dct_.inverse(block, numbers); }

  // Signs are ones in true units, so the effect of a learning rate does not depend on the loss
  // scale.
  void finish(float unit, std::span<float> mean) const {
    if (!sign_) return;
    // The transform of huge elements overflows. NaN stays, so that a loss scaler sees it.
    for (float& value : mean) value = value > 0 ? unit : value < 0 ? -unit : value == 0 ? 0 : value;
  }

 private:
  bool sign_;
  demo::Dct dct_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Demo, "compressor/demo", "0.1.0",
                    "sends the largest cosine coefficients of every block; the result is a sign",
                    "Peng et al., DeMo: Decoupled Momentum Optimization, arXiv:2411.19870, 2024");
