// penstock check: what every compressor must do.
#include "tools/penstock/check_exchange.hpp"

namespace penstock::command {

namespace {

// Reason why the simulated steps cannot be made with this compressor; empty where they can.
Result<std::string> not_simulated(const Subject& subject, bool keep) {
  PENSTOCK_ASSIGN(const auto instance, make_default<penstock_compressor>(subject));
  const penstock_compressor_traits& traits = instance->traits();
  if ((traits.device_types & (1u << PENSTOCK_DEVICE_CPU)) == 0)
    return std::string("it does not work on the CPU");
  if ((traits.dtypes & PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32)) == 0)
    return std::string("it does not take float32");
  if (!keep && (traits.flags & PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS) != 0)
    return std::string("it works only where a memory keeps what was not sent");
  return std::string();
}

// `body` with every awkward shape, on one and on two ranks.
template <typename Body>
Outcome for_all_shapes(const Subject& subject, bool keep, Body&& body) {
  Result<std::string> reason = not_simulated(subject, keep);
  if (!reason.ok()) return reason.status();
  if (!reason->empty()) return {Verdict::skipped, *reason};
  for (const Shape& shape : awkward_shapes())
    for (const uint32_t world : {1u, 2u}) {
      auto exchange = Exchange::make(subject, {shape}, world, keep);
      if (!exchange.ok()) return exchange.status();
      if (Status status = body(**exchange); !status.ok()) return status;
    }
  return {};
}

Status all_inputs(Exchange& exchange) {
  // Twice around all phases with each input, on states that go on.
  uint64_t index = 0;
  for (const Input input : kInputs)
    for (uint32_t i = 0; i < 2 * exchange.period(); ++i)
      PENSTOCK_TRY(exchange.step(index++, input));
  return {};
}

Outcome test_plan(const Subject& subject) {
  for (const bool keep : {true, false}) {
    Outcome outcome = for_all_shapes(subject, keep, [](Exchange&) { return Status(); });
    if (outcome.verdict == Verdict::failed) return outcome;
    if (keep && outcome.verdict == Verdict::skipped) return outcome;
  }
  return {};
}

Outcome test_round_trip(const Subject& subject) {
  return for_all_shapes(subject, false, all_inputs);
}

Outcome test_take_out(const Subject& subject) {
  return for_all_shapes(subject, true, all_inputs);
}

Outcome test_bucket(const Subject& subject) {
  Result<std::string> reason = not_simulated(subject, true);
  if (!reason.ok()) return reason.status();
  if (!reason->empty()) return {Verdict::skipped, *reason};
  const std::vector<Shape> shapes = {
      {"7", {7}}, {"33x65", {33, 65}}, {"0", {0}}, {"1000", {1000}}, {"33x65", {33, 65}}};
  auto exchange = Exchange::make(subject, shapes, 2, true);
  return exchange.ok() ? all_inputs(**exchange) : exchange.status();
}

Outcome test_faulty_payloads(const Subject& subject) {
  return for_all_shapes(subject, true, [](Exchange& exchange) -> Status {
    for (uint32_t i = 0; i < exchange.period(); ++i) PENSTOCK_TRY(exchange.faulty_step(i));
    return {};
  });
}

}  // namespace

std::vector<Test> compressor_tests() {
  return {{"plan", test_plan},
          {"round trip", test_round_trip},
          {"take-out", test_take_out},
          {"several gradients in one call", test_bucket},
          {"faulty payloads", test_faulty_payloads}};
}

}  // namespace penstock::command
