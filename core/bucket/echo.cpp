#include "core/bucket/echo.hpp"

#include "core/bucket/exchange.hpp"

namespace penstock {
Echo::Echo(Leg& leg, uint32_t round)
    : RoundStage(leg, round, "echo"), messages_(leg.sent_together(round)) {}

Status Echo::begin(BucketRun& bucket) {
  PENSTOCK_TRY(prepare(bucket, leg_, round_, messages_));
  for (MessageRun* message : messages_) message->echo(round_);
  return {};
}

}  // namespace penstock
