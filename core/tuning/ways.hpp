// Which of two ways messages of a set go: from device to device, or by host memory as all others;
// and so by which of the measured lines it is planned.
#pragma once

#include "core/tuning/link_line.hpp"

namespace penstock {

// What a rank hands over in a step, by the combine rule and by way.
struct BytesByWay {
  struct Way {
    double summed = 0, gathered = 0;
  };
  Way direct, host;
};

// A scheduler is shown one line for each pattern and size, so the way that most bytes of a kind
// take stands for the kind; where there is none of it, the way of most bytes stands for it. The
// line that has no pattern is that of most bytes.
struct DirectShare {
  explicit DirectShare(const BytesByWay& bytes);
  bool sums, gathers, most;
};

// What goes directly replaces the lines of its level among `links` and `lines`, as far as it was
// measured; other levels keep theirs.
void take_direct(const LinkLines& direct, uint32_t level, const DirectShare& share,
                 std::vector<planning::LinkEntry>& links, std::vector<planning::LinkEntry>& lines);

}  // namespace penstock
