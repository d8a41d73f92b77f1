// The life of a bucket in one step.

#include "core/bucket/calls.hpp"
#include "core/bucket/device.hpp"
#include "core/bucket/direct.hpp"
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
  PENSTOCK_CO_TRY(look_on_device(bucket));
  co_await bucket.gradients_arrived();
  PENSTOCK_CO_TRY(bucket.failure);
  PENSTOCK_CO_TRY(take_in(bucket));
  bool owes_backward = bucket.defers();
  for (Leg& leg : bucket.legs) {
    if (bucket.is_void && !leg.tells) continue;
    if (leg.waits_for_forward && leg.sends()) {
      if (owes_backward) bucket.context.listener->backward_part_ended(bucket);
      owes_backward = false;
      co_await bucket.next_forward();
    }
    if (leg.kind.encodes) {
      PENSTOCK_CO_TRY(look_at_sums(bucket, *leg.coding));
      co_await bucket.sums_looked_at();
      PENSTOCK_CO_TRY(bucket.failure);
      PENSTOCK_CO_TRY(begin(bucket, *leg.coding));
      if (leg.coding->prologue != nullptr) {
        PENSTOCK_CO_TRY(measure(bucket, *leg.coding));
        co_await bucket.scalars_brought();
        PENSTOCK_CO_TRY(bucket.failure);
        take_scalars(bucket, *leg.coding);
        send_prologue(bucket, *leg.coding);
        co_await bucket.arrival();
        PENSTOCK_CO_TRY(bucket.failure);
        PENSTOCK_CO_TRY(read_prologue(bucket, *leg.coding));
      }
      PENSTOCK_CO_TRY(compensate(bucket, *leg.coding));
    }
    // From here on work holds the gradient and what was kept of earlier ones.
    for (uint32_t round = 0; round < leg.messages.size() && (!bucket.is_void || leg.tells);
         ++round) {
      if (leg.kind.encodes) {
        PENSTOCK_CO_TRY(encode(bucket, leg, round));
        co_await bucket.counts_brought();
        PENSTOCK_CO_TRY(bucket.failure);
        PENSTOCK_CO_TRY(take_counts(bucket, leg, round));
        PENSTOCK_CO_TRY(bring_payloads(bucket, leg, round));
        co_await bucket.payloads_brought();
        PENSTOCK_CO_TRY(bucket.failure);
        note_encoded(bucket);
      }
      PENSTOCK_CO_TRY(send_round(bucket, leg, round));
      co_await bucket.arrival();
      PENSTOCK_CO_TRY(bucket.failure);
      if (has_direct(leg, round)) {
        PENSTOCK_CO_TRY(read_headers(bucket, leg, round));
        if (bucket.is_void) break;
      }
      if (takes_turn(bucket, leg, round)) {
        PENSTOCK_CO_TRY(prepare_direct(bucket, leg, round));
        send_turn(bucket, leg, round);
        co_await bucket.arrival();
        PENSTOCK_CO_TRY(bucket.failure);
        co_await bucket.sends_finished();
        PENSTOCK_CO_TRY(bucket.failure);
        send_direct(bucket, leg, round);
        co_await bucket.arrival();
        PENSTOCK_CO_TRY(bucket.failure);
        PENSTOCK_CO_TRY(look_at_indices(bucket, leg, round));
        co_await bucket.verdicts_brought();
        PENSTOCK_CO_TRY(bucket.failure);
        PENSTOCK_CO_TRY(take_verdicts(bucket, leg, round));
      }
      note_arrival(bucket);
      if (leg.waits_for_forward) {
        // What this lets go is sent before what came in is decoded: the link does not rest.
        bucket.context.listener->forward_part_arrived(bucket);
        co_await bucket.turn();
      }
      PENSTOCK_CO_TRY(read_round(bucket, leg, round));
      if (leg.kind.decodes && !bucket.is_void) PENSTOCK_CO_TRY(decode(bucket, leg, round));
    }
    if (leg.kind.decodes && !bucket.is_void) leg.coding->decoded = true;
    // Work holds only what stays here, and out the sum over ranks.
    if (leg.ends_coding && !bucket.is_void) PENSTOCK_CO_TRY(settle(bucket));
  }
  // Backward waits for it, also where the prologue made the bucket void and nothing was sent.
  if (owes_backward) bucket.context.listener->backward_part_ended(bucket);
  if (bucket.is_void) PENSTOCK_CO_TRY(give_up(bucket));
  PENSTOCK_CO_TRY(give_out(bucket));
  // Who is told of results is told where they lie.
  if (bucket.context.results_are_told) co_await bucket.results_returned();
  co_return bucket.failure;
}

