// Checks whether the needs and buckets that a plugin publishes in plan can be used: counts,
// pointers, types and sizes, with arithmetic that does not wrap.
//
// The core calls these functions before it uses any field of a need or a bucket. `penstock check`
// calls them too, and a plugin's own tests may call them:
//
//   EXPECT_EQ(sdk::fault_text(sdk::fault_in(need)), "");
//
// [any] The functions are pure. They follow a pointer only after they have checked it, and keep no
// pointer. A struct may come from an older or newer plugin: the functions read only fields of
// ABI 0.1, which every version has. A struct without a fault may still ask for a feature that the
// host does not know; the core checks this when it copies the struct.
#pragma once

#include <penstock/memory.h>
#include <penstock/scheduler.h>
#include <penstock/views.hpp>

#include <cmath>
#include <optional>

namespace penstock::sdk {

// ---- Bounds: far above the needs of any method, far below an overflow of 64 bits ----

inline constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // payloads, state, scratch of one item
inline constexpr uint64_t kMostGathered = 0xffffffffu;     // elements: counts travel as 32 bits
inline constexpr uint64_t kMostRounds = 64;
inline constexpr uint64_t kMostSections = 64;
inline constexpr uint64_t kMostStates = 64;
inline constexpr uint64_t kMostPhases = 16;
inline constexpr uint64_t kMostScalars = 8;
inline constexpr uint64_t kMostNameBytes = 256;
inline constexpr uint64_t kMostPieces = uint64_t{1} << 24;
inline constexpr uint64_t kMostPublishedBytes = 65536;  // of one struct

// A fault. Its text has the form "FIELD is VALUE, expected EXPECTED".
struct Fault {
  std::string field;  // "rounds[1].sections[0].dtype"
  std::string value;
  std::string expected;
  std::string text() const { return sdk::text(field, " is ", value, ", expected ", expected); }
};

// The text of the fault; empty if there is no fault.
inline std::string fault_text(const std::optional<Fault>& fault) {
  return fault ? fault->text() : std::string();
}

// ---- Checked arithmetic: nullopt if the result does not fit 64 bits ----

constexpr std::optional<uint64_t> checked_sum(uint64_t a, uint64_t b) {
  if (b > ~uint64_t{0} - a) return std::nullopt;
  return a + b;
}
constexpr std::optional<uint64_t> checked_product(uint64_t a, uint64_t b) {
  if (b != 0 && a > ~uint64_t{0} / b) return std::nullopt;
  return a * b;
}
// Bytes of rows * cols elements; nullopt for an unknown dtype or more than kMostBytes.
constexpr std::optional<uint64_t> checked_bytes(uint64_t rows, uint64_t cols, uint32_t dtype) {
  const std::optional<uint64_t> count = checked_product(rows, cols);
  if (!count || dtype_bytes(dtype) == 0) return std::nullopt;
  const std::optional<uint64_t> bytes = checked_product(*count, dtype_bytes(dtype));
  if (!bytes || *bytes > kMostBytes) return std::nullopt;
  return bytes;
}

namespace validate_detail {

// The path of a field within its struct; it is made into text only for a fault.
struct Place {
  const Place* parent = nullptr;
  const char* field = "";
  uint64_t index = ~uint64_t{0};  // the default: no index

