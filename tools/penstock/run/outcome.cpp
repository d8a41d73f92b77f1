#include "tools/penstock/run/outcome.hpp"

#include "tools/penstock/run/processes.hpp"
#include "tools/penstock/run/rank_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <sstream>
#include <tuple>

namespace penstock::command {

namespace {

constexpr std::chrono::milliseconds kReportLag{500};

}  // namespace

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    const auto now = Clock::now().time_since_epoch().count();
    std::memcpy(bytes.data(), &now, sizeof now);
  }
  return fmt::format("penstock-run-{:02x}", fmt::join(bytes, ""));
}

const char* rank_script() {
  // The shell's own message about the program's end would only repeat the report. Open MPI keeps
  // the command line in variables, for MPI_INFO_ENV; the script puts the program's command line
  // there, without the token. mpirun sends the program's signals to its whole group; the shell
  // ignores them, so that it can report.
  return "trap : USR1 USR2; exec 3>&2 2>/dev/null; t=$1; c=$2; shift 2; "
         "export OMPI_COMMAND=\"$c\" OMPI_ARGV=\"$*\"; set -- \"$c\" \"$@\"; "
         // For torch's process groups, which read only torchrun's variables.
         "export RANK=\"$OMPI_COMM_WORLD_RANK\" WORLD_SIZE=\"$OMPI_COMM_WORLD_SIZE\" "
         "LOCAL_RANK=\"$OMPI_COMM_WORLD_LOCAL_RANK\" "
         "LOCAL_WORLD_SIZE=\"$OMPI_COMM_WORLD_LOCAL_SIZE\"; "
         // The process that becomes the program reports the begin. It has no trap any more, so no
         // later signal is lost.
         "(printf '%s begins %s %s %s\\n' \"$t\" \"$OMPI_COMM_WORLD_RANK\" $$ \"$(uname -n)\" >&3; "
         "exec \"$@\" 2>&3 3>&-); s=$?; "
         "printf '%s ends %s %s\\n' \"$t\" \"$OMPI_COMM_WORLD_RANK\" $s >&3; exit $s";
}

std::string_view RunOutcome::read(int rank, std::string_view line) {
  const size_t at = line.find(token_);
  const std::string_view said = line.substr(0, at);
  if (rank >= 0 && static_cast<size_t>(rank) < ranks_.size())
    note(ranks_[static_cast<size_t>(rank)], said);
  if (at != std::string_view::npos) take_report(line.substr(at + token_.size()));
  return said;
}

void RunOutcome::take_report(std::string_view report) {
  std::istringstream words{std::string(report)};
  std::string event;
  size_t rank = 0;
  int number = 0;
  if (!(words >> event >> rank >> number) || rank >= ranks_.size()) return;
  Rank& who = ranks_[rank];
  if (event == "ends") {
    who.status = number;
    if (!who.over) who.over = Clock::now();
  } else if (event == "begins") {
    who.begun = true;
    std::string host;
    std::array<char, 256> here{};
    words >> host;
    gethostname(here.data(), here.size() - 1);
    // A process of another host may have this number.
    if (host != here.data()) return;
    if (is_descendant(number, getpid())) who.process = number;
    if (kill(number, 0) != 0 && errno == ESRCH) gone(static_cast<int>(rank));
  }
}

void RunOutcome::note(Rank& rank, std::string_view line) {
  while (!line.empty() && std::strchr("\r\n\t ", line.back()) != nullptr) line.remove_suffix(1);
  // Skip empty lines, and Python's marks below a line of code, which a cut may have moved to the
  // beginning of a line.
  if (line.find_first_not_of(" \t^~") == line.npos) return;
  rank.last_line = line;
  if (line.starts_with("Traceback (most recent call last)")) {
    rank.in_traceback = true;
    rank.trouble = Clock::now();
  } else if (rank.in_traceback && line[0] != ' ') {
    rank.in_traceback = false;
    rank.exception = line;
  }
}

