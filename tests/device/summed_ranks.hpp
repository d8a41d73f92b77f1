// For tests of compressors whose payloads are summed on the way: a few ranks at one place that take
// whole steps, the sums made on the host as transports make them, and everything that the calls
// have written.
#pragma once

#include <penstock/fold.h>
#include <penstock/views.hpp>

#include <testing/gtest.hpp>
#include <testing/item.hpp>

#include <bit>
#include <map>

#include "place.hpp"

namespace penstock::simulated {

using Bytes = std::vector<unsigned char>;

inline std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}
template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const unsigned char*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

// n values, the same for the same seed.
using Draw = std::vector<float> (*)(uint64_t n, uint64_t seed);

struct SummedCase {
  test::Shape shape;
  uint32_t ranks = 2;
  bool keeps = true;                   // work is a state, not the gradient
  uint32_t form = PENSTOCK_FORM_NONE;  // that encode folds
  uint32_t absent = 0;                 // so many of the last ranks send nothing
  uint32_t dtype = PENSTOCK_FLOAT32;
};

inline std::string text_of(const SummedCase& of) {
  return sdk::text(test::text_of(of.shape), " on ", of.ranks, ", of whom ", of.absent,
                   " send nothing, keeps ", of.keeps, ", form ", of.form, ", dtype ", of.dtype);
}

// What calls have written, by rank and array.
using Seen = std::map<std::string, Bytes>;

// The names under which two differ.
inline std::string difference(const Seen& one, const Seen& other) {
  std::string names;
  for (const auto& [name, bytes] : one) {
    const auto found = other.find(name);
    if (found == other.end() || found->second != bytes) names += name + "; ";
  }
  return one.size() == other.size() ? names : names + "not the same arrays";
}

class SummedRanks {
 public:
  // Gradients, and what is kept of earlier ones, are `draw`n.
  SummedRanks(const test::LoadedPlugin& plugin, const test::CompressorInstance& compressor,
              const SummedCase& of, bool on_device, Draw draw)
      : plugin_(plugin), compressor_(compressor), of_(of), draw_(draw), place_(on_device) {
    step_.struct_size = sizeof step_;
    step_.seed = 11;
    step_.grad_scale = 8;
    step_.world = of_.ranks;
    for (uint32_t r = 0; r < of_.ranks; ++r) add_rank(r);
  }

  // A step of all ranks, after which every array is looked at. Phases follow from `index`.
  Seen step(uint64_t index) {
    Seen seen;
    step_.index = index;
    step_.phase = static_cast<uint32_t>(index % need(0).period);
    const std::vector<test::PlannedRound> rounds = need(step_.phase).rounds;
    for (uint32_t round = 0; round < rounds.size(); ++round) {
      const bool is_last = round + 1 == rounds.size();
      const test::PayloadPointer sum = encode(rounds[round], round, is_last, seen);
      for (Rank& rank : ranks_) decode(rank, *sum, round);
    }
    for (const Rank& rank : ranks_)
      for (const Held& held : rank.held) seen[name_of(rank, held.name)] = get(held);
    return seen;
  }

  // Other gradients, and in work too; the same for the same `seed`.
  void renew(uint64_t seed) {
    for (const Rank& rank : ranks_) {
      set(rank.number, "gradient", drawn_bytes(1000 * seed + rank.number));
      if (of_.keeps) set(rank.number, "work", drawn_bytes(1000 * seed + 100 + rank.number));
    }
  }
  // Sets what a rank holds as `name`: "gradient", "work", "momentum", or a state.
  void set(uint32_t rank, const std::string& name, const Bytes& bytes) {
    for (const Held& held : ranks_[rank].held)
      if (held.name == name) return place_.write(held.memory, bytes);
    ADD_FAILURE() << "rank " << rank << " holds no " << name;
  }
  // Holds, of what was seen elsewhere, all that the next step begins with.
  void hold(const Seen& seen) {
    for (const Rank& rank : ranks_)
      for (const Held& held : rank.held)
        place_.write(held.memory, seen.at(name_of(rank, held.name)));
  }

