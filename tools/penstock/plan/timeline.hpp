// The timeline of a step as spans: what HTML pages and Chrome traces draw.
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

// Microseconds from the start of backward.
struct Span {
  Lane lane;
  double start = 0, end = 0;
  std::string name;  // "bucket 3: 12 gradients, 25 MB"
};

// Of the first phase, lane by lane. Spans of no length are left out.
std::vector<Span> spans_of(const Prediction& outcome, const ModelProfile& profile);

// A process for each scheme and a thread for each lane, as chrome://tracing and Perfetto read it.
Json chrome_trace(const std::vector<SchemeFile>& schemes, const std::vector<Prediction>& outcomes,
                  const ModelProfile& profile);

}  // namespace penstock::command
