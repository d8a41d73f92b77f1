// Sign-SGD with majority vote: each rank sends one bit per element, the update is the sign on which
// most ranks agree.
// Source: Bernstein, Zhao, Azizzadenesheli, Anandkumar, "signSGD with Majority Vote is
// Communication Efficient and Fault Tolerant", ICLR 2019. See README.md for where this differs and
// why.
#include <penstock/compressor.hpp>

#include <kernels/sign.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class SignSgd {
 public:
  static inline const sdk::OptionList options{};
  explicit SignSgd(const sdk::Options&) : path_(kernels::code_path_named(sdk::code_path("sign"))) {}

  // Signs of single ranks cannot be added on the way, so payloads are gathered; the vote needs all
  // of them at once, and its result is no sum to be divided.
  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    if (call.world > kernels::kMaxVoters)
      throw sdk::invalid_argument("gradient '", item.name(), "' would be voted on by ", call.world,
                                  " ranks, signsgd counts at most ", kernels::kMaxVoters,
                                  "; vote on one leg of a route with fewer ranks");
    const uint64_t words = kernels::sign_words(item.numel());
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, kernels::sign_zero_capacity(item.numel()),
                 false)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words, false)
        .result_is_final()
        .all_payloads();
    need.part_alignment = 64;  // whole words
    need.scratch_bytes = call.world * sizeof(kernels::Signs);
  }

  // Zeros are listed while that is shorter than a second plane of bits.
  void encode(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint64_t> negative = payload.room<uint64_t>(kNegative);
    const std::span<uint32_t> zeros = payload.room<uint32_t>(kZeros);
    const uint64_t n_zeros = kernels::pack_signs(work.data(), work.size(), negative.data(),
                                                 zeros.data(), zeros.size(), path_);
    const bool listed = n_zeros <= zeros.size();
    if (!listed)
      kernels::pack_nonzero(work.data(), work.size(), payload.room<uint64_t>(kNonzero).data());
    if (item.keeps()) kernels::take_out_signs(work.data(), work.size());
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kNegative, negative.size());
    payload.count(kZeros, listed ? n_zeros : 0);
    payload.count(kNonzero, listed ? 0 : negative.size());
  }

  // Absent ranks do not vote. With DECODE_OWN the one voter is this rank: its signs.
  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    const std::span<kernels::Signs> voters = call.scratch<kernels::Signs>(payloads.n_ranks());
    for (uint64_t i = 0; i < items.size(); ++i) {
      uint64_t n_voters = 0;
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        const sdk::PayloadReader payload = payloads.at(i, r);
        if (!payload.absent()) voters[n_voters++] = checked(payload, items[i].numel());
      }
      const std::span<float> out = items[i].out();
      kernels::majority_vote(voters.data(), n_voters, out.size(), out.data());
    }
  }

 private:
  enum Section : uint64_t { kNegative = 0, kZeros = 1, kNonzero = 2 };

  static kernels::Signs checked(const sdk::PayloadReader& payload, uint64_t numel) {
    const auto negative = payload.section<uint64_t>(kNegative, kernels::sign_words(numel));
    const auto zeros = payload.section<uint32_t>(kZeros);
    const auto nonzero = payload.section<uint64_t>(kNonzero);
    if (!nonzero.empty() && nonzero.size() != negative.size())
      throw payload.error("has ", nonzero.size(), " words of nonzero bits, expected none or ",
                          negative.size());
    if (!nonzero.empty() && !zeros.empty())
      throw payload.error("gives its zeros both as a list of ", zeros.size(), " and as bits");
    for (uint64_t e = 0; e < zeros.size(); ++e) {
      if (zeros[e] >= numel)
        throw payload.error("has a zero at ", zeros[e], ", expected below ", numel);
      if (e > 0 && zeros[e] <= zeros[e - 1])
        throw payload.error("has zeros at ", zeros[e - 1], " and then ", zeros[e],
                            ", expected them to ascend");
    }
    return {negative.data(), zeros.data(), zeros.size(),
            nonzero.empty() ? nullptr : nonzero.data()};
  }

  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(SignSgd, "compressor/signsgd", "0.1.0",
                    "one bit per element and a majority vote over ranks",
                    "Bernstein et al., signSGD with Majority Vote is Communication Efficient and "
                    "Fault Tolerant, ICLR 2019");
