// Methods that send one bit per element (sign_payload.hpp): signs that stand for numbers, and
// majority votes.
#pragma once

#include <methods/agreed.hpp>
#include <methods/device/sign.hpp>
#include <methods/folded.hpp>
#include <methods/sign_payload.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::sdk {

// A sender of one item during decode.
struct SignSender {
  kernels::ValuedSigns valued;
  float pair[2];  // for methods that send one number, which stands for +number and -number
};

// Room for the senders of a call.
inline uint64_t sign_sender_bytes(uint32_t world) {
  return world * sizeof(SignSender) + world * sizeof(kernels::ValuedSigns);
}

// out (+)= the numbers of each rank, in ascending order of ranks. `run(item)` is the number of
// elements that share a pair of numbers; `read(payload, item, sender)` checks a payload and fills
// in its sender.
template <typename Run, typename Read>
void decode_valued_signs(const Call& call, const Items& items, const PayloadReaders& payloads,
                         kernels::CodePath path, Run run, Read read) {
  const std::span<SignSender> senders = call.scratch<SignSender>(payloads.n_ranks());
  const std::span<kernels::ValuedSigns> valued = call.scratch<kernels::ValuedSigns>(
      payloads.n_ranks(), payloads.n_ranks() * sizeof(SignSender));
  for (uint64_t i = 0; i < items.size(); ++i) {
    uint64_t n = 0;
    for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
      const PayloadReader payload = payloads.at(i, r);
      if (payload.absent()) continue;
      read(payload, items[i], senders[n]);
      valued[n] = senders[n].valued;
      ++n;
    }
    const std::span<float> out = items[i].out();
    kernels::sum_valued_signs(valued.data(), n, out.size(), run(items[i]),
                              (call.flags & PENSTOCK_DECODE_FIRST) != 0, out.data(), path,
                              call.result_scale());
  }
}

// Throws INVALID_PAYLOAD for a number that cannot be a magnitude.
inline void check_scale(const PayloadReader& payload, float scale) {
  if (!(scale >= 0) || !std::isfinite(scale))
    throw payload.error("has a scale of ", scale, ", expected a finite scale of at least 0");
}

// Reads one number, which stands for positive elements; negative elements have it negated.
inline void read_scale(const PayloadReader& payload, uint64_t section, SignSender& sender) {
  const float scale = payload.section<float>(section, 1)[0];
  check_scale(payload, scale);
  sender.pair[0] = scale;
  sender.pair[1] = -scale;
  sender.valued.values = sender.pair;
}

// The numbers that stand for the elements above and below zero, for example their means.
struct SignNumbers {
  float plus;
  float minus;
};

// A method that sends signs and, for each run of elements, the numbers that they stand for:
//   SignNumbers numbers(std::span<const float> elements) const;
//   // with kOnDevices: queues kernels that write the numbers of all runs into the payload
//   void write_numbers(const Call& call, const Item& item, uint64_t run, float* numbers) const;
// Numbers differ between ranks, so payloads are gathered and added here.
template <typename Method>
class SignCompressor : public FoldingEncoder<Method> {
 public:
  static constexpr bool kInspects = true;
  static constexpr bool kMirrored = false;  // `minus` is -`plus`, and is not sent
  static constexpr bool kOnDevices = false;
  static constexpr bool kScalesResult = true;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = kAllFolds;
    if (Method::kOnDevices) traits.device_types = device::kWhereKernelsAre;
  }

  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    plan_signs(need.round(PENSTOCK_COMBINE_GATHER), item.numel())
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, n_numbers(item.numel()));
    need.part_alignment = run_;
    need.scratch_bytes = sign_sender_bytes(call.world);
    if constexpr (kHasKernels)
      need.scratch_bytes =
          std::max({need.scratch_bytes, device::sign_scratch_bytes(item.numel()),
                    device::sign_numbers_scratch_bytes(item.numel(), run_of(item.numel()))});
  }

  void encode_item(const Call& call, const Item& item, PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    if constexpr (kHasKernels)
      if (call.on_device()) return encode_on_device(call, item, payload, fold);
    const std::span<float> work = item.work();
    write_signs(work, payload, path_, fold);
    const std::span<float> sent = payload.room<float>(kAfterSigns);
    const uint64_t run = run_of(work.size());
    for (uint64_t next = 0, first = 0; next < sent.size(); first += run) {
      const std::span<float> elements = work.subspan(first, std::min(run, work.size() - first));
      const SignNumbers found = method().numbers(elements);
      sent[next++] = found.plus;
      if (!Method::kMirrored) sent[next++] = found.minus;
      if (item.keeps())
        kernels::take_out_by_sign(elements.data(), elements.size(), found.plus, found.minus, path_);
    }
    payload.count(kAfterSigns, sent.size());
  }

  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    if constexpr (kHasKernels)
      if (call.on_device()) return decode_on_device(call, items, payloads);
    decode_valued_signs(
        call, items, payloads, path_, [this](const Item& item) { return run_of(item.numel()); },
        [&](const PayloadReader& payload, const Item& item, SignSender& sender) {
          sender.valued.signs = read_signs(call, payload, item.numel());
          if (Method::kMirrored)
            read_scale(payload, kAfterSigns, sender);
          else
            sender.valued.values = read_numbers(call, payload, n_numbers(item.numel()));
        });
  }

 protected:
  // `run`: the number of elements that share their numbers, a multiple of 64; 0: the whole item.
  explicit SignCompressor(uint64_t run = 0) : run_(run), path_(agreed_code_path("sign")) {}

  kernels::CodePath path() const { return path_; }

 private:
  static constexpr bool kHasKernels = device::kHasKernels && Method::kOnDevices;

  const Method& method() const { return static_cast<const Method&>(*this); }

  void encode_on_device(const Call& call, const Item& item, PayloadWriter& payload,
                        const kernels::Fold* fold) const {
    device::write_signs(call, item, payload, fold);
    const std::span<float> numbers = payload.room<float>(kAfterSigns);
    method().write_numbers(call, item, run_of(item.numel()), numbers.data());
    payload.count(kAfterSigns, numbers.size());
    if (item.keeps()) device::take_out_by_sign(call, item, runs_of(item), numbers.data());
  }

  void decode_on_device(const Call& call, const Items& items,
                        const PayloadReaders& payloads) const {
    const auto read = [&](const PayloadReader& payload, const Item& item) -> kernels::ValuedSigns {
      const kernels::Signs signs = read_signs(call, payload, item.numel());
      const uint64_t expected = n_numbers(item.numel());
      if (!Method::kMirrored) return {signs, read_numbers(call, payload, expected)};
      for (const float scale : payload.on_host<float>(call, kAfterSigns, expected))
        check_scale(payload, scale);
      return {signs, payload.section<float>(kAfterSigns).data()};
    };
    const auto runs = [this](const Item& item) { return runs_of(item); };
    device::decode_valued_signs(call, items, payloads, runs, read);
  }

  device::SignRuns runs_of(const Item& item) const {
    return {run_of(item.numel()), Method::kMirrored};
  }
  uint64_t run_of(uint64_t numel) const {
    return run_ != 0 ? run_ : kernels::sign_words(std::max<uint64_t>(1, numel)) * 64;
  }
  // An empty item has a number too if the numbers are mirrored.
  uint64_t n_numbers(uint64_t numel) const {
    const uint64_t run = run_of(numel);
    return Method::kMirrored ? (std::max<uint64_t>(1, numel) + run - 1) / run
                             : (numel + run - 1) / run * 2;
  }
  // The numbers of a payload, in the memory where the call works.
  static const float* read_numbers(const Call& call, const PayloadReader& payload,
                                   uint64_t expected) {
    const auto numbers = payload.on_host<float>(call, kAfterSigns, expected);
    for (uint64_t m = 0; m < numbers.size(); ++m) {
      const float magnitude = m % 2 == 0 ? numbers[m] : -numbers[m];
      if (!(magnitude >= 0) || !std::isfinite(magnitude))
        throw payload.error("has ", numbers[m], " as mean of ",
                            m % 2 == 0 ? "positive" : "negative", " elements");
    }
    return payload.section<float>(kAfterSigns).data();
  }

  uint64_t run_;
  kernels::CodePath path_;
};

