#include "core/bucket/watch.hpp"

#include "core/bucket/device.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

bool is_watched(const BucketRun& bucket) {
  return bucket.device != nullptr && bucket.device->settling != nullptr;
}

Status make_watch(const BucketRun& bucket, std::unique_ptr<Stopwatch>& watch) {
  PENSTOCK_ASSIGN(Stopwatch made, Stopwatch::make(bucket.context.residents->device()));
  watch = std::make_unique<Stopwatch>(std::move(made));
  return {};
}

// One call alone takes what its round does; several need marks of their own.
Status make_call_watches(const BucketRun& bucket, std::vector<CompressorCall>& calls) {
  for (CompressorCall& call : calls) {
    const auto is_beside = [&](const CompressorCall& other) {
      return other.on_device && other.round == call.round;
    };
    if (call.on_device && std::count_if(calls.begin(), calls.end(), is_beside) > 1)
      PENSTOCK_TRY(make_watch(bucket, call.watch));
  }
  return {};
}

// Of a stretch that was not marked: nothing.
Status add_watched(Stopwatch& watch, uint64_t& whole_us) {
  std::optional<double> us;
  PENSTOCK_TRY(watch.take(us));
  if (us) whole_us += static_cast<uint64_t>(std::llround(*us));
  return {};
}

Status take_watched_round(uint32_t round, std::vector<CompressorCall>& calls, Stopwatch& watch,
                          uint64_t& whole_us) {
  uint64_t took_us = 0;
  PENSTOCK_TRY(add_watched(watch, took_us));
  whole_us += took_us;
  for (CompressorCall& call : calls) {
    if (call.round != round || !call.on_device) continue;
    call.took_us = call.watch == nullptr ? took_us : 0;
    if (call.watch != nullptr) PENSTOCK_TRY(add_watched(*call.watch, call.took_us));
  }
  return {};
}

}  // namespace

Status lay_out_watches(BucketRun& bucket) {
  if (bucket.device == nullptr) return {};
  PENSTOCK_TRY(make_watch(bucket, bucket.device->settling));
  for (auto& coding : bucket.codings) {
    for (uint32_t round = 0; round < std::max(coding->n_rounds, 1u); ++round) {
      RoundWatches& watches = coding->watches.emplace_back();
      for (auto* watch :
           {&watches.encode, &watches.out, &watches.packing, &watches.checking, &watches.decode})
        PENSTOCK_TRY(make_watch(bucket, *watch));
    }
    PENSTOCK_TRY(make_call_watches(bucket, coding->encode_calls));
    PENSTOCK_TRY(make_call_watches(bucket, coding->decode_calls));
  }
  return {};
}

Status begin_watch(const BucketRun& bucket, Stopwatch* watch) {
  return watch == nullptr ? Status() : watch->begin(bucket.context.residents->stream());
}

Status end_watch(const BucketRun& bucket, Stopwatch* watch) {
  return watch == nullptr ? Status() : watch->end(bucket.context.residents->stream());
}

Status take_watched(BucketRun& bucket) {
  if (!is_watched(bucket)) return {};
  // The last of a step on the stream: behind it all others are done.
  std::optional<double> settled;
  PENSTOCK_TRY(bucket.device->settling->take(settled));
  bucket.device->has_times = settled.has_value();
  if (!settled) return {};
  for (auto& coding : bucket.codings)
    for (uint32_t round = 0; round < coding->watches.size(); ++round) {
      RoundWatches& watches = coding->watches[round];
      PENSTOCK_TRY(
          take_watched_round(round, coding->encode_calls, *watches.encode, bucket.encode_us));
      PENSTOCK_TRY(add_watched(*watches.out, bucket.encode_us));
      PENSTOCK_TRY(add_watched(*watches.packing, bucket.encode_us));
      PENSTOCK_TRY(add_watched(*watches.checking, bucket.decode_us));
      PENSTOCK_TRY(
          take_watched_round(round, coding->decode_calls, *watches.decode, bucket.decode_us));
    }
  bucket.decode_us += static_cast<uint64_t>(std::llround(*settled));
  return {};
}

void note_stage(const BucketRun& bucket, uint64_t took_us, uint64_t& whole_us) {
  if (!is_watched(bucket)) whole_us += took_us;
}

void note_call(const BucketRun& bucket, bool on_device, uint64_t took_us, uint64_t& whole_us) {
  if (is_watched(bucket) && !on_device) whole_us += took_us;
}

}  // namespace penstock
