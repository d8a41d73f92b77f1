// The rig's step with payloads that no honest peer sends: the plugin should return an error, may
// return none, and must neither crash nor write beside the buffers.
#include <penstock/views.hpp>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

// The data of a rank that decode may change, to be restored.
class Snapshot {
 public:
  explicit Snapshot(std::deque<SimulatedItem>& items) {
    for (SimulatedItem& item : items) {
      take(item.grad.data(), item.grad.size() * sizeof(float));
      for (uint64_t s = 0; s < item.compressor_states.size(); ++s)
        take(item.compressor_states[s].bytes.data(), item.compressor_states[s].bytes.size());
    }
  }
  ~Snapshot() {
    for (auto& [place, bytes] : kept_)
      if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
  }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  void take(void* place, uint64_t size) {
    kept_.emplace_back(place, std::string(static_cast<const char*>(place), size));
  }
  std::vector<std::pair<void*, std::string>> kept_;
};

void make_noise(OwnedPayload& payload) {
  Random random(7);
  for (uint64_t s = 0; s < payload.n_sections(); ++s) {
    auto* bytes = static_cast<unsigned char*>(payload.section(s).data);
    const uint64_t size = payload.section(s).count * sdk::dtype_bytes(payload.section(s).dtype);
    for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random.bits());
  }
}

}  // namespace

void CompressorRig::faulty_step(const RankTensors& gradients) {
  faulty_ = true;
  step(gradients);
  faulty_ = false;
}

void CompressorRig::try_faults(uint32_t round, const ItemList& items, const Payloads& payloads,
                               const StepSettings& settings) {
  for (uint64_t p = 0; p < items.size(); ++p) {
    const PlannedRound& planned = needs()[items[p]].rounds[round];
    std::vector<OwnedPayload*> good;
    for (const auto& of_rank : payloads) good.push_back(of_rank[p].get());
    PayloadPointer sum;
    if (planned.c.combine == PENSTOCK_COMBINE_SUM) {
      sum = reduced(planned, good);
      good = {sum.get()};
    }
    for (const Fault fault : {Fault::absent, Fault::truncated, Fault::too_many,
                              Fault::index_out_of_range, Fault::other_kind, Fault::noise})
      try_fault(round, items[p], good, fault, settings);
  }
}

void CompressorRig::try_fault(uint32_t round, uint64_t item, const std::vector<OwnedPayload*>& good,
                              Fault fault, const StepSettings& settings) {
  std::vector<PayloadPointer> copies;
  Received all(1);
  for (OwnedPayload* payload : good) {
    copies.push_back(received(*payload));
    all[0].push_back(copies.back().get());
  }
  OwnedPayload& payload = *copies.back();  // of the last rank, or the sum
  const bool gathered = needs()[item].rounds[round].c.combine == PENSTOCK_COMBINE_GATHER;
  const bool sparse = payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE;
  bool must_fail = false;
  std::string name;
  switch (fault) {
    case Fault::absent:
      for (auto& each : copies) each->make_absent();
      name = "all payloads absent";
      break;
    case Fault::truncated:
      for (uint64_t s = 0; s < payload.n_sections(); ++s) payload.section(s).count /= 2;
      name = "half of the elements";
      break;
    case Fault::too_many:
      // Counts of sums are not sent, and the counts of an absent payload are not read.
      if (!gathered || payload.n_sections() == 0 || payload.is_absent()) return;
      payload.section(0).count = payload.section(0).capacity + 1;
      must_fail = true;
      name = "one element more than fits";
      break;
    case Fault::index_out_of_range:
      if (!sparse || payload.section(0).count == 0) return;
      static_cast<uint32_t*>(payload.section(0).data)[payload.section(0).count - 1] =
          static_cast<uint32_t>(numel(item));
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
  const Snapshot snapshot(ranks_[0].items);
  const Outcome outcome = decode(0, round, {item}, all, settings);
  promise_intact(("decode of a payload with " + name).c_str());
  promise(!must_fail || !outcome.ok(), "decode accepts a payload with ", name, ": ", where(0, item),
          "; payloads come from peers, expected an error of kind invalid_payload");
  if (fault != Fault::absent) return;
  require(outcome, "decode of absent payloads, which are legal and count as zeros");
  const float* out = ranks_[0].items[item].grad.data();
  for (uint64_t e = 0; is_last(item, round) && e < numel(item); ++e)
    if (out[e] != 0)
      promise(false, "out[", e, "] is ", out[e],
              " although all payloads are absent, expected 0: ", where(0, item));
}

}  // namespace penstock::test
