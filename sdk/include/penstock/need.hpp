// The needs that a plugin publishes at plan time, collected item by item and laid out for the C
// structs.
#pragma once

#include <penstock/memory.h>
#include <penstock/views.hpp>

#include <deque>
#include <string>
#include <vector>

namespace penstock::sdk {

// State declarations of one item.
class StateList {
 public:
  // Adds a state tensor of rows x cols; returns its index.
  uint32_t add(std::string_view name, uint64_t rows, uint64_t cols, uint32_t state_class,
               uint32_t dtype = PENSTOCK_FLOAT32, uint32_t on_resize = PENSTOCK_RESIZE_SUM) {
    penstock_state_declaration& state = states_.emplace_back();
    state.struct_size = sizeof state;
    state.name = str(names_.emplace_back(name));
    state.rows = rows;
    state.cols = cols;
    state.dtype = dtype;
    state.state_class = state_class;
    state.on_resize = on_resize;
    pointers_.push_back(&state);
    return static_cast<uint32_t>(pointers_.size() - 1);
  }
  const penstock_state_declaration* const* data() const { return pointers_.data(); }
  uint64_t size() const { return pointers_.size(); }

 private:
  std::deque<std::string> names_;
  std::deque<penstock_state_declaration> states_;
  std::vector<const penstock_state_declaration*> pointers_;
};

// One round of a method.
class Round {
 public:
  explicit Round(uint32_t combine) {
    c_.struct_size = sizeof c_;
    c_.combine = combine;
    c_.result = PENSTOCK_RESULT_MEAN;
  }
  // Adds a section of at most `capacity` elements; `exact`: always `capacity` elements.
  Round& section(uint32_t role, uint32_t dtype, uint64_t capacity, bool exact = true,
                 uint32_t split = PENSTOCK_SPLIT_NEVER) {
    penstock_section_bound& bound = bounds_.emplace_back();
    bound.struct_size = sizeof bound;
    bound.capacity = capacity;
    bound.role = role;
    bound.dtype = dtype;
    bound.split = split;
    if (exact) bound.flags = PENSTOCK_SECTION_EXACT;
    return *this;
  }
  Round& result_is_final() {
    c_.result = PENSTOCK_RESULT_FINAL;
    return *this;
  }
  Round& same_bits() {
    c_.flags |= PENSTOCK_ROUND_SAME_BITS;
    return *this;
  }
  Round& all_payloads() {
    c_.flags |= PENSTOCK_ROUND_ALL_PAYLOADS;
    return *this;
  }

 private:
  friend class CompressorNeed;
  penstock_round c_{};
  std::deque<penstock_section_bound> bounds_;
  std::vector<const penstock_section_bound*> pointers_;
};

// The compressor's need for one item in one phase.
class CompressorNeed {
 public:
  StateList states;
  uint64_t scratch_bytes = 0;
  uint64_t part_alignment = 0;
  uint32_t period = 1;
  uint32_t scope = PENSTOCK_SCOPE_ITEM;
  uint32_t flags = 0;

  Round& round(uint32_t combine) { return rounds_.emplace_back(combine); }
  uint64_t n_rounds() const { return rounds_.size(); }

  // Fills the C struct, which then points into this object. May be called once.
  void publish(penstock_compressor_need* need) {
    for (Round& round : rounds_) {
      for (const auto& bound : round.bounds_) round.pointers_.push_back(&bound);
      round.c_.sections = round.pointers_.data();
      round.c_.n_sections = round.pointers_.size();
      round_pointers_.push_back(&round.c_);
    }
    need->rounds = round_pointers_.data();
    need->n_rounds = round_pointers_.size();
    need->states = states.data();
    need->n_states = states.size();
    need->scratch_bytes = scratch_bytes;
    need->part_alignment = part_alignment;
    need->period = period;
    need->scope = scope;
    need->flags = flags;
  }

 private:
  std::deque<Round> rounds_;
  std::vector<const penstock_round*> round_pointers_;
};

// The memory's need for one item.
class MemoryNeed {
 public:
  StateList states;
  uint32_t work_is = PENSTOCK_WORK_IS_GRAD;
  uint32_t work_state = 0;
  uint32_t momentum_state = 0;
  uint32_t form = PENSTOCK_FORM_NONE;
  double beta = 1;
  double gamma = 1;
  uint32_t n_scalars = 0;
  uint32_t flags = 0;

  void publish(penstock_memory_need* need) const {
    need->states = states.data();
    need->n_states = states.size();
    need->beta = beta;
    need->gamma = gamma;
    need->work_is = work_is;
    need->work_state = work_state;
    need->momentum_state = momentum_state;
    need->form = form;
    need->n_scalars = n_scalars;
    need->flags = flags;
  }
};

}  // namespace penstock::sdk
