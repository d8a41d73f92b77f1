// The outcome of a run's ranks: their reports, the rank that failed first, and the reason.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

using Clock = std::chrono::steady_clock;

// A token that marks reports. The program of each rank runs under a shell that writes reports to
// standard error, because that stream arrives here from every host:
//   TOKEN begins RANK PID HOST
//   TOKEN ends RANK STATUS
// The token is drawn anew for every run and the program does not see it, so no output of the
// program can be mistaken for a report.
std::string new_token();
// The script of the shell, for `sh -c`. Its arguments are the token, the program, and the arguments
// of the program.
const char* rank_script();

class RunOutcome {
 public:
  RunOutcome(int ranks, std::string token)
      : token_(std::move(token)), ranks_(static_cast<size_t>(ranks)) {}

  struct Rank {
    pid_t process = 0;  // the rank's shell on this host; 0: unknown, or on another host
    std::optional<int> status;
    std::optional<Clock::time_point> over;  // when the rank ended or its shell was gone
    Clock::time_point trouble{};            // when it printed its last traceback
    std::string last_line;                  // the last line of its standard error
    std::string exception;                  // the line after its last traceback
    bool in_traceback = false;
    bool begun = false;
    bool ended_by_run = false;

    const std::string& error() const { return exception.empty() ? last_line : exception; }
    bool failed() const { return over && status != 0 && !ended_by_run; }
  };
  const std::vector<Rank>& ranks() const { return ranks_; }
  const std::string& token() const { return token_; }

  // True if mpirun has started at least one program.
  bool any_begun() const;

  // Reads a line of standard error. Returns the part for people; the rest was a report.
  std::string_view read(int rank, std::string_view line);
  // Notes that the rank's shell on this host no longer exists. A report may still arrive.
  void gone(int rank);
  // Notes that this command now ends all ranks that still run.
  void end_the_rest();

  // The moment `grace` after the first failure of a rank; empty if no rank has failed. For a rank
  // without a report the grace has a minimum, because a report may arrive a moment after the end of
  // the shell that wrote it.
  std::optional<Clock::time_point> grace_end(std::chrono::milliseconds grace) const;
  // The rank that failed first; null if no rank failed. A rank that a signal ended comes before
  // ranks that ended by themselves, because those may have ended on its account. Then come ranks
  // whose error names no other failed rank. Among equals, the earliest traceback or end counts.
  const Rank* first_failed() const;
  // The message for people at the end of a failed run; empty if no rank failed.
  std::string summary() const;
  // The exit status of the first failed rank; 0 if no rank failed and all have reported; else 1.
  int status() const;

 private:
  bool followed(const Rank& rank) const;
  void take_report(std::string_view report);
  void note(Rank& rank, std::string_view line);

  std::string token_;
  std::vector<Rank> ranks_;
};

}  // namespace penstock::command
