// What became of the ranks of a run: their reports, who failed first and why.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

using Clock = std::chrono::steady_clock;

// The program of each rank runs under a shell that reports on standard error, the one way that
// leads here from every host:
//   TOKEN begins RANK PID HOST
//   TOKEN ends RANK STATUS
// The token is drawn anew for every run and the program does not see it, so that nothing it prints
// can pass for a report.
std::string new_token();
// The script, for `sh -c`. Its arguments are the token and the program with its own arguments.
const char* rank_script();

class RunOutcome {
 public:
  RunOutcome(int ranks, std::string token)
      : token_(std::move(token)), ranks_(static_cast<size_t>(ranks)) {}

  struct Rank {
    pid_t process = 0;  // of its shell, on this host; 0: not known, or elsewhere
    std::optional<int> status;
    std::optional<Clock::time_point> over;  // since when it is ended or gone
    Clock::time_point trouble{};            // when it printed its last traceback
    std::string last_line;                  // of its standard error
    std::string exception;                  // the line after its last traceback
    bool in_traceback = false;
    bool begun = false;
    bool ended_by_run = false;

    const std::string& error() const { return exception.empty() ? last_line : exception; }
    bool failed() const { return over && status != 0 && !ended_by_run; }
  };
  const std::vector<Rank>& ranks() const { return ranks_; }
  const std::string& token() const { return token_; }

  // Whether mpirun has come as far as to start programs.
  bool any_begun() const;

  // A line of standard error. The part of it that is for people; the rest was a report.
  std::string_view read(int rank, std::string_view line);
  // The rank's shell on this host is no more. A report may still come.
  void gone(int rank);
  // From here on, ranks that are still there end because this command ends them.
  void end_the_rest();

  // When a rank's failure and `grace` after it have passed; never where none has failed. A report
  // may arrive a moment after the end of the shell that wrote it.
  std::optional<Clock::time_point> grace_end(std::chrono::milliseconds grace) const;
  // Null where no rank failed. A rank that a signal ended comes before those that ended by
  // themselves: they may have heard of it; then those whose error tells of no other rank's; among
  // these, the one that told first.
  const Rank* first_failed() const;
  // What a person reads at the end of a run that failed; empty where no rank did.
  std::string summary() const;
  // The first failed rank's; 0 where none failed and all have reported; else 1.
  int status() const;

 private:
  bool followed(const Rank& rank) const;
  void take_report(std::string_view report);
  void note(Rank& rank, std::string_view line);

  std::string token_;
  std::vector<Rank> ranks_;
};

}  // namespace penstock::command
