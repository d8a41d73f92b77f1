// A gradient of one rank. It is laid out in a place as the core would do it, by the compressor's
// plan. The class makes the compressor's calls for it.
#pragma once

#include <testing/item.hpp>

#include <bit>
#include <map>
#include <set>

#include "method.hpp"
#include "payload.hpp"

namespace penstock::simulated {

// The storage of `work`: the gradient itself; other memory, which encode must not change; or a
// state, from which encode subtracts the sent values.
enum class Work { kGradient, kLeft, kKept };

// A gradient on several ranks: its storage and the steps of the ranks.
struct Case {
  test::Shape shape = {};
  uint32_t ranks = 2;
  Work work = Work::kKept;
  uint32_t form = PENSTOCK_FORM_NONE;  // the form that encode folds in
  double beta = 0.75, gamma = 1.5;     // parameters of the form
  std::set<uint32_t> absent = {};      // ranks with an absent payload
  uint32_t dtype = PENSTOCK_FLOAT32;
  uint64_t first = 0;  // first element, within a larger gradient
  Draw draw = drawn;   // draws every value at the begin of a step
};

inline std::string text_of(const Case& of) {
  std::string text = sdk::text(test::text_of(of.shape), " on ", of.ranks, ", work ", int(of.work),
                               ", form ", of.form, ", dtype ", of.dtype);
  for (const uint32_t rank : of.absent) text += sdk::text(", without rank ", rank);
  return text;
}

// Arrays by their names.
using Seen = std::map<std::string, Bytes>;

// The number of payloads in each decode call. If there are no slices, one call decodes every
// payload.
struct Reception {
  uint32_t round = 0;
  std::vector<uint64_t> slices = {};
  uint32_t flags = 0;
};

class PlacedGradient {
 public:
  PlacedGradient(Place& place, const Compressor& compressor, const Case& of, uint32_t rank)
      : place_(place),
        compressor_(compressor),
        of_(of),
        item_(test::describe_item(of_.shape, kName, 3)),
        exec_(place.exec()) {
    step_.struct_size = sizeof step_;
    step_.seed = 11;
    step_.grad_scale = 8;
    step_.world = of.ranks;
    step_.rank = rank;
    lay_out_values();
    ask_for_needs();
    lay_out_states();
    begin(0);
  }
  PlacedGradient(const PlacedGradient&) = delete;
  PlacedGradient& operator=(const PlacedGradient&) = delete;

  // Asks a memory for its needs, which the core does before any other call.
  void plan(const test::MemoryInstance& memory, const test::LoadedPlugin& plugin) {
    (void)test::ask_needs(
        memory, plugin, {&item_},
        test::ask_needs(compressor_.instance, compressor_.plugin, 0, of_.ranks, {&item_}));
  }
  // Begins a step. Its phase follows from its index.
  void begin(uint64_t index) {
    step_.index = index;
    step_.phase = static_cast<uint32_t>(index % needs_.size());
    exec_.scratch_bytes = needs_[step_.phase].scratch_bytes;
    exec_.scratch = place_.exec(exec_.scratch_bytes).scratch;
  }
  penstock_item& item() { return item_; }
  const penstock_exec& exec() const { return exec_; }  // with exactly the planned scratch
  const penstock_step& step() const { return step_; }
  uint32_t n_rounds() const { return uint32_t(needs_[step_.phase].rounds.size()); }
  const test::PlannedRound& planned(uint32_t round = 0) const {
    return needs_[step_.phase].rounds[round];
  }
  penstock_fold fold() const {
    penstock_fold fold{};
    fold.struct_size = sizeof fold;
    fold.form = of_.form;
    fold.beta = of_.beta;
    fold.gamma = of_.gamma;
    fold.momentum = of_.form > PENSTOCK_FORM_AFFINE ? &momentum_ : nullptr;
    return fold;
  }

