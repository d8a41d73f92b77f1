#include "core/bucket/on_device/watch.hpp"

#include "core/bucket/on_device/device.hpp"
#include "core/bucket/placement.hpp"

#include <cmath>

namespace penstock {
namespace {

Status make_watch(const Residents& residents, std::unique_ptr<Stopwatch>& watch) {
  PENSTOCK_ASSIGN(Stopwatch made, Stopwatch::make(residents.device()));
  watch = std::make_unique<Stopwatch>(std::move(made));
  return {};
}

// Adds nothing for a stage that was not marked.
Status add_watched(Stopwatch& watch, uint64_t& whole_us) {
  std::optional<double> us;
  PENSTOCK_TRY(watch.take(us));
  if (us) whole_us += static_cast<uint64_t>(std::llround(*us));
  return {};
}

}  // namespace

Status StageWatches::make_calls(const Residents& residents, std::vector<CompressorCall>& calls) {
  for (CompressorCall& call : calls) {
    if (!is_on_device(*call.place)) continue;
    PENSTOCK_ASSIGN(Stopwatch made, Stopwatch::make(residents.device()));
    auto watch = std::make_unique<StreamWatch>(std::move(made), residents.stream());
    calls_.push_back({&call, watch.get()});
    call.watch = std::move(watch);
  }
  return {};
}

Status StageWatches::make(BucketRun& bucket) {
  const Residents& residents = *bucket.context.on_device.residents;
  for (const auto& stage : bucket.program) {
    auto& watch = watches_.emplace_back();
    const Stage::Part part = stage->part();
    if (part != Stage::Part::encode && part != Stage::Part::decode) continue;
    PENSTOCK_TRY(make_watch(residents, watch));
    last_ = watches_.size() - 1;
  }
  for (auto& coding : bucket.codings) {
    PENSTOCK_TRY(make_calls(residents, coding->encode_calls));
    PENSTOCK_TRY(make_calls(residents, coding->decode_calls));
  }
  bucket.counts_host_time = false;
  return {};
}

Status StageWatches::take(BucketRun& bucket, bool& found) {
  // If the last stage of a step on the stream is done, all other stages are done.
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
  for (const auto& [call, watch] : calls_) {
    call->took_us = 0;
    PENSTOCK_TRY(add_watched(watch->stopwatch(), call->took_us));
  }
  return {};
}

Status TakeTimes::begin(BucketRun& bucket) {
  return bucket.placement->take_times();
}

}  // namespace penstock
