// Refuses requests that this plugin does not know: a caller that was built against newer headers
// may have set a field behind the end of the struct in this plugin's headers.
//
// A tail of zeros asks for nothing new. Any other byte is a request, and ignoring it silently would
// give wrong results: the call ends with UNIMPLEMENTED before the plugin's class receives it.
// Tables (host, key-value store, plan sink) are not arguments: the plugin may ignore new members.
#pragma once

#include <penstock/memory.h>
#include <penstock/scheduler.h>
#include <penstock/error.hpp>

#include <algorithm>

namespace penstock::sdk {

// Whether every byte behind the known fields is zero. A null argument asks for nothing.
template <typename T>
bool tail_is_zero(const T* argument) noexcept {
  if (argument == nullptr || argument->struct_size <= sizeof(T)) return true;
  const auto* bytes = reinterpret_cast<const unsigned char*>(argument);
  return std::all_of(bytes + sizeof(T), bytes + argument->struct_size,
                     [](unsigned char byte) { return byte == 0; });
}

// Throws UNIMPLEMENTED unless the tail is zero. `name`: the struct's name, for the message.
template <typename T>
void refuse_unknown(const T* argument, const char* name) {
  if (tail_is_zero(argument)) return;
  throw unimplemented(
      "the host set a field of ", name, " beyond the ", sizeof(T),
      " bytes that this plugin knows from ABI ", PENSTOCK_ABI_MAJOR, ".", PENSTOCK_ABI_MINOR,
      "; rebuild the plugin with the host's headers, or do not call the part that needs it");
}

template <typename T>
void refuse_unknown(const T* const* arguments, uint64_t n, const char* name) {
  for (uint64_t i = 0; i < n; ++i) refuse_unknown(arguments[i], name);
}

inline void check_options(const penstock_option_value* const* values, uint64_t n) {
  refuse_unknown(values, n, "penstock_option_value");
}

inline void check_items(const penstock_item* const* items, uint64_t n) {
  refuse_unknown(items, n, "penstock_item");
}

inline void check_call(const penstock_exec* exec, const penstock_step* step,
                       const penstock_item* const* items, uint64_t n_items) {
  refuse_unknown(exec, "penstock_exec");
  refuse_unknown(step, "penstock_step");
  check_items(items, n_items);
}

inline void check_payloads(const penstock_payload* const* payloads, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    if (payloads[i] == nullptr) continue;
    refuse_unknown(payloads[i], "penstock_payload");
    refuse_unknown(payloads[i]->sections, payloads[i]->n_sections, "penstock_section");
  }
}

// Checks the compressor's need that a memory receives in plan.
inline void check_need(const penstock_compressor_need& need) {
  refuse_unknown(&need, "penstock_compressor_need");
  refuse_unknown(need.states, need.n_states, "penstock_state_declaration");
  for (uint64_t r = 0; r < need.n_rounds; ++r) {
    const penstock_round& round = *need.rounds[r];
    refuse_unknown(&round, "penstock_round");
    refuse_unknown(round.sections, round.n_sections, "penstock_section_bound");
  }
}

inline void check_message(const penstock_message& message) {
  refuse_unknown(&message, "penstock_message");
  check_call(message.exec, message.step, message.items, message.n_items);
  if (message.payloads != nullptr) check_payloads(message.payloads, message.n_items);
  if (message.results != nullptr) check_payloads(message.results, message.n_items);
}

inline void check_model(const penstock_model& model) {
  refuse_unknown(&model, "penstock_model");
  refuse_unknown(model.links, model.n_links, "penstock_link");
  if (PENSTOCK_HAS_FIELD(&model, penstock_model, n_lines))
    refuse_unknown(model.lines, model.n_lines, "penstock_link");
  refuse_unknown(model.gradients, model.n_gradients, "penstock_gradient_model");
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    const penstock_gradient_model& gradient = *model.gradients[i];
    refuse_unknown(gradient.candidates, gradient.n_candidates, "penstock_candidate");
  }
}

}  // namespace penstock::sdk
