// What ranks that have joined hear of the steps of others, and what they do in them.
#include "core/base/bytes.hpp"
#include "core/set/step.hpp"

namespace penstock {

void Step::tell_begun() const {
  StepTold told{context_.name, group_.ranks(), context_.attempt, false, {}};
  ByteWriter writer(told.facts);
  writer.put(context_.step.grad_scale);
  for (const auto& gradient : gradients_) writer.put(gradient->learning_rate);
  services_.control.tell_step(std::move(told));
}

void Step::tell_where() {
  const Lock lock(mutex_);
  if (opened_) tell_begun();
}

void Step::tell_end(const std::vector<uint8_t>& forgotten) {
  services_.control.tell_step({context_.name, group_.ranks(), context_.attempt, true,
                               std::string(forgotten.begin(), forgotten.end())});
}

Status Step::begin_with_zeros(std::string_view facts) {
  {
    const Lock lock(mutex_);
    ByteReader reader(facts);
    context_.step.grad_scale = reader.get<double>();
    for (const auto& gradient : gradients_) gradient->learning_rate = reader.get<double>();
    if (!reader.at_end())
      return invalid_payload("set '{}', step {}: {} bytes do not tell the rates of {} gradients",
                             context_.name, context_.step.index, facts.size(), gradients_.size());
  }
  PENSTOCK_TRY(close());
  launch_deferred();
  return {};
}

}  // namespace penstock
