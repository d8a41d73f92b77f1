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
  stage_in(bucket);
  if (bucket.prologue != nullptr) {
    PENSTOCK_CO_TRY(measure(bucket));
    send_prologue(bucket);
    co_await bucket.arrival();
    PENSTOCK_CO_TRY(bucket.failure);
    read_prologue(bucket);
  }
  PENSTOCK_CO_TRY(compensate(bucket));

  // From here on work holds the gradient and what was kept of earlier ones.
  uint32_t round = 0;
  bool owes_first_leg = bucket.splits();
  for (; round < bucket.n_rounds && !bucket.is_void; ++round) {
    PENSTOCK_CO_TRY(encode(bucket, round));
    if (bucket.splits()) {
      const size_t halves = bucket.messages[round].size() / 2;
      send_round(bucket, round, 0, halves);
      co_await bucket.arrival();
      PENSTOCK_CO_TRY(bucket.failure);
      bucket.context.first_leg_arrived(bucket);
      owes_first_leg = false;
      co_await bucket.next_forward();
      send_round(bucket, round, halves, halves);
    } else {
      send_round(bucket, round, 0, bucket.messages[round].size());
    }
    co_await bucket.arrival();
    PENSTOCK_CO_TRY(bucket.failure);
    PENSTOCK_CO_TRY(read_round(bucket, round));
    if (bucket.is_void) break;
    PENSTOCK_CO_TRY(decode(bucket, round));
  }
  // Backward waits for it, also where the prologue made the bucket void and nothing was sent.
  if (owes_first_leg) bucket.context.first_leg_arrived(bucket);

  // From here on work holds only what stays here, and out the sum over ranks.
  if (bucket.is_void) {
    skip_from(bucket, round + (bucket.rounds_encoded > round ? 1 : 0));
    PENSTOCK_CO_TRY(give_up(bucket));
  } else {
    PENSTOCK_CO_TRY(keep_refused(bucket));
    PENSTOCK_CO_TRY(settle(bucket));
  }
  stage_out(bucket);
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
