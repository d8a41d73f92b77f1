#include "core/bucket/on_device/watch.hpp"

#include "core/bucket/on_device/device.hpp"
#include "core/bucket/placement.hpp"

#include <cmath>

namespace penstock {
namespace {

Status make_watch(const BucketRun& bucket, std::unique_ptr<Stopwatch>& watch) {
  PENSTOCK_ASSIGN(Stopwatch made, Stopwatch::make(bucket.context.residents->device()));
  watch = std::make_unique<Stopwatch>(std::move(made));
  return {};
}

Status make_call_watches(const BucketRun& bucket, std::vector<CompressorCall>& calls) {
  for (CompressorCall& call : calls)
    if (call.on_device) PENSTOCK_TRY(make_watch(bucket, call.watch));
  return {};
}

// Of a stretch that was not marked: nothing.
Status add_watched(Stopwatch& watch, uint64_t& whole_us) {
  std::optional<double> us;
  PENSTOCK_TRY(watch.take(us));
  if (us) whole_us += static_cast<uint64_t>(std::llround(*us));
  return {};
}

Status take_calls(std::vector<CompressorCall>& calls) {
  for (CompressorCall& call : calls) {
    if (call.watch == nullptr) continue;
    call.took_us = 0;
    PENSTOCK_TRY(add_watched(*call.watch, call.took_us));
  }
  return {};
}

}  // namespace

Status StageWatches::make(BucketRun& bucket) {
  for (const auto& stage : bucket.program) {
    auto& watch = watches_.emplace_back();
    const Stage::Part part = stage->part();
    if (part != Stage::Part::encode && part != Stage::Part::decode) continue;
    PENSTOCK_TRY(make_watch(bucket, watch));
    last_ = watches_.size() - 1;
  }
  for (auto& coding : bucket.codings) {
    PENSTOCK_TRY(make_call_watches(bucket, coding->encode_calls));
    PENSTOCK_TRY(make_call_watches(bucket, coding->decode_calls));
  }
  bucket.counts_host_time = false;
  return {};
}

Status StageWatches::take(BucketRun& bucket, bool& found) {
  // Behind the last of a step on the stream all others are done.
  uint64_t last_us = 0;
  std::optional<double> us;
  PENSTOCK_TRY(watches_[last_]->take(us));
  found = us.has_value();
  if (!found) return {};
  last_us = static_cast<uint64_t>(std::llround(*us));
  bucket.time_of(bucket.program[last_]->part()) += last_us;
  for (size_t i = 0; i < last_; ++i)
    if (watches_[i] != nullptr)
      PENSTOCK_TRY(add_watched(*watches_[i], bucket.time_of(bucket.program[i]->part())));
  for (auto& coding : bucket.codings) {
    PENSTOCK_TRY(take_calls(coding->encode_calls));
    PENSTOCK_TRY(take_calls(coding->decode_calls));
  }
  return {};
}

Status TakeTimes::begin(BucketRun& bucket) {
  return bucket.placement->take_times();
}

}  // namespace penstock