bool RunOutcome::any_begun() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.begun; });
}

void RunOutcome::gone(int rank) {
  Rank& who = ranks_[static_cast<size_t>(rank)];
  if (!who.over) who.over = Clock::now();
}

void RunOutcome::end_the_rest() {
  for (Rank& rank : ranks_) rank.ended_by_run |= !rank.over;
}

std::optional<Clock::time_point> RunOutcome::grace_end(std::chrono::milliseconds grace) const {
  std::optional<Clock::time_point> end;
  for (const Rank& rank : ranks_) {
    if (!rank.failed()) continue;
    const auto own = *rank.over + (rank.status ? grace : std::max(grace, kReportLag));
    if (!end || own < *end) end = own;
  }
  return end;
}

namespace {

// The rank that an error names as ended, as in "rank 1 has left the run"; the last such rank in the
// text.
std::optional<size_t> blamed(std::string_view error) {
  static constexpr std::array<std::string_view, 5> kEnds = {
      "has left the run", "failed:", "gave up:", "gave the run up:", "ended with"};
  constexpr std::string_view kRank = "rank ";
  std::optional<size_t> found;
  for (size_t at = error.find(kRank); at != error.npos; at = error.find(kRank, at + 1)) {
    const char* begin = error.data() + at + kRank.size();
    size_t number = 0;
    const auto [end, problem] = std::from_chars(begin, error.data() + error.size(), number);
    if (problem != std::errc{} || end == error.data() + error.size() || *end != ' ') continue;
    const std::string_view rest(end + 1,
                                static_cast<size_t>(error.data() + error.size() - end) - 1);
    if (std::any_of(kEnds.begin(), kEnds.end(), [&](auto word) { return rest.starts_with(word); }))
      found = number;
  }
  return found;
}

}  // namespace

// True if the rank failed because another rank had failed.
bool RunOutcome::followed(const Rank& rank) const {
  const std::optional<size_t> other = blamed(rank.error());
  return other && *other < ranks_.size() && &ranks_[*other] != &rank && ranks_[*other].failed();
}

const RunOutcome::Rank* RunOutcome::first_failed() const {
  const auto by_signal = [](const Rank& rank) { return rank.status.value_or(128) >= 128; };
  const auto began = [](const Rank& rank) {
    return rank.trouble == Clock::time_point{} ? *rank.over : rank.trouble;
  };
  // A rank's error about another rank counts more than the order in which reports arrived.
  const auto order = [&](const Rank& rank) {
    return std::tuple(!by_signal(rank), followed(rank), began(rank));
  };
  const Rank* first = nullptr;
  for (const Rank& rank : ranks_)
    if (rank.failed() && (first == nullptr || order(rank) < order(*first))) first = &rank;
  return first;
}

namespace {

std::string how_it_ended(const RunOutcome::Rank& rank) {
  if (!rank.status)
    return "it is gone without a report, as when a rank is killed together with its shell";
  const int status = *rank.status;
  if (status <= 128 || status > 128 + SIGRTMAX)
    return fmt::format("it exited with status {}", status);
  const char* name = sigabbrev_np(status - 128);
  return fmt::format("it was ended by signal {}{}", status - 128,
                     name != nullptr ? fmt::format(" (SIG{})", name) : "");
}

}  // namespace

std::string RunOutcome::summary() const {
  const Rank* first = first_failed();
  if (first == nullptr) return {};
  std::string text =
      fmt::format("rank {} failed first: {}", first - ranks_.data(), how_it_ended(*first));
  const std::string& line = first->error();
  text += line.empty() ? "; it wrote nothing to standard error"
                       : fmt::format("; its last error: {}", line);
  return text;
}

int RunOutcome::status() const {
  const Rank* first = first_failed();
  if (first != nullptr) return first->status.value_or(1);
  const bool all_reported =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return bool(rank.status); });
  return all_reported ? 0 : 1;
}

}  // namespace penstock::command
