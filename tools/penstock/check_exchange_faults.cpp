// The simulated step with payloads that no honest peer sends: an error is right, silence may be,
// a crash or a write beside the buffers is not.
#include "tools/penstock/check_exchange.hpp"

#include <cmath>
#include <cstring>
#include <random>

namespace penstock::command {

namespace {

// What decode may have changed on a rank, to be put back.
class Snapshot {
 public:
  explicit Snapshot(SimulatedRank& rank) {
    for (SimulatedItem& item : rank.items) {
      take(item.grad);
      for (GuardedBuffer& state : item.states) take(state);
    }
  }
  ~Snapshot() {
    for (const auto& [buffer, bytes] : kept_)
      std::memcpy(buffer->data(), bytes.data(), bytes.size());
  }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  void take(GuardedBuffer& buffer) { kept_.emplace_back(&buffer, buffer.copy()); }
  std::vector<std::pair<GuardedBuffer*, std::string>> kept_;
};

void make_noise(PayloadStorage& payload) {
  std::mt19937_64 random(7);
  for (size_t s = 0; s < payload.size(); ++s) {
    auto* bytes = static_cast<unsigned char*>(payload.section(s).data);
    const uint64_t size = payload.section(s).count * dtype_bytes(payload.section(s).dtype);
    for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random());
  }
}

}  // namespace

Status Exchange::try_fault(size_t position, uint32_t round, Fault fault) {
  const bool gathered = need(position, round).combine == PENSTOCK_COMBINE_GATHER;
  std::deque<GuardedPayload> received;
  PENSTOCK_TRY(receive(position, round, received));
  PayloadStorage& payload = received.back().storage();  // of the last rank, or the sum
  const bool sparse = payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE;
  bool must_fail = false;
  std::string_view name;
  switch (fault) {
    case Fault::absent:
      for (GuardedPayload& each : received) each.storage().absent();
      name = "all payloads absent";
      break;
    case Fault::truncated:
      for (size_t s = 0; s < payload.size(); ++s) payload.section(s).count /= 2;
      name = "half of the elements";
      break;
    case Fault::too_many:
      // Counts of sums never travel, and those of an absent payload are not read.
      if (!gathered || payload.size() == 0 || payload.c()->kind == PENSTOCK_PAYLOAD_ABSENT)
        return {};
      payload.section(0).count = payload.section(0).capacity + 1;
      must_fail = true;
      name = "one element more than fits";
      break;
    case Fault::index_out_of_range:
      if (!sparse || payload.section(0).count == 0) return {};
      static_cast<uint32_t*>(payload.section(0).data)[payload.section(0).count - 1] =
          static_cast<uint32_t>(ranks_[0].items[position].c.numel);
      must_fail = true;
      name = "an index out of range";
      break;
    case Fault::other_kind:
      payload.c()->kind = sparse ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_SPARSE;
      name = "another kind";
      break;
    case Fault::noise:
      make_noise(payload);
      name = "random bytes";
      break;
  }
  const Snapshot snapshot(ranks_[0]);
  const Status status = decode(0, round, {position}, {&received});
  PENSTOCK_TRY(check_walls(ranks_[0]).with_context(fmt::format("a payload with {}", name)));
  if (must_fail && status.ok())
    return internal(
        "decode accepts a payload with {} ({}); payloads come from peers, expected an "
        "error of kind invalid_payload",
        name, label(position));
  if (fault != Fault::absent) return {};
  PENSTOCK_TRY(status.with_context("absent payloads are legal and count as zeros"));
  const auto* out = ranks_[0].items[position].grad.as<float>();
  for (uint64_t e = 0; is_last(position, round) && e < ranks_[0].items[position].c.numel; ++e)
    if (out[e] != 0)
      return internal("out[{}] is {} although all payloads are absent, expected 0 ({})", e, out[e],
                      label(position));
  return {};
}

Status Exchange::faulty_step(uint64_t index) {
  PENSTOCK_TRY(start_step(index, Input::heavy_tailed));
  for (uint32_t round = 0; !active(round).empty(); ++round) {
    for (uint32_t r = 0; r < world_; ++r) PENSTOCK_TRY(encode(r, round));
    for (const size_t i : active(round))
      for (const Fault fault : {Fault::absent, Fault::truncated, Fault::too_many,
                                Fault::index_out_of_range, Fault::other_kind, Fault::noise})
        PENSTOCK_TRY(try_fault(i, round, fault));
    PENSTOCK_TRY(decode_all(round));
  }
  return {};
}

}  // namespace penstock::command