// One bit per element and a majority vote over ranks, for the methods signsgd and signum. See
// plugins/compressors/signsgd/README.md.
class MajorityVote {
 public:
  static inline const OptionList options{};
  explicit MajorityVote(const Options&) : path_(agreed_code_path("sign")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.device_types = device::kWhereKernelsAre;
  }

  // The transport cannot add the signs of single ranks, so payloads are gathered. The vote needs
  // all payloads at once, and its result is not a sum that the core divides.
  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    if (call.world > kernels::kMaxVoters)
      throw invalid_argument("gradient '", item.name(), "' would be voted on by ", call.world,
                             " ranks, expected at most ", kernels::kMaxVoters,
                             "; vote on one leg of a route with fewer ranks");
    plan_signs(need.round(PENSTOCK_COMBINE_GATHER), item.numel()).result_is_final().all_payloads();
    need.part_alignment = 64;  // whole words
    need.scratch_bytes = call.world * sizeof(kernels::Signs);
    if constexpr (device::kHasKernels)
      need.scratch_bytes = std::max(need.scratch_bytes, device::sign_scratch_bytes(item.numel()));
  }

  void encode(const Call& call, const Item& item, PayloadWriter& payload) {
    const auto one = static_cast<float>(work_unit(call, item));
    if constexpr (device::kHasKernels)
      if (call.on_device()) {
        device::write_signs(call, item, payload);
        if (item.keeps()) device::take_out_signs(call, item, one);
        return;
      }
    const std::span<float> work = item.work();
    write_signs(work, payload, path_);
    if (!item.keeps()) return;
    kernels::take_out_by_sign(work.data(), work.size(), one, -one, path_);
  }

  // Absent ranks do not vote. With DECODE_OWN this rank is the only voter, so its signs are the
  // result.
  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return decode_on_device(call, items, payloads);
    const std::span<kernels::Signs> voters = call.scratch<kernels::Signs>(payloads.n_ranks());
    for (uint64_t i = 0; i < items.size(); ++i) {
      uint64_t n_voters = 0;
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        const PayloadReader payload = payloads.at(i, r);
        if (!payload.absent()) voters[n_voters++] = read_signs(call, payload, items[i].numel());
      }
      const std::span<float> out = items[i].out();
      kernels::majority_vote(voters.data(), n_voters, out.size(), out.data(), path_);
      // Votes are ones in true units, so the effect of a learning rate does not depend on the loss
      // scale.
      const auto one = static_cast<float>(work_unit(call, items[i]));
      if (one != 1)
        for (float& vote : out) vote *= one;
    }
  }

 private:
  static void decode_on_device(const Call& call, const Items& items,
                               const PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const auto one = static_cast<float>(work_unit(call, items[i]));
      device::decode_votes(call, items[i], payloads, i, one, [&](const PayloadReader& payload) {
        return read_signs(call, payload, items[i].numel());
      });
    }
  }

  kernels::CodePath path_;
};

}  // namespace penstock::sdk
