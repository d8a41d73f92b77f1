// The file of a timeline: a JSON object that is complete after every append, so that viewers can
// open the trace even if the run is killed or the disk is full.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

// For one thread at a time.
class TimelineFile {
 public:
  TimelineFile() = default;
  ~TimelineFile() { close(); }
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  // Creates an empty trace at `path`. NOT_FOUND if it cannot be written.
  Status open(const std::string& path);
  // Appends events: JSON objects, separated by commas. An error leaves the file unchanged.
  Status append(std::string_view events);
  void close();
  const std::string& path() const { return path_; }

 private:
  Status write_at(uint64_t offset, std::string_view text);
  std::string path_;
  int descriptor_ = -1;
  uint64_t end_of_events_ = 0;
  bool empty_ = true;
};

}  // namespace penstock
