// Chooses which of two paths represents the messages of a set in its plan: device to device, or
// through host memory. The measured lines of that path are used.
#pragma once

#include "core/tuning/link_line.hpp"

namespace penstock {

// The bytes that a rank hands over in a step, by combine rule and by path.
struct BytesByPath {
  struct Path {
    double summed = 0, gathered = 0;
  };
  Path direct, host;
};

// A scheduler receives one line for each pattern and size. For each combine rule, the path that
// carries most of its bytes gives the line. A combine rule without bytes, and the line without a
// pattern, use the path that carries most bytes of all.
struct DirectShare {
  explicit DirectShare(const BytesByPath& bytes);
  bool sums, gathers, most;
};

// Replaces the lines of `level` in `links` and `lines` by the measured lines of the direct path, if
// it has them; other levels keep their lines.
void take_direct(const LinkLines& direct, uint32_t level, const DirectShare& share,
                 std::vector<planning::LinkEntry>& links, std::vector<planning::LinkEntry>& lines);

}  // namespace penstock