  std::string text() const {
    std::string all = parent != nullptr ? sdk::text(parent->text(), ".", field) : sdk::text(field);
    return index == ~uint64_t{0} ? all : sdk::text(all, "[", index, "]");
  }
  Place at(const char* child) const { return {this, child}; }
};

template <typename Value>
Fault fault(const Place& place, const Value& value, std::string expected) {
  return {place.text(), text(value), std::move(expected)};
}

inline std::string up_to(uint64_t most) {
  return text("at most ", most);
}

// Checks an array of pointers: it has at most `most` entries, and no entry is null.
template <typename T>
std::optional<Fault> fault_in_array(const T* const* entries, uint64_t count, uint64_t most,
                                    const Place& parent, const char* field, const char* n_field) {
  const auto place = [&](const char* name, uint64_t index = ~uint64_t{0}) {
    return Place{parent.field[0] != '\0' ? &parent : nullptr, name, index};
  };
  if (count > most) return fault(place(n_field), count, up_to(most));
  if (count > 0 && entries == nullptr)
    return fault(place(field), "null", text("an array of ", count, ", as ", n_field, " says"));
  for (uint64_t i = 0; i < count; ++i) {
    if (entries[i] == nullptr) return fault(place(field, i), "null", "a struct");
    // `flags` is the last field of these structs in ABI 0.1.
    const uint64_t size = entries[i]->struct_size;
    if (!PENSTOCK_HAS_FIELD(entries[i], T, flags) || size > kMostPublishedBytes) {
      const Place entry = place(field, i);
      return fault(entry.at("struct_size"), size,
                   text(sizeof(T), ": the sizeof of the program that made it"));
    }
  }
  return std::nullopt;
}

inline std::optional<Fault> fault_in_name(penstock_str name, const Place& place) {
  if (name.size == 0) return fault(place, "empty", "a name");
  if (name.size > kMostNameBytes)
    return fault(place, text(name.size, " bytes long"), up_to(kMostNameBytes));
  if (name.data == nullptr) return fault(place, "null", text("a text of ", name.size, " bytes"));
  for (const char c : view(name))
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return fault(place, "a text with control characters", "a name that can be printed");
  return std::nullopt;
}

inline std::optional<Fault> fault_in_dtype(uint32_t dtype, const Place& place) {
  if (dtype_bytes(dtype) != 0) return std::nullopt;
  return fault(place, dtype, "an element type of base.h (PENSTOCK_FLOAT32 is 1)");
}

inline std::optional<Fault> fault_in_flags(uint32_t flags, uint32_t known, const Place& place) {
  if ((flags & ~known) == 0) return std::nullopt;
  return fault(place, flags, known == 0 ? "0" : text("bits of ", known, " only"));
}

inline std::optional<Fault> fault_in_states(const penstock_state_declaration* const* states,
                                            uint64_t n_states) {
  if (auto found = fault_in_array(states, n_states, kMostStates, {}, "states", "n_states"))
    return found;
  for (uint64_t i = 0; i < n_states; ++i) {
    const penstock_state_declaration& state = *states[i];
    const Place place{nullptr, "states", i};
    if (auto found = fault_in_name(state.name, place.at("name"))) return found;
    for (uint64_t k = 0; k < i; ++k)
      if (view(states[k]->name) == view(state.name))
        return fault(place.at("name"),
                     text("'", view(state.name), "', which is already the name of state ", k),
                     "a name of its own");
    if (auto found = fault_in_dtype(state.dtype, place.at("dtype"))) return found;
    if (!checked_bytes(state.rows, state.cols, state.dtype))
      return fault(place,
                   text("'", view(state.name), "' of ", state.rows, " x ", state.cols,
                        " elements of ", dtype_bytes(state.dtype), " bytes"),
                   text("at most ", kMostBytes, " bytes"));
    if (state.state_class < PENSTOCK_STATE_MASS || state.state_class > PENSTOCK_STATE_LOCAL)
      return fault(place.at("state_class"), state.state_class,
                   "mass (1), replicated (2), soft (3) or local (4)");
    const bool is_local =
        state.state_class == PENSTOCK_STATE_MASS || state.state_class == PENSTOCK_STATE_LOCAL;
    if (is_local && state.on_resize > PENSTOCK_RESIZE_REFUSE)
      return fault(place.at("on_resize"), state.on_resize, "sum (1), drop (2) or refuse (3)");
    if (auto found = fault_in_flags(state.flags, 0, place.at("flags"))) return found;
  }
  return std::nullopt;
}

inline std::optional<Fault> fault_in_scratch(uint64_t bytes) {
  if (bytes <= kMostBytes) return std::nullopt;
  return fault({nullptr, "scratch_bytes"}, bytes, up_to(kMostBytes));
}

inline std::optional<Fault> fault_in_section(const penstock_section_bound& section,
                                             uint32_t combine, const Place& place) {
  if (auto found = fault_in_dtype(section.dtype, place.at("dtype"))) return found;
  if (!checked_bytes(section.capacity, 1, section.dtype))
    return fault(place.at("capacity"), section.capacity,
                 text(up_to(kMostBytes / dtype_bytes(section.dtype)), " elements of its dtype"));
  if (combine == PENSTOCK_COMBINE_GATHER && section.capacity > kMostGathered)
    return fault(place.at("capacity"), section.capacity,
                 text(up_to(kMostGathered), " in a gathered round, whose counts have 32 bits"));
  if (section.role < PENSTOCK_ROLE_VALUES || section.role > PENSTOCK_ROLE_OTHER)
    return fault(place.at("role"), section.role, "values (1) to other (6)");
  return fault_in_flags(section.flags, PENSTOCK_SECTION_EXACT, place.at("flags"));
}

inline std::optional<Fault> fault_in_round(const penstock_round& round, bool is_last,
                                           const Place& place) {
  const bool sums = round.combine == PENSTOCK_COMBINE_SUM;
  if (!sums && round.combine != PENSTOCK_COMBINE_GATHER)
    return fault(place.at("combine"), round.combine, "sum (1) or gather (2)");
  if (is_last && round.result != PENSTOCK_RESULT_MEAN && round.result != PENSTOCK_RESULT_FINAL)
    return fault(place.at("result"), round.result, "mean (1) or final (2) in the last round");
  if (sums && round.reduction > PENSTOCK_REDUCE_PRODUCT)
    return fault(place.at("reduction"), round.reduction,
                 "a PENSTOCK_REDUCE_* of collective.h, or 0");
  if (auto found = fault_in_flags(
          round.flags, PENSTOCK_ROUND_SAME_BITS | PENSTOCK_ROUND_ALL_PAYLOADS, place.at("flags")))
    return found;
  if (auto found = fault_in_array(round.sections, round.n_sections, kMostSections, place,
                                  "sections", "n_sections"))
    return found;
  for (uint64_t s = 0; s < round.n_sections; ++s) {
    const Place section{&place, "sections", s};
    if (auto found = fault_in_section(*round.sections[s], round.combine, section)) return found;
    if (sums && round.sections[s]->dtype != round.sections[0]->dtype)
      return fault(section.at("dtype"), round.sections[s]->dtype,
                   text(round.sections[0]->dtype,
                        ": all sections of a round that is summed have one dtype"));
  }
  return std::nullopt;
}

}  // namespace validate_detail

// ---- Compressors ----

inline std::optional<Fault> fault_in(const penstock_compressor_need& need) {
  using namespace validate_detail;
  if (auto found =
          fault_in_array(need.rounds, need.n_rounds, kMostRounds, {}, "rounds", "n_rounds"))
    return found;
  uint64_t bytes = 0;  // cannot wrap: kMostRounds * kMostSections * kMostBytes is 2^52
  for (uint64_t r = 0; r < need.n_rounds; ++r) {
    const penstock_round& round = *need.rounds[r];
    if (auto found = fault_in_round(round, r + 1 == need.n_rounds, {nullptr, "rounds", r}))
      return found;
    for (uint64_t s = 0; s < round.n_sections; ++s)
      bytes += round.sections[s]->capacity * dtype_bytes(round.sections[s]->dtype);
  }
  if (bytes > kMostBytes)
    return fault({nullptr, "rounds"}, text(bytes, " bytes in all"), up_to(kMostBytes));
  if (auto found = fault_in_states(need.states, need.n_states)) return found;
  if (auto found = fault_in_scratch(need.scratch_bytes)) return found;
  if (need.period > kMostPhases)
    return fault({nullptr, "period"}, need.period, text("1 to ", kMostPhases, " phases"));
  if (need.scope > PENSTOCK_SCOPE_BUCKET)
    return fault({nullptr, "scope"}, need.scope, "item (0) or bucket (1)");
  return fault_in_flags(need.flags, PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR,
                        {nullptr, "flags"});
}

// Compares `later` with the need of phase 0: period and states must be equal in all phases.
inline std::optional<Fault> fault_between_phases(const penstock_compressor_need& first,
                                                 const penstock_compressor_need& later) {
  using namespace validate_detail;
  const auto phases = [](uint32_t period) { return period == 0 ? 1u : period; };
  if (phases(first.period) != phases(later.period))
    return fault({nullptr, "period"}, later.period, text(first.period, " as in phase 0"));
  if (first.n_states != later.n_states)
    return fault({nullptr, "n_states"}, later.n_states, text(first.n_states, " as in phase 0"));
  for (uint64_t i = 0; i < first.n_states; ++i) {
    const penstock_state_declaration &a = *first.states[i], &b = *later.states[i];
    const auto described = [](const penstock_state_declaration& state) {
      return text("'", view(state.name), "' of ", state.rows, " x ", state.cols,
                  " elements of dtype ", state.dtype, ", class ", state.state_class);
    };
    if (view(a.name) != view(b.name) || a.rows != b.rows || a.cols != b.cols ||
        a.dtype != b.dtype || a.state_class != b.state_class)
      return fault({nullptr, "states", i}, described(b), text(described(a), " as in phase 0"));
  }
  return std::nullopt;
}

// ---- Memories ----

// `item`: the item of the need; only its numel is read. `table`: the table of the memory; it must
// have the functions that the need requires.
inline std::optional<Fault> fault_in(const penstock_memory_need& need, const penstock_memory& table,
                                     const penstock_item& item) {
  using namespace validate_detail;
  if (auto found = fault_in_states(need.states, need.n_states)) return found;
  // Checks that `index` names a float32 state with one element for each element of the gradient.
  const auto fault_in_index = [&](uint32_t index, const char* field) -> std::optional<Fault> {
    const Place place{nullptr, field};
    if (index >= need.n_states)
      return fault(place, index, text("the index of one of its ", need.n_states, " states"));
    const penstock_state_declaration& state = *need.states[index];
    if (state.dtype == PENSTOCK_FLOAT32 && state.rows * state.cols == item.numel)
      return std::nullopt;
    return fault(place,
                 text(index, ", a state of ", state.rows, " x ", state.cols, " elements of dtype ",
                      state.dtype),
                 text("a state of ", item.numel, " float32, one for each element of the gradient"));
  };
  if (need.work_is > PENSTOCK_WORK_IS_SCRATCH)
    return fault({nullptr, "work_is"}, need.work_is, "grad (0), state (1) or scratch (2)");
  if (need.work_is == PENSTOCK_WORK_IS_STATE)
    if (auto found = fault_in_index(need.work_state, "work_state")) return found;
  if (need.form > PENSTOCK_FORM_NESTEROV)
    return fault({nullptr, "form"}, need.form, "none (0) to Nesterov (3)");
  if (need.form == PENSTOCK_FORM_HEAVY_BALL || need.form == PENSTOCK_FORM_NESTEROV)
    if (auto found = fault_in_index(need.momentum_state, "momentum_state")) return found;
  if (need.form != PENSTOCK_FORM_NONE && !std::isfinite(need.beta))
    return fault({nullptr, "beta"}, need.beta, "a finite number");
  if (need.form == PENSTOCK_FORM_AFFINE && !std::isfinite(need.gamma))
    return fault({nullptr, "gamma"}, need.gamma, "a finite number");
  if (need.n_scalars > kMostScalars)
    return fault({nullptr, "n_scalars"}, need.n_scalars, up_to(kMostScalars));
  if (need.n_scalars > 0 &&
      !(PENSTOCK_HAS_FIELD(&table, penstock_memory, measure) && table.measure != nullptr))
    return fault({nullptr, "n_scalars"}, need.n_scalars, "0, as its table has no measure");
  for (uint64_t i = 0; i < need.n_states; ++i) {
    if (need.states[i]->state_class != PENSTOCK_STATE_MASS) continue;
    const auto lacks = [&](const char* member) {
      return fault(Place{nullptr, "states", i}.at("state_class"), "mass (1)",
                   text("another class, or a table with ", member,
                        ": a memory that keeps gradients must be able to take them back"));
    };
    if (!(PENSTOCK_HAS_FIELD(&table, penstock_memory, give_back) && table.give_back != nullptr))
      return lacks("give_back");
    if (!(PENSTOCK_HAS_FIELD(&table, penstock_memory, drain) && table.drain != nullptr))
      return lacks("drain");
  }
  return fault_in_flags(need.flags,
                        PENSTOCK_MEMORY_OWNS_MOMENTUM | PENSTOCK_MEMORY_DECODED_RECORD |
                            PENSTOCK_MEMORY_ADDS_REST | PENSTOCK_MEMORY_SHIFTS,
                        {nullptr, "flags"});
}

// ---- Collectives ----

inline std::optional<Fault> fault_in(const penstock_collective_need& need) {
  using namespace validate_detail;
  if (auto found = fault_in_states(need.states, need.n_states)) return found;
  for (uint64_t i = 0; i < need.n_states; ++i)
    if (need.states[i]->state_class != PENSTOCK_STATE_SOFT)
      return fault(Place{nullptr, "states", i}.at("state_class"), need.states[i]->state_class,
                   "soft (3): a composite's states may be lost");
  return fault_in_scratch(need.scratch_bytes);
}

// ---- Schedulers ----

// Checks one bucket alone; the core compares the whole plan with the model.

inline std::optional<Fault> fault_in(const penstock_bucket& bucket) {
  using namespace validate_detail;
  if (bucket.n_pieces > kMostPieces)
    return fault({nullptr, "n_pieces"}, bucket.n_pieces, up_to(kMostPieces));
  if (bucket.n_pieces > 0 && bucket.pieces == nullptr)
    return fault({nullptr, "pieces"}, "null", text("an array of ", bucket.n_pieces));
  for (uint64_t i = 0; i < bucket.n_pieces; ++i)
    if (bucket.pieces[i] == nullptr) return fault({nullptr, "pieces", i}, "null", "a piece");
  if (bucket.route > PENSTOCK_ROUTE_SHARD)
    return fault({nullptr, "route"}, bucket.route, "flat (1) to shard (4), or 0");
  if (bucket.launch > PENSTOCK_LAUNCH_NEXT_FORWARD)
    return fault({nullptr, "launch"}, bucket.launch, "ready (1) to next forward (3), or 0");
  return fault_in_flags(bucket.flags, 0, {nullptr, "flags"});
}

}  // namespace penstock::sdk