  // What a decode of `payload` by rank 0 says, and an encode; in the step that was taken last.
  test::Outcome decode_once(test::OwnedPayload& payload, uint32_t round) {
    std::vector<penstock_section> sections;
    penstock_payload there = placed(payload, sections);
    return compressor_.decode(place_.exec(), step_, round, {&ranks_[0].item}, {&there}, 1,
                              PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
  }
  test::Outcome encode_once() {
    test::OwnedPayload payload(need(step_.phase).rounds[0].sections, 0);
    std::vector<penstock_section> sections;
    penstock_payload there = placed(payload, sections);
    return compressor_.encode(place_.exec(), step_, 0, {&ranks_[0].item}, {&there});
  }
  test::PlannedNeed need(uint32_t phase) {
    penstock_item* item = &ranks_[0].item;
    return std::move(test::ask_needs(compressor_, plugin_, phase, of_.ranks, {item}).front());
  }

 private:
  struct Held {
    std::string name;
    unsigned char* memory;
    uint64_t bytes;
  };
  struct Rank {
    uint32_t number = 0;
    penstock_item item{};
    penstock_tensor momentum{};
    std::deque<penstock_tensor> states;
    std::vector<const penstock_tensor*> state_pointers;
    std::vector<Held> held;
    void* own_out = nullptr;
  };

  static std::string name_of(const Rank& rank, const std::string& name) {
    return sdk::text("rank ", rank.number, " ", name);
  }
  Bytes get(const Held& held) const { return place_.get(held.memory, held.bytes); }
  uint64_t bytes() const { return test::numel_of(of_.shape) * sdk::dtype_bytes(of_.dtype); }

  // Values of the case's dtype; 16-bit ones have the upper halves of floats, which are numbers too.
  Bytes drawn_bytes(uint64_t seed) const {
    const std::vector<float> floats = draw_(test::numel_of(of_.shape), seed);
    if (of_.dtype == PENSTOCK_FLOAT64)
      return bytes_of(std::vector<double>(floats.begin(), floats.end()));
    if (of_.dtype == PENSTOCK_FLOAT32) return bytes_of(floats);
    std::vector<uint16_t> halves;
    for (const float value : floats)
      halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    return bytes_of(halves);
  }
  penstock_tensor tensor(void* memory, penstock_tensor like) const {
    like.data = memory;
    like.dtype = of_.dtype;
    like.device_type = place_.exec().device_type;
    like.device_id = place_.exec().device_id;
    return like;
  }
  unsigned char* add(Rank& rank, const std::string& name, const Bytes& bytes) {
    unsigned char* memory = place_.put(bytes);
    rank.held.push_back({name, memory, bytes.size()});
    return memory;
  }

  void add_rank(uint32_t number) {
    Rank& rank = ranks_.emplace_back();
    rank.number = number;
    rank.item = test::describe_item(of_.shape, kName, 3);
    const penstock_tensor flat = rank.item.grad;
    rank.item.grad = rank.item.out = tensor(add(rank, "gradient", drawn_bytes(number)), flat);
    rank.item.work = rank.item.grad;
    if (of_.keeps) {
      rank.item.work = tensor(add(rank, "work", drawn_bytes(100 + number)), flat);
      rank.item.flags = PENSTOCK_ITEM_KEEP | PENSTOCK_ITEM_REST_FOLLOWS;
    }
    if (of_.form > PENSTOCK_FORM_AFFINE)
      rank.momentum = tensor(add(rank, "momentum", drawn_bytes(200 + number)), flat);
    rank.own_out = place_.put(Bytes(bytes(), 0x5a));
    const test::PlannedNeed planned = need(0);
    for (const penstock_state_declaration& declared : planned.states) {
      const std::string name(sdk::view(declared.name));
      const uint64_t n = declared.rows * declared.cols;
      rank.states.push_back(tensor_of(
          reinterpret_cast<float*>(add(rank, name, Bytes(n * sizeof(float)))), n, place_.exec()));
    }
    for (const penstock_tensor& state : rank.states) rank.state_pointers.push_back(&state);
    rank.item.states = rank.state_pointers.data();
    rank.item.n_states = rank.state_pointers.size();
  }

  // The payload in this place's memory, with new sections around it.
  penstock_payload placed(test::OwnedPayload& payload, std::vector<penstock_section>& sections) {
    for (uint64_t s = 0; s < payload.n_sections(); ++s) {
      penstock_section section = payload.section(s);
      const auto* begin = static_cast<const unsigned char*>(section.data);
      section.data =
          place_.put(Bytes(begin, begin + section.capacity * sdk::dtype_bytes(section.dtype)));
      sections.push_back(section);
    }
    section_pointers_.clear();
    for (penstock_section& section : sections) section_pointers_.push_back(&section);
    penstock_payload there = *payload.c();
    there.sections = section_pointers_.data();
    return there;
  }

  test::PayloadPointer encode(const test::PlannedRound& planned, uint32_t round, bool is_last,
                              Seen& seen) {
    std::vector<test::PayloadPointer> own;
    std::vector<test::OwnedPayload*> pointers;
    for (Rank& rank : ranks_) {
      pointers.push_back(
          own.emplace_back(std::make_unique<test::OwnedPayload>(planned.sections, rank.number))
              .get());
      if (rank.number + of_.absent >= of_.ranks)
        pointers.back()->make_absent();
      else
        encode(rank, *pointers.back(), round, is_last, seen);
    }
    return test::reduced(planned, pointers);
  }

  void encode(Rank& rank, test::OwnedPayload& own, uint32_t round, bool is_last, Seen& seen) {
    step_.rank = rank.number;
    step_.result_scale = 0;
    std::vector<penstock_section> sections;
    penstock_payload there = placed(own, sections);
    EXPECT_EQ(call_encode(rank, &there, round).message, "");
    own.c()->kind = there.kind;
    for (uint64_t s = 0; s < sections.size(); ++s) {
      own.section(s).count = sections[s].count;
      EXPECT_EQ(sections[s].count, sections[s].capacity);
      const Bytes sent = place_.get(static_cast<const unsigned char*>(sections[s].data),
                                    sections[s].count * sdk::dtype_bytes(sections[s].dtype));
      if (!sent.empty()) std::memcpy(own.section(s).data, sent.data(), sent.size());
      seen[name_of(rank, sdk::text("round ", round, " sends"))] = sent;
    }
    if (!is_last) return;
    penstock_item alone = rank.item;
    alone.out.data = rank.own_out;
    EXPECT_EQ(compressor_
                  .decode(place_.exec(), step_, round, {&alone}, {&there}, 1,
                          PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | PENSTOCK_DECODE_OWN)
                  .message,
              "");
    seen[name_of(rank, "decodes of its own")] =
        place_.get(static_cast<const unsigned char*>(rank.own_out), bytes());
  }

  test::Outcome call_encode(Rank& rank, penstock_payload* payload, uint32_t round) {
    penstock_item* item = &rank.item;
    if (of_.form == PENSTOCK_FORM_NONE)
      return compressor_.encode(place_.exec(), step_, round, {item}, {payload});
    penstock_fold fold{};
    fold.struct_size = sizeof fold;
    fold.form = of_.form;
    fold.beta = 0.75;
    fold.gamma = 1.5;
    fold.momentum = of_.form > PENSTOCK_FORM_AFFINE ? &rank.momentum : nullptr;
    const penstock_fold* folds = round == 0 ? &fold : nullptr;
    const auto* encoder = static_cast<const penstock_fold_encoder*>(
        compressor_.table().extension(compressor_.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
    return test::take(encoder->encode(compressor_.self(), &place_.exec(), &step_, round, &item, 1,
                                      &payload, &folds));
  }

  void decode(Rank& rank, test::OwnedPayload& sum, uint32_t round) {
    step_.rank = rank.number;
    step_.result_scale = 1.0 / of_.ranks;
    std::vector<penstock_section> sections;
    penstock_payload there = placed(sum, sections);
    EXPECT_EQ(compressor_
                  .decode(place_.exec(), step_, round, {&rank.item}, {&there}, 1,
                          PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST)
                  .message,
              "");
  }

  static inline const std::string kName = "gradient";
  const test::LoadedPlugin& plugin_;
  const test::CompressorInstance& compressor_;
  const SummedCase of_;
  const Draw draw_;
  Place place_;
  penstock_step step_{};
  std::deque<Rank> ranks_;
  std::vector<penstock_section*> section_pointers_;
};

}  // namespace penstock::simulated
