// The life of a bucket in one step.

#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"

namespace penstock {

void* Job::promise_type::operator new(size_t bytes, BucketRun& bucket) {
  return bucket.frame.take(bytes);
}

#define PENSTOCK_CO_TRY(expression)                                 \
  do {                                                              \
    if (Status co_try_status = (expression); !co_try_status.ok()) { \
      co_return co_try_status;                                      \
    }                                                               \
  } while (false)

Job run_bucket(BucketRun& bucket) {
  take_in(bucket);
  if (bucket.prologue != nullptr) {
    PENSTOCK_CO_TRY(measure(bucket));
    send_prologue(bucket);
    co_await bucket.arrival();
    PENSTOCK_CO_TRY(bucket.failure);
    read_prologue(bucket);
  }
  PENSTOCK_CO_TRY(compensate(bucket));

  // From here on work holds the gradient and what was kept of earlier ones.
  bool owes_backward = bucket.defers();
  for (Leg& leg : bucket.legs) {
    if (leg.kind.waits_for_forward && !bucket.is_void) {
      bucket.context.listener->backward_part_ended(bucket);
      owes_backward = false;
      co_await bucket.next_forward();
    }
    for (uint32_t round = 0; round < leg.messages.size() && !bucket.is_void; ++round) {
      if (leg.kind.encodes) PENSTOCK_CO_TRY(encode(bucket, round));
      send_round(bucket, leg, round);
      co_await bucket.arrival();
      PENSTOCK_CO_TRY(bucket.failure);
      note_arrival(bucket);
      if (!leg.kind.decodes) continue;
      PENSTOCK_CO_TRY(read_round(bucket, leg, round));
      if (!bucket.is_void) PENSTOCK_CO_TRY(decode(bucket, round));
    }
  }
  // Backward waits for it, also where the prologue made the bucket void and nothing was sent.
  if (owes_backward) bucket.context.listener->backward_part_ended(bucket);

  // From here on work holds only what stays here, and out the sum over ranks.
  if (bucket.is_void) {
    skip_unsent(bucket);
    PENSTOCK_CO_TRY(give_up(bucket));
  } else {
    PENSTOCK_CO_TRY(keep_refused(bucket));
    PENSTOCK_CO_TRY(settle(bucket));
  }
  give_out(bucket);
  co_return Status();
}

// ---- parking ----

void BucketRun::message_finished(Status status) {
  if (!status.ok()) {
    std::lock_guard lock(failure_mutex);
    if (failure.ok()) failure = std::move(status);
  }
  if (pending.fetch_sub(1) == 1) context.engine->resume(*this);
}

bool BucketRun::Arrival::await_suspend(std::coroutine_handle<>) noexcept {
  // The last one out resumes: the messages, or this thread when they have all ended already.
  return bucket.pending.fetch_sub(1) != 1;
}

bool BucketRun::Launch::await_suspend(std::coroutine_handle<>) noexcept {
  bucket.waits_for_launch.store(true);
  // A launch between the two lines has seen no waiter, or takes the flag before we do.
  return !(bucket.launched.load() && bucket.waits_for_launch.exchange(false));
}

void BucketRun::launch() {
  launched.store(true);
  if (!waits_for_launch.exchange(false)) return;
  context.engine->resume(*this);
  context.engine->announce();
}

Status MessageRun::collect(Channel& channel, penstock_ticket* ticket) {
  if (kind != Kind::sparse || !PENSTOCK_HAS_MEMBER(channel.table, penstock_collective, returned))
    return {};
  for (size_t position : items) bucket->items[position].refused.absent();
  return from_c(channel.table->returned(channel.instance, ticket, refused_pointers.data(),
                                        refused_pointers.size()));
}

void MessageRun::finished(Status status) {
  bucket->message_finished(std::move(status));
}

void* ItemRun::storage() const {
  return static_cast<std::byte*>(gradient->data) + piece.first * dtype_bytes(gradient->dtype);
}

}  // namespace penstock
