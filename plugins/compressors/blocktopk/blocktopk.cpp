// Block top-k: sends the largest elements of every block of 64 x 64, with values of 32, 16 or about
// 2 bits. It is the compressor of SparseLoCo. Source: Sarfi, Thérien, Lidin, Belilovsky,
// "Communication Efficient LLM Pre-training with SparseLoCo", arXiv:2508.15706, 2025. See README.md
// for where this differs and why.
#include <methods/block_compressor.hpp>

namespace sdk = penstock::sdk;

namespace {

class BlockTopK : public sdk::BlockCompressor<BlockTopK> {
 public:
  static inline const sdk::OptionList options{
      k_option(64), value_type_option("fp16"),
      sdk::choice_option("mean", "ranks", {"ranks", "senders"})
          .summary("ranks: the mean over all ranks; senders: the mean of an element is over the "
                   "ranks that sent it")};

  explicit BlockTopK(const sdk::Options& values)
      : BlockCompressor(values, values.choice("mean") == "ranks" ? kOverRanks : kOverSenders) {}
};

}  // namespace

PENSTOCK_COMPRESSOR(BlockTopK, "compressor/blocktopk", "0.1.0",
                    "sends the largest elements of every block of 64 x 64",
                    "Sarfi et al., Communication Efficient LLM Pre-training with SparseLoCo, "
                    "arXiv:2508.15706, 2025");
