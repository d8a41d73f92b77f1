// One bit per element and a vote over ranks: the class that signsgd and signum compile into
// themselves. See plugins/compressors/signsgd/README.md.
#pragma once

#include <kernels/agreed.hpp>
#include <kernels/sign_payload.hpp>

namespace penstock::plugins {

class MajorityVote {
 public:
  static inline const sdk::OptionList options{};
  explicit MajorityVote(const sdk::Options&) : path_(agreed_code_path("sign")) {}

  // Signs of single ranks cannot be added on the way, so payloads are gathered; the vote needs all
  // of them at once, and its result is no sum to be divided.
  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    if (call.world > kernels::kMaxVoters)
      throw sdk::invalid_argument("gradient '", item.name(), "' would be voted on by ", call.world,
                                  " ranks, a vote counts at most ", kernels::kMaxVoters,
                                  "; vote on one leg of a route with fewer ranks");
    plan_signs(need.round(PENSTOCK_COMBINE_GATHER), item.numel()).result_is_final().all_payloads();
    need.part_alignment = 64;  // whole words
    need.scratch_bytes = call.world * sizeof(kernels::Signs);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    write_signs(work, payload, path_);
    if (!item.keeps()) return;
    const auto one = static_cast<float>(sdk::work_unit(call, item));
    kernels::take_out_by_sign(work.data(), work.size(), one, -one, path_);
  }

  // Absent ranks do not vote. With DECODE_OWN the one voter is this rank: its signs.
  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    const std::span<kernels::Signs> voters = call.scratch<kernels::Signs>(payloads.n_ranks());
    for (uint64_t i = 0; i < items.size(); ++i) {
      uint64_t n_voters = 0;
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        const sdk::PayloadReader payload = payloads.at(i, r);
        if (!payload.absent()) voters[n_voters++] = read_signs(payload, items[i].numel());
      }
      const std::span<float> out = items[i].out();
      kernels::majority_vote(voters.data(), n_voters, out.size(), out.data(), path_);
      // Votes are ones in true units, so that a rate means the same whatever the loss scale.
      const auto one = static_cast<float>(sdk::work_unit(call, items[i]));
      if (one != 1)
        for (float& vote : out) vote *= one;
    }
  }

 private:
  kernels::CodePath path_;
};

}  // namespace penstock::plugins
