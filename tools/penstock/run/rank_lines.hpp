// The output of all ranks as mpirun forwards it, taken apart into the lines of each rank.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace penstock::command {

// What stands for mpirun itself where a rank is expected.
inline constexpr int kMpirun = -1;

// One stream of `mpirun --tag-output`. mpirun writes "[job,rank]<stream>:" before each line and
// before each piece in which a line arrives; what bears no tag comes from mpirun itself. Pieces of
// several ranks may alternate within a line: lines are put together per rank.
class RankLines {
 public:
  // `text` is a whole line with its "\n" or "\r" (a progress bar's), or, after flush, the beginning
  // of one.
  using Sink = std::function<void(int rank, std::string_view text)>;

  explicit RankLines(Sink sink) : sink_(std::move(sink)) {}

  void feed(std::string_view bytes);
  // Hands on unfinished lines, except those that may hold `kept` or the beginning of it.
  void flush(std::string_view kept = {});

 private:
  void append(std::string_view text);
  void hand_on_lines(int rank, std::string& line);

  Sink sink_;
  std::string unread_;  // what may be the beginning of a tag
  int from_ = kMpirun;
  std::map<int, std::string> unfinished_;
};

// Writes lines to a file descriptor, each after "[rank] " if wanted. A line of another rank never
// continues an unfinished one.
class RankWriter {
 public:
  RankWriter(int fd, bool prefix) : fd_(fd), prefix_(prefix) {}
  void write(int rank, std::string_view text);
  // Ends a line that stands unfinished.
  void end_line();

 private:
  int fd_;
  bool prefix_;
  bool unfinished_ = false;
  int last_ = kMpirun;
};

// True for lines that Open MPI prints in runs that are all right, or about a rank's end that is
// told better elsewhere.
bool is_noise(std::string_view line);

}  // namespace penstock::command
