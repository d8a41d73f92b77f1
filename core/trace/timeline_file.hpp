// The file of a timeline: a JSON object that is whole after every append, so that a run that is
// killed, or a disk that is full, leaves a trace that viewers open.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

// One thread at a time.
class TimelineFile {
 public:
  TimelineFile() = default;
  ~TimelineFile() { close(); }
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  // Makes an empty trace at `path`. NOT_FOUND where it cannot be written.
  Status open(const std::string& path);
  // Appends events, JSON objects with commas between them. On an error the file holds what it held
  // before.
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
