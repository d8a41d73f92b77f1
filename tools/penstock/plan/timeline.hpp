// The timeline of a step as spans, which HTML pages and Chrome traces draw.
#pragma once

#include "tools/penstock/output.hpp"
#include "tools/penstock/plan/simulate.hpp"

#include <string>
#include <vector>

namespace penstock::command {

enum class Lane { backward, encode, exchange, decode, forward };
inline constexpr const char* kLaneNames[] = {"backward", "encode", "exchange", "decode",
                                             "next forward"};
inline constexpr size_t kLanes = std::size(kLaneNames);

// One bar of the timeline. Times are microseconds from the start of backward.
struct Span {
  Lane lane;
  double start = 0, end = 0;
  std::string name;  // "bucket 3: 12 gradients, 25 MB"
};

// Returns the spans of the first phase, lane by lane. Spans of no length are left out.
std::vector<Span> spans_of(const Prediction& outcome, const ModelProfile& profile);

// Returns the trace that chrome://tracing and Perfetto read: a process for each scheme, a thread
// for each lane.
Json chrome_trace(const std::vector<SchemeFile>& schemes, const std::vector<Prediction>& outcomes,
                  const ModelProfile& profile);

}  // namespace penstock::command