  // The bytes of one array: "gradient", which also receives the results, "work", "momentum", or
  // "state NAME".
  Bytes get(const std::string& name) const { return get(held(name)); }
  std::vector<float> floats(const std::string& name) const { return floats_of(get(name)); }
  Seen all() const {
    Seen all;
    for (const Held& held : held_) all[held.name] = get(held);
    return all;
  }
  void set(const std::string& name, const Bytes& bytes) {
    ASSERT_EQ(bytes.size(), held(name).bytes) << name;
    place_.write(held(name).memory, bytes);
  }
  void set(const std::string& name, const std::vector<float>& values) {
    set(name, bytes_of(values));
  }
  void draw(const std::string& name, uint64_t seed) { set(name, drawn_bytes(seed)); }

  test::Outcome encode(PlacedPayload& payload, uint32_t round = 0) {
    step_.result_scale = 0;
    if (of_.form == PENSTOCK_FORM_NONE || round > 0)
      return compressor_.instance.encode(exec_, step_, round, {&item_}, {payload.c()});
    const penstock_item* item = &item_;
    penstock_payload* own = payload.c();
    const penstock_fold folded = fold();
    const penstock_fold* folds = &folded;
    return test::take(compressor_.folding().encode(compressor_.instance.self(), &exec_, &step_,
                                                   round, &item, 1, &own, &folds));
  }
  // Encodes and copies the payload to host memory.
  Sent send(uint32_t round = 0) {
    PlacedPayload payload(place_, planned(round));
    EXPECT_EQ(encode(payload, round).message, "");
    return payload.sent();
  }
  Sent absent(uint32_t round = 0) const {
    return {PENSTOCK_PAYLOAD_ABSENT, std::vector<Sent::Section>(planned(round).sections.size())};
  }

  // Copies the payloads of all ranks, or their sum, to this place. `sent` must outlive the result.
  std::deque<PlacedPayload> bring(const std::vector<Sent>& sent, uint32_t round = 0) {
    std::deque<PlacedPayload> payloads;
    for (uint64_t r = 0; r < sent.size(); ++r)
      payloads.emplace_back(place_, planned(round), sent[r],
                            is_summed(planned(round)) ? -1 : int32_t(r));
    return payloads;
  }
  test::Outcome decode(std::deque<PlacedPayload>& brought, const Reception& how = {}) {
    // The scale is not 1 / ranks, so that it also changes the payload of a single rank. With
    // PENSTOCK_DECODE_OWN the core sets no scale.
    const bool is_own = (how.flags & PENSTOCK_DECODE_OWN) != 0;
    step_.result_scale = is_own ? 0 : 1.0 / (of_.ranks + 1);
    const std::vector<uint64_t> whole{brought.size()};
    test::Outcome outcome;
    uint64_t next = 0;
    for (const uint64_t n : how.slices.empty() ? whole : how.slices) {
      uint32_t flags = how.flags | (next == 0 ? PENSTOCK_DECODE_FIRST : 0);
      std::vector<const penstock_payload*> payloads;
      for (uint64_t i = 0; i < n; ++i) payloads.push_back(brought[next++].c());
      if (next == brought.size()) flags |= PENSTOCK_DECODE_LAST;
      outcome = compressor_.instance.decode(exec_, step_, how.round, {&item_}, payloads, n, flags);
      if (!outcome.ok()) break;
    }
    return outcome;
  }
  test::Outcome receive(const std::vector<Sent>& sent, const Reception& how = {}) {
    std::deque<PlacedPayload> brought = bring(sent, how.round);
    return decode(brought, how);
  }
  // The decoded values of the rank's own payload, in separate memory.
  Bytes decode_own(const Sent& sent, uint32_t round) {
    std::deque<PlacedPayload> payload;
    payload.emplace_back(place_, planned(round), sent, int32_t(step_.rank));
    unsigned char* own = place_.put(Bytes(n_bytes(), 0x5a));
    void* result = std::exchange(item_.out.data, own);
    EXPECT_EQ(decode(payload, {.round = round, .flags = PENSTOCK_DECODE_OWN}).message, "");
    item_.out.data = result;
    return place_.get(own, n_bytes());
  }

