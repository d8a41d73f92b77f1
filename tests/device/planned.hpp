// A gradient on one rank as the core lays it out for a compressor, in a place: from what the plugin
// asks for in its plan. And steps of several ranks with it, so that a test compares all that they
// leave behind on the CPU with what they leave behind on a device.
#pragma once

#include <penstock/fold.h>
#include <penstock/views.hpp>

#include <testing/item.hpp>

#include <deque>

#include "place.hpp"

namespace penstock::simulated {

using Bytes = std::vector<unsigned char>;

struct StepCase {
  std::string plugin;  // of compressors
  test::OptionSettings options;
  uint64_t n;
  uint64_t ranks = 2;
  bool folds = true;
  bool keeps = true;        // without, nothing is left in work, which is the gradient
  uint64_t absent = ~0ull;  // a rank that sends nothing
  uint64_t steps = 1;
  test::Shape shape = {};  // of n entries; none: a vector
};

class PlannedGradient {
 public:
  PlannedGradient(Place& place, const StepCase& of, uint64_t rank)
      : place_(place),
        plugin_(simulated_plugin("compressor-" + of.plugin + "-simulated.so")),
        compressor_(plugin_, of.options),
        shape_(of.shape.empty() ? test::Shape{static_cast<int64_t>(of.n)} : of.shape),
        rank_(rank),
        item_(test::describe_item(shape_, name_, 0)) {
    need_ =
        std::move(test::ask_needs(compressor_, plugin_, 0, uint32_t(of.ranks), {&item_}).front());
    exec_ = place.exec();
    EXPECT_LE(need_.scratch_bytes, exec_.scratch_bytes);
    exec_.scratch_bytes = need_.scratch_bytes;
    grad_ = place.put(drawn(of.n, 0));
    out_ = place.put(drawn(of.n, 1));
    work_ = of.keeps ? place.put(drawn(of.n, 100 + rank)) : grad_;
    item_.grad = tensor_of(grad_, of.n, exec_);
    item_.work = tensor_of(work_, of.n, exec_);
    item_.out = tensor_of(out_, of.n, exec_);
    if (of.keeps) item_.flags = PENSTOCK_ITEM_KEEP | PENSTOCK_ITEM_REST_FOLLOWS;
    for (const penstock_state_declaration& declared : need_.states) {
      const uint64_t size = declared.rows * declared.cols;
      states_.push_back(tensor_of(place.put(std::vector<float>(size)), size, exec_));
    }
    for (const penstock_tensor& state : states_) state_pointers_.push_back(&state);
    item_.states = state_pointers_.data();
    item_.n_states = state_pointers_.size();
    for (const test::PlannedRound& round : need_.rounds) lay_out(round);
  }
  PlannedGradient(const PlannedGradient&) = delete;
  PlannedGradient& operator=(const PlannedGradient&) = delete;

  penstock_item& item() { return item_; }
  penstock_payload& payload(uint32_t round = 0) { return rounds_[round].payload; }
  penstock_section& section(uint64_t s, uint32_t round = 0) { return rounds_[round].sections[s]; }
  uint64_t n_rounds() const { return rounds_.size(); }
  const penstock_exec& exec() const { return exec_; }
  const test::CompressorInstance& compressor() const { return compressor_; }
  std::vector<float> work() const { return place_.get(work_, item_.numel); }
  std::vector<float> out() const { return place_.get(out_, item_.numel); }
  std::vector<float> state(uint64_t i) const {
    return place_.get(static_cast<const float*>(states_[i].data), states_[i].numel);
  }
  uint64_t n_states() const { return states_.size(); }
  // What was sent of a section, once its count is known.
  Bytes sent(uint64_t s, uint32_t round = 0) const {
    const penstock_section& section = rounds_[round].sections[s];
    return place_.get(static_cast<const unsigned char*>(section.data),
                      section.count * sdk::dtype_bytes(section.dtype));
  }

