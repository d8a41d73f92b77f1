#include "tools/penstock/plan/timeline.hpp"

#include <algorithm>

namespace penstock::command {

namespace {

std::string bucket_name(const planning::Bucket& bucket, uint64_t number,
                        const ModelProfile& profile) {
  double bytes = 0;
  for (const planning::Piece& piece : bucket.pieces)
    bytes += double(piece.numel) * dtype_bytes(profile.gradients[piece.gradient].dtype);
  const std::string what = bucket.pieces.size() == 1
                               ? profile.gradients[bucket.pieces.front().gradient].name
                               : fmt::format("{} gradients", bucket.pieces.size());
  return fmt::format("bucket {}: {}, {}", number, what, bytes_text(bytes));
}

// Adds the spans of backward: for each bucket a span that ends when the bucket is ready.
void add_backward(const planning::Forecast& times, std::vector<Span>& spans) {
  std::vector<double> ends;
  for (const planning::BucketTimes& bucket : times.buckets) ends.push_back(bucket.ready);
  ends.push_back(times.backward_end);
  std::sort(ends.begin(), ends.end());
  double start = 0;
  for (const double end : ends) {
    spans.push_back({Lane::backward, start, end, "backward"});
    start = end;
  }
}

}  // namespace

std::vector<Span> spans_of(const Prediction& outcome, const ModelProfile& profile) {
  const planning::Forecast& times = outcome.timeline;
  std::vector<Span> spans;
  add_backward(times, spans);
  uint64_t number = 0;
  for (const planning::BucketTimes& times : times.buckets) {
    const std::string name = bucket_name(outcome.plan.buckets[times.bucket], number++, profile);
    spans.push_back({Lane::encode, times.encode_start, times.encode_end, name});
    spans.push_back({Lane::exchange, times.exchange_start, times.exchange_end, name});
    spans.push_back({Lane::exchange, times.gather_start, times.gather_end, name});
    spans.push_back({Lane::decode, times.decode_start, times.decode_end, name});
  }
  const double stall = times.exposed_us - (times.forward_start - times.backward_end);
  spans.push_back({Lane::forward, times.forward_start,
                   times.forward_start + outcome.forward_us + stall, "next forward"});
  std::erase_if(spans, [](const Span& span) { return span.end <= span.start; });
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.lane < b.lane; });
  return spans;
}

Json chrome_trace(const std::vector<SchemeFile>& schemes, const std::vector<Prediction>& outcomes,
                  const ModelProfile& profile) {
  Json events = Json::array();
  const auto call_it = [&](const char* what, size_t process, size_t thread,
                           const std::string& name) {
    events.push_back({{"ph", "M"},
                      {"name", what},
                      {"pid", process},
                      {"tid", thread},
                      {"args", {{"name", name}}}});
  };
  for (size_t i = 0; i < schemes.size(); ++i) {
    call_it("process_name", i, 0, schemes[i].name);
    for (size_t lane = 0; lane < kLanes; ++lane) call_it("thread_name", i, lane, kLaneNames[lane]);
    for (const Span& span : spans_of(outcomes[i], profile))
      events.push_back({{"ph", "X"},
                        {"name", span.name},
                        {"cat", kLaneNames[size_t(span.lane)]},
                        {"pid", i},
                        {"tid", size_t(span.lane)},
                        {"ts", span.start},
                        {"dur", span.end - span.start}});
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

}  // namespace penstock::command