 private:
  struct Held {
    std::string name;
    unsigned char* memory;
    uint64_t bytes;
  };

  const Held& held(const std::string& name) const {
    for (const Held& held : held_)
      if (held.name == name) return held;
    ADD_FAILURE() << "the gradient holds no " << name;
    return held_.front();
  }
  Bytes get(const Held& held) const { return place_.get(held.memory, held.bytes); }
  uint64_t n_bytes() const { return item_.numel * sdk::dtype_bytes(of_.dtype); }

  // Values of the case's dtype. 16-bit values are the upper halves of floats, which are valid
  // numbers.
  Bytes drawn_bytes(uint64_t seed) const {
    const std::vector<float> floats = of_.draw(item_.numel, seed);
    if (of_.dtype == PENSTOCK_FLOAT64)
      return bytes_of(std::vector<double>(floats.begin(), floats.end()));
    if (of_.dtype == PENSTOCK_FLOAT32) return bytes_of(floats);
    std::vector<uint16_t> halves;
    for (const float value : floats)
      halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    return bytes_of(halves);
  }
  unsigned char* hold(const std::string& name, const Bytes& bytes) {
    unsigned char* memory = place_.put(bytes);
    held_.push_back({name, memory, bytes.size()});
    return memory;
  }
  penstock_tensor hold_values(const std::string& name, uint64_t seed) {
    penstock_tensor tensor = item_.grad;
    tensor.data = hold(name, drawn_bytes(seed));
    tensor.dtype = of_.dtype;
    tensor.device_type = exec_.device_type;
    tensor.device_id = exec_.device_id;
    return tensor;
  }
  void lay_out_values() {
    const uint32_t rank = step_.rank;
    item_.first = of_.first;
    item_.grad = item_.out = item_.work = hold_values("gradient", rank);
    if (of_.work == Work::kGradient)
      held_.push_back({"work", held("gradient").memory, n_bytes()});
    else
      item_.work = hold_values("work", 100 + rank);
    if (of_.work == Work::kKept) item_.flags = PENSTOCK_ITEM_KEEP | PENSTOCK_ITEM_REST_FOLLOWS;
    if (of_.form > PENSTOCK_FORM_AFFINE) momentum_ = hold_values("momentum", 200 + rank);
  }
  void ask_for_needs() {
    do {
      needs_.push_back(std::move(test::ask_needs(compressor_.instance, compressor_.plugin,
                                                 uint32_t(needs_.size()), of_.ranks, {&item_})
                                     .front()));
    } while (needs_.size() < needs_.front().period);
  }
  void lay_out_states() {
    for (const penstock_state_declaration& declared : needs_.front().states) {
      const uint64_t n = declared.rows * declared.cols;
      unsigned char* memory = hold(sdk::text("state ", sdk::view(declared.name)),
                                   Bytes(n * sdk::dtype_bytes(declared.dtype)));
      states_.push_back(tensor_of(memory, n, exec_, declared.dtype));
    }
    for (const penstock_tensor& state : states_) state_pointers_.push_back(&state);
    item_.states = state_pointers_.data();
    item_.n_states = state_pointers_.size();
  }

  static inline const std::string kName = "gradient";
  Place& place_;
  const Compressor& compressor_;
  const Case of_;
  penstock_item item_;
  penstock_exec exec_;
  penstock_step step_{};
  std::deque<test::PlannedNeed> needs_;  // by phase
  std::vector<Held> held_;
  penstock_tensor momentum_{};
  std::deque<penstock_tensor> states_;
  std::vector<const penstock_tensor*> state_pointers_;
};

}  // namespace penstock::simulated
