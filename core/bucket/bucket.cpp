#include "core/bucket/bucket.hpp"

#include "core/bucket/engine.hpp"
#include "core/bucket/placement.hpp"

namespace penstock {

BucketRun::BucketRun(SetContext& context, planning::Bucket plan, uint32_t number)
    : context(context), plan(std::move(plan)), number(number) {}
BucketRun::~BucketRun() = default;

void BucketRun::message_finished(Status status) {
  if (!status.ok()) {
    const Lock lock(failure_mutex);
    if (failure.ok()) failure = std::move(status);
  }
  if (pending.fetch_sub(1) == 1) context.engine->resume(*this);
}

bool BucketRun::park(Stage::Wait wait) {
  switch (wait) {
    case Stage::Wait::nothing:
      return false;
    case Stage::Wait::messages:
      // The last to finish resumes the job: a message, or this thread if all messages have ended.
      return pending.fetch_sub(1) != 1;
    case Stage::Wait::device:
      context.engine->park_on_device(*this);
      return true;
    case Stage::Wait::next_forward:
      if (launched.load()) return false;
      waits_for_launch.store(true);
      // If a launch came before the store, it saw no waiter: this thread takes the flag and goes
      // on. If it came later, it took the flag and resumes the job.
      return !(launched.load() && waits_for_launch.exchange(false));
    case Stage::Wait::yield:
      context.engine->resume(*this);
      return true;
  }
  return false;
}

void BucketRun::launch() {
  launched.store(true);
  if (!waits_for_launch.exchange(false)) return;
  context.engine->resume(*this);
  context.engine->announce();
}

WorkPlace& SetContext::place_of(const Gradient& gradient) {
  return gradient.work_place != nullptr ? *gradient.work_place : host;
}

uint64_t& BucketRun::time_of(Stage::Part part) {
  switch (part) {
    case Stage::Part::encode:
      return encode_us;
    case Stage::Part::exchange:
      return exchange_us;
    case Stage::Part::decode:
      return decode_us;
    case Stage::Part::none:
      break;
  }
  return other_us;
}

void* PieceRun::storage() const {
  return static_cast<std::byte*>(gradient->data) + piece.first * dtype_bytes(gradient->dtype);
}

void* ItemRun::values() const {
  if (share != nullptr) return share;
  return static_cast<std::byte*>(of->values) + (range.first - of->piece.first) * dtype_bytes(dtype);
}

}  // namespace penstock