  void encode(const penstock_step& step, bool folds, uint64_t seed) {
    place_.write(grad_, drawn(item_.numel, seed));
    encode_round(step, folds, 0);
  }
  void encode_round(const penstock_step& step, bool folds, uint32_t round) {
    for (penstock_section& section : rounds_[round].sections) section.count = 1234567;
    penstock_item* item = &item_;
    penstock_payload* payload = &rounds_[round].payload;
    payload->kind = 1234567;
    if (folds) {
      penstock_fold fold{};
      fold.struct_size = sizeof fold;
      fold.form = PENSTOCK_FORM_AFFINE;
      fold.beta = 0.75;
      fold.gamma = 1.5;
      const penstock_fold* pointer = &fold;
      const auto* encoder = static_cast<const penstock_fold_encoder*>(
          compressor_.table().extension(compressor_.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
      EXPECT_EQ(test::take(encoder->encode(compressor_.self(), &exec_, &step, round, &item, 1,
                                           &payload, &pointer))
                    .message,
                "");
    } else {
      EXPECT_EQ(compressor_.encode(exec_, step, round, {item}, {payload}).message, "");
    }
    settle_counts(round);
    bring_to_host(round);
  }

  // As the core does after an encode. Of pairs only the indices have a count.
  void settle_counts(uint32_t round = 0) {
    Round& encoded = rounds_[round];
    for (uint64_t s = 0; s < encoded.sections.size(); ++s) {
      penstock_section& section = encoded.sections[s];
      if (section.count != PENSTOCK_COUNT_ON_DEVICE) continue;
      section.count = s == 1 ? encoded.sections[0].count : place_.get(section.device_count, 1)[0];
    }
  }

  // As the core does before a decode: what was sent, in host memory.
  void bring_to_host(uint32_t round = 0) {
    Round& sent_round = rounds_[round];
    sent_round.host.clear();
    for (uint64_t s = 0; s < sent_round.sections.size(); ++s)
      if (sent_round.sections[s].count <= sent_round.sections[s].capacity)
        sent_round.sections[s].on_host = sent_round.host.emplace_back(sent(s, round)).data();
  }

  test::Outcome decode(penstock_step step, const std::vector<const penstock_payload*>& payloads,
                       uint32_t round = 0) {
    step.result_scale = 1.0 / double(payloads.size() + 1);
    return compressor_.decode(exec_, step, round, {&item_}, payloads, payloads.size(),
                              PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
  }

 private:
  struct Round {
    std::deque<penstock_section> sections;
    std::vector<penstock_section*> pointers;
    std::deque<Bytes> host;
    penstock_payload payload{};
  };

  void lay_out(const test::PlannedRound& planned) {
    Round& round = rounds_.emplace_back();
    for (const penstock_section_bound& bound : planned.sections) {
      penstock_section& section = round.sections.emplace_back();
      section.struct_size = sizeof section;
      section.capacity = bound.capacity;
      section.role = bound.role;
      section.dtype = bound.dtype;
      section.data = place_.put(Bytes(bound.capacity * sdk::dtype_bytes(bound.dtype), 7));
      if (exec_.device_type != PENSTOCK_DEVICE_CPU && (bound.flags & PENSTOCK_SECTION_EXACT) == 0)
        section.device_count = place_.put(std::vector<uint64_t>{77});
    }
    for (penstock_section& section : round.sections) round.pointers.push_back(&section);
    round.payload.struct_size = sizeof round.payload;
    round.payload.sections = round.pointers.data();
    round.payload.n_sections = round.pointers.size();
    round.payload.rank = int32_t(rank_);
  }

  Place& place_;
  test::LoadedPlugin plugin_;
  test::CompressorInstance compressor_;
  test::Shape shape_;
  std::string name_ = "gradient";
  uint64_t rank_;
  penstock_item item_{};
  test::PlannedNeed need_;
  penstock_exec exec_{};
  float* grad_ = nullptr;
  float* out_ = nullptr;
  float* work_ = nullptr;
  std::deque<penstock_tensor> states_;
  std::vector<const penstock_tensor*> state_pointers_;
  std::deque<Round> rounds_;
};

// What the ranks of a case leave behind, in the order of calls.
struct LeftBehind {
  std::vector<Bytes> bytes;                // work, what was sent, results
  std::vector<std::vector<float>> states;  // which may rest on sums of another order
};

inline Bytes bytes_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Of a round whose payloads everyone gathers.
inline LeftBehind gathered_steps(bool on_device, const StepCase& of) {
  Place place(on_device);
  std::deque<PlannedGradient> ranks;
  for (uint64_t r = 0; r < of.ranks; ++r) ranks.emplace_back(place, of, r);
  LeftBehind left;
  for (uint64_t s = 0; s < of.steps; ++s) {
    penstock_step step{};
    step.struct_size = sizeof step;
    step.index = s;
    step.seed = 5;
    step.grad_scale = 8;
    step.world = uint32_t(of.ranks);
    std::vector<const penstock_payload*> payloads;
    for (uint64_t r = 0; r < of.ranks; ++r) {
      PlannedGradient& rank = ranks[r];
      rank.encode(step, of.folds, 1000 * s + r);
      left.bytes.push_back(bytes_of(rank.work()));
      for (uint64_t i = 0; i < rank.payload().n_sections; ++i) left.bytes.push_back(rank.sent(i));
      for (uint64_t i = 0; i < rank.n_states(); ++i) left.states.push_back(rank.state(i));
      if (r == of.absent) rank.payload().kind = PENSTOCK_PAYLOAD_ABSENT;
      payloads.push_back(&rank.payload());
    }
    EXPECT_EQ(ranks[0].decode(step, payloads).message, "");
    left.bytes.push_back(bytes_of(ranks[0].out()));
  }
  return left;
}

// One rank's gradient, as it is: nothing is folded.
struct Lone {
  Lone(bool on_device, const StepCase& of, const std::vector<float>& x, uint32_t world = 1)
      : place(on_device), gradient(place, of, 0) {
    penstock_step step{};
    step.struct_size = sizeof step;
    step.grad_scale = 1;
    step.world = world;
    place.write(static_cast<float*>(gradient.item().work.data), x);
    gradient.encode(step, false, 1);
    sent = gradient.sent(0);
    left = gradient.work();
    for (uint64_t i = 0; i < gradient.n_states(); ++i) states.push_back(gradient.state(i));
  }
  Place place;
  PlannedGradient gradient;
  Bytes sent;
  std::vector<float> left;
  std::vector<std::vector<float>> states;
};

}  // namespace penstock::simulated
