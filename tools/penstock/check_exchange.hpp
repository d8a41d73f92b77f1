// Steps of a compressor on simulated ranks: what the engine does with it, with a check after every
// call.
#pragma once

#include "tools/penstock/check_guard.hpp"
#include "tools/penstock/checks.hpp"

#include <deque>

namespace penstock::command {

// One gradient on one rank.
struct SimulatedItem {
  Shape shape;
  std::string name;
  penstock_item c{};
  GuardedBuffer grad, work, own_out;  // results land in grad
  std::vector<GuardedBuffer> states;
  std::vector<uint32_t> state_classes;
  std::deque<penstock_tensor> state_tensors;
  std::vector<const penstock_tensor*> state_pointers;
  std::vector<std::vector<RoundNeed>> rounds;  // [phase]
  uint32_t flags = 0;                          // PENSTOCK_NEED_*
  GuardedPayload own;                          // of the current round
  std::vector<float> before;                   // work before the step
  std::vector<float> own_sent;                 // what its payload stands for
};

struct SimulatedRank {
  std::unique_ptr<CompressorInstance> instance;
  std::deque<SimulatedItem> items;
  GuardedBuffer scratch;
  penstock_exec exec{};
};

class Exchange {
 public:
  // One instance per rank, planned for all phases. `keep`: a memory holds work, else work is the
  // gradient's own storage.
  static Result<std::unique_ptr<Exchange>> make(const Subject& subject,
                                                const std::vector<Shape>& shapes, uint32_t world,
                                                bool keep);

  // All rounds of a step on all ranks. The error says what was wrong, on which input.
  Status step(uint64_t index, Input input);
  // A step in which rank 0 is also given payloads with one fault each before the good ones.
  Status faulty_step(uint64_t index);
  uint32_t period() const { return period_; }

 private:
  Exchange(uint32_t world, bool keep) : world_(world), keep_(keep) {}
  Status plan(SimulatedRank& rank);
  static void make_states(SimulatedItem& item, const penstock_compressor_need& need);
  Status start_step(uint64_t index, Input input);
  std::vector<size_t> active(uint32_t round) const;  // items that have this round
  const RoundNeed& need(size_t item, uint32_t round) const;
  bool is_last(size_t item, uint32_t round) const;
  std::string label(size_t item) const;

  Status encode(uint32_t rank, uint32_t round);
  Status check_encoded(SimulatedItem& item, size_t position, uint32_t round) const;
  Status decode_own(uint32_t rank, size_t item, uint32_t round, std::vector<float>& result);
  Status check_taken(uint32_t rank, size_t item, uint32_t round);
  // What a receiver gets for an item: one payload with the sum, or one for each rank.
  Status receive(size_t item, uint32_t round, std::deque<GuardedPayload>& received);
  // `received` holds the same number of payloads for each item.
  Status decode(uint32_t rank, uint32_t round, const std::vector<size_t>& items,
                const std::vector<std::deque<GuardedPayload>*>& received);
  Status decode_all(uint32_t round);
  Status check_walls(const SimulatedRank& rank) const;
  Status check_results();
  enum class Fault { absent, truncated, too_many, index_out_of_range, other_kind, noise };
  Status try_fault(size_t item, uint32_t round, Fault fault);

  uint32_t world_;
  bool keep_;
  uint32_t period_ = 1;
  penstock_step step_{};
  std::deque<SimulatedRank> ranks_;
  std::string input_;  // for messages
};

// How far apart two values may be whose largest operand is `magnitude`, after a trip through the
// sections' dtypes.
double tolerance(const std::vector<RoundNeed>& rounds, double magnitude);

}  // namespace penstock::command
