#include "core/bucket/echo.hpp"

namespace penstock {
Echo::Echo(Leg& leg, uint32_t round)
    : RoundStage(leg, round, "echo"), messages_(leg.sent_together(round)) {}

Status Echo::begin(BucketRun&) {
  for (MessageRun* message : messages_) {
    PENSTOCK_TRY(message->prepare(leg_, round_));
    message->echo(round_);
  }
  return {};
}

}  // namespace penstock
