#include "core/set/consensus.hpp"

#include <fmt/format.h>

namespace penstock {

Status Consensus::at_start(std::string_view stage, const Status& mine) const {
  const std::string topic = fmt::format("{} of set {}", stage, set_.name);
  if (!mine.ok()) return services_.control.refuse(topic, mine, group_.ranks());
  return on_text(topic, "");
}

Status Consensus::to_go_on(std::string_view topic, const Status& mine) {
  PENSTOCK_ASSIGN(const auto texts,
                  services_.control.gather(
                      fmt::format("{} of set {} at step {}", topic, set_.name, set_.step.index),
                      mine.message(), group_.ranks(), services_.limits.rendezvous_us));
  PENSTOCK_TRY(refused(mine));
  for (size_t r = 0; r < texts.size(); ++r)
    if (!texts[r].empty())
      return refused(peer_failed("set '{}', {} at step {}: rank {} cannot: {}", set_.name, topic,
                                 set_.step.index, group_.ranks()[r], texts[r]));
  return {};
}

Status Consensus::on_text(std::string_view topic, std::string_view text) const {
  return services_.control.agree(topic, text, group_.ranks(), services_.limits.rendezvous_us);
}

Result<std::string> Consensus::hear_first(std::string_view topic, std::string_view mine) const {
  return services_.control.hear_first(topic, mine, group_.ranks(), services_.limits.rendezvous_us);
}

}  // namespace penstock
