// Splits the output of all ranks, as mpirun forwards it, into the lines of each rank.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace penstock::command {

// The rank number that stands for mpirun itself.
inline constexpr int kMpirun = -1;

// One stream of `mpirun --tag-output`. mpirun writes "[job,rank]<stream>:" before each line and
// before each part of a line that arrives separately. Text without a tag comes from mpirun itself.
// Parts of several ranks may alternate within a line, so this class joins the lines per rank.
class RankLines {
 public:
  // `text` is a whole line with its "\n" or its "\r" (of a progress bar). After flush() it may be
  // the beginning of a line.
  using Sink = std::function<void(int rank, std::string_view text)>;

  explicit RankLines(Sink sink) : sink_(std::move(sink)) {}

  void feed(std::string_view bytes);
  // Passes unfinished lines to the sink, except lines that may contain `kept` or its beginning.
  void flush(std::string_view kept = {});

 private:
  void append(std::string_view text);
  void hand_on_lines(int rank, std::string& line);

  Sink sink_;
  std::string unread_;  // text that may be the beginning of a tag
  int from_ = kMpirun;
  std::map<int, std::string> unfinished_;
};

// Writes lines to a file descriptor, with "[rank] " before each if `prefix` is set. A line of
// another rank never continues an unfinished line.
class RankWriter {
 public:
  RankWriter(int fd, bool prefix) : fd_(fd), prefix_(prefix) {}
  void write(int rank, std::string_view text);
  // Ends the last line if it is unfinished.
  void end_line();

 private:
  int fd_;
  bool prefix_;
  bool unfinished_ = false;
  int last_ = kMpirun;
};

// True for lines that Open MPI prints in healthy runs, and for its lines about a rank's end, which
// other messages report better.
bool is_noise(std::string_view line);

}  // namespace penstock::command