BucketRun::BucketRun(SetContext& context, planning::Bucket plan, uint32_t number)
    : context(context), plan(std::move(plan)), number(number) {}
BucketRun::~BucketRun() = default;

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

void BucketRun::Turn::await_suspend(std::coroutine_handle<>) noexcept {
  bucket.context.engine->resume(bucket);
}

void BucketRun::launch() {
  launched.store(true);
  if (!waits_for_launch.exchange(false)) return;
  context.engine->resume(*this);
  context.engine->announce();
}

void BucketRun::CopiesEnd::await_suspend(std::coroutine_handle<>) noexcept {
  bucket.awaited_copies = copies;
  bucket.pieces_looked_at = 0;
  bucket.context.engine->park_on_device(bucket);
}

bool BucketRun::copies_anything(Copies copies) const {
  if (copies == Copies::of_sums) return device != nullptr && device->brings_sums;
  if (copies == Copies::of_scalars) return device != nullptr && device->brings_scalars;
  if (copies == Copies::of_counts) return device != nullptr && device->brings_counts;
  if (copies == Copies::of_payloads) return device != nullptr && device->brings_payloads;
  if (copies == Copies::of_sends) return device != nullptr && device->finishes_sends;
  if (copies == Copies::of_verdicts) return device != nullptr && device->brings_verdicts;
  return has_devices;
}

bool BucketRun::copies_have_ended(uint64_t look) {
  bool ended = false;
  failure = look_for_copies(look, ended);
  return ended || !failure.ok();
}

Status BucketRun::look_for_copies(uint64_t look, bool& ended) {
  if (device != nullptr && awaited_copies != Copies::back) {
    PENSTOCK_TRY(device->copied.query(ended));
    if (!ended) return {};
  }
  ended = true;
  if (awaited_copies != Copies::in && awaited_copies != Copies::back) return {};
  for (; pieces_looked_at < pieces.size(); ++pieces_looked_at) {
    Gradient& gradient = *pieces[pieces_looked_at].gradient;
    if (gradient.device_side == nullptr) continue;
    const auto named = [&](const Status& status) {
      return status.ok() ? status
                         : status.with_context(fmt::format("gradient '{}'", gradient.name));
    };
    if (awaited_copies == Copies::back)
      PENSTOCK_TRY(named(gradient.device_side->has_returned(ended)));
    else if (gradient.mirror != nullptr)
      PENSTOCK_TRY(named(gradient.mirror->has_arrived(look, ended)));
    if (!ended) return {};
    if (awaited_copies == Copies::in)
      gradient.ready_us = gradient.mirror != nullptr ? gradient.mirror->arrived_us() : now_us();
  }
  return {};
}

Status MessageRun::collect(Channel& channel, penstock_ticket* ticket) {
  if (kind != Kind::sparse || !PENSTOCK_HAS_MEMBER(channel.table, penstock_collective, returned))
    return {};
  for (size_t position : items) coding->items[position].refused.absent();
  return from_c(channel.table->returned(channel.instance, ticket, refused_pointers.data(),
                                        refused_pointers.size()));
}

void MessageRun::finished(Status status) {
  bucket->message_finished(std::move(status));
}

void* PieceRun::storage() const {
  return static_cast<std::byte*>(gradient->data) + piece.first * dtype_bytes(gradient->dtype);
}

void* ItemRun::values() const {
  if (share != nullptr) return share;
  return static_cast<std::byte*>(of->values) + (range.first - of->piece.first) * dtype_bytes(dtype);
}

}  // namespace penstock
