#include "tools/penstock/run/launch.hpp"

#include "core/base/system_error.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/run/environment.hpp"
#include "tools/penstock/run/outcome.hpp"
#include "tools/penstock/run/processes.hpp"
#include "tools/penstock/run/rank_lines.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>
#include <set>

namespace penstock::command {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuiet{100};       // of silence until an unfinished line is shown
constexpr milliseconds kAfterTerm{1000};  // from SIGTERM to SIGKILL
constexpr milliseconds kAfterKill{1500};  // from SIGKILL of the ranks to SIGKILL of mpirun

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A descriptor that becomes readable when the process has ended; -1 if the system has none.
Descriptor watch_process(pid_t process) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

std::string rank_list(const std::vector<size_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  constexpr size_t kMost = 16;
  std::string text = fmt::format("ranks {}", ranks[0]);
  const size_t shown = ranks.size() > kMost ? kMost : ranks.size() - 1;
  for (size_t i = 1; i < shown; ++i) text += fmt::format(", {}", ranks[i]);
  return text + (ranks.size() > kMost ? fmt::format(" and {} more", ranks.size() - shown)
                                      : fmt::format(" and {}", ranks.back()));
}

// One run, from the start of mpirun to its end.
class Run {
 public:
  explicit Run(const LaunchOptions& options);
  bool start();
  void follow();
  int conclude();

 private:
  // One output stream of mpirun, and its way to this command's output.
  struct Source {
    Descriptor fd;
    RankLines lines;
    RankWriter writer;
  };
  enum class Ending { no, asked, killed, given_up };

  std::vector<std::string> arguments() const;
  void become_mpirun(int out, int err);
  void wait_for_something();
  bool read_from(Source& source);
  void watch_new_shells();
  void on_signal();
  void pass_signals_on();
  void on_time();
  void end_ranks();
  void kill_ranks();
  std::optional<Clock::time_point> next_moment() const;
  void say(const std::string& text);

  const LaunchOptions& options_;
  RunOutcome outcome_;
  Source out_, err_;
  pid_t mpirun_ = 0;
  int mpirun_status_ = 0;
  bool mpirun_ended_ = false;
  bool at_terminal_ = isatty(STDIN_FILENO) != 0;
  Descriptor mpirun_watch_, signals_;
  sigset_t handled_{}, before_{};
  std::vector<Descriptor> shells_;  // by rank
  std::optional<Clock::time_point> quiet_since_;
  Ending ending_ = Ending::no;
  Clock::time_point ending_since_{};
  int interrupted_ = 0;
  std::set<int> to_pass_on_;
};

Run::Run(const LaunchOptions& options)
    : options_(options),
      outcome_(options.ranks, new_token()),
      out_{Descriptor(), RankLines([this](int rank, std::string_view text) {
             if (rank != kMpirun || !is_noise(text)) out_.writer.write(rank, text);
           }),
           RankWriter(STDOUT_FILENO, options.prefix)},
      err_{Descriptor(), RankLines([this](int rank, std::string_view text) {
             const std::string_view said = outcome_.read(rank, text);
             if (!is_noise(said)) err_.writer.write(rank, said);
           }),
           RankWriter(STDERR_FILENO, options.prefix)},
      shells_(static_cast<size_t>(options.ranks)) {}

std::vector<std::string> Run::arguments() const {
  std::vector<std::string> arguments = {"mpirun", "-np", std::to_string(options_.ranks),
                                        "--tag-output"};
  for (const std::string& flag : mpirun_flags()) arguments.push_back(flag);
  if (!options_.hosts.empty()) arguments.insert(arguments.end(), {"--hostfile", options_.hosts});
  for (const std::string& name : forwarded_variables())
    arguments.insert(arguments.end(), {"-x", name});
  for (const std::string& given : options_.exported)
    arguments.insert(arguments.end(), {"-x", given});
  arguments.insert(arguments.end(), {"sh", "-c", rank_script(), "sh", outcome_.token()});
  arguments.insert(arguments.end(), options_.command.begin(), options_.command.end());
  return arguments;
}

bool Run::start() {
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return false;
  out_.fd = Descriptor(out[0]);
  Descriptor out_end(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) return false;
  err_.fd = Descriptor(err[0]);
  Descriptor err_end(err[1]);
  for (const int fd : {out[0], err[0]}) fcntl(fd, F_SETFL, O_NONBLOCK);

  sigemptyset(&handled_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&handled_, number);
  sigprocmask(SIG_BLOCK, &handled_, &before_);
  signals_ = Descriptor(signalfd(-1, &handled_, SFD_CLOEXEC | SFD_NONBLOCK));
  // Ranks whose mpirun is gone become children of this process, which then finds and ends them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  mpirun_ = fork();
  if (mpirun_ < 0 || signals_.get() < 0) return false;
  if (mpirun_ == 0) become_mpirun(out_end.get(), err_end.get());
  mpirun_watch_ = watch_process(mpirun_);
  return true;
}

void Run::become_mpirun(int out, int err) {
  std::vector<std::string> arguments = this->arguments();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // If mpirun gets two signals within seconds, one from its group and one from this command, it
  // quits at once and does not end the ranks. So it has its own group, except at a terminal, which
  // only one group may read.
  if (!at_terminal_) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun must not outlive this command
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvp(argv[0], argv.data());
  _exit(127);
}

void Run::follow() {
  while (!mpirun_ended_) {
    wait_for_something();
    const bool said_out = read_from(out_);
    const bool said_err = read_from(err_);
    if (said_out || said_err) quiet_since_ = Clock::now();
    watch_new_shells();
    on_signal();
    pass_signals_on();
    on_time();
    mpirun_ended_ = waitpid(mpirun_, &mpirun_status_, WNOHANG) == mpirun_;
  }
  // Read the last output. Do not wait for processes that may still hold the pipes open.
  read_from(out_);
  read_from(err_);
  for (Source* source : {&out_, &err_}) {
    source->lines.flush();
    source->writer.end_line();
  }
  if (ending_ != Ending::no) kill_ranks();
}

void Run::wait_for_something() {
  std::vector<pollfd> wanted;
  for (const int fd : {out_.fd.get(), err_.fd.get(), signals_.get(), mpirun_watch_.get()})
    wanted.push_back({fd, POLLIN, 0});
  for (const Descriptor& shell : shells_) wanted.push_back({shell.get(), POLLIN, 0});
  int wait_ms = mpirun_watch_.get() < 0 ? 100 : 10000;  // old systems: check mpirun periodically
  auto moment = next_moment();
  if (quiet_since_ && (!moment || *quiet_since_ + kQuiet < *moment))
    moment = *quiet_since_ + kQuiet;
  if (moment) {
    const auto left = std::chrono::ceil<milliseconds>(*moment - Clock::now()).count();
    wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, wait_ms));
  }
  if (poll(wanted.data(), wanted.size(), wait_ms) <= 0) return;
  for (size_t rank = 0; rank < shells_.size(); ++rank) {
    if (wanted[4 + rank].revents == 0) continue;
    outcome_.gone(static_cast<int>(rank));
    shells_[rank].close();
  }
}

// Reads the available output. True if there was any.
bool Run::read_from(Source& source) {
  std::array<char, 65536> bytes;
  bool any = false;
  while (source.fd.get() >= 0) {
    const ssize_t n = read(source.fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) source.fd.close();
    if (n <= 0) break;
    any = true;
    source.lines.feed({bytes.data(), static_cast<size_t>(n)});
  }
  return any;
}

void Run::watch_new_shells() {
  for (size_t rank = 0; rank < shells_.size(); ++rank) {
    const RunOutcome::Rank& who = outcome_.ranks()[rank];
    if (who.process != 0 && !who.over && shells_[rank].get() < 0)
      shells_[rank] = watch_process(who.process);
  }
}

void Run::on_signal() {
  signalfd_siginfo info{};
  if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGUSR1 || number == SIGUSR2) {
    to_pass_on_.insert(number);
    return;
  }
  if (interrupted_ != 0) return kill_ranks();  // second interrupt
  interrupted_ = number;
  end_ranks();
}

// Passes SIGUSR1 and SIGUSR2 on, which batch systems send to programs, as when Slurm asks for a
// checkpoint. mpirun passes them to the ranks of all hosts once it has started some ranks; an
// earlier signal would end mpirun.
void Run::pass_signals_on() {
  if (!outcome_.any_begun() || ending_ != Ending::no) return;
  for (const int number : to_pass_on_) kill(mpirun_, number);
  to_pass_on_.clear();
}

std::optional<Clock::time_point> Run::next_moment() const {
  std::optional<Clock::time_point> next;
  const auto sooner = [&](Clock::time_point moment) {
    if (!next || moment < *next) next = moment;
  };
  if (ending_ == Ending::asked) sooner(ending_since_ + kAfterTerm);
  if (ending_ == Ending::killed) sooner(ending_since_ + kAfterTerm + kAfterKill);
  if (const auto end = outcome_.grace_end(milliseconds(std::llround(options_.grace_s * 1000)));
      end && ending_ == Ending::no)
    sooner(*end);
  return next;
}

void Run::on_time() {
  const auto now = Clock::now();
  if (quiet_since_ && now >= *quiet_since_ + kQuiet) {
    quiet_since_.reset();
    out_.lines.flush(outcome_.token());
    err_.lines.flush(outcome_.token());
  }
  const auto moment = next_moment();
  if (!moment || now < *moment) return;
  if (ending_ == Ending::no) {
    end_ranks();
  } else if (ending_ == Ending::asked) {
    kill_ranks();
  } else if (ending_ == Ending::killed) {
    ending_ = Ending::given_up;
    signal_tree(mpirun_, SIGKILL);
  }
}

// Asks all remaining ranks to end: ranks that wait, spin, are stopped or run on other hosts. No
// other function does.
void Run::end_ranks() {
  ending_ = Ending::asked;
  ending_since_ = Clock::now();
  outcome_.end_the_rest();
  bool elsewhere = false;
  for (const RunOutcome::Rank& rank : outcome_.ranks()) {
    if (rank.over) continue;
    if (rank.process == 0) elsewhere = true;
    if (rank.process != 0) signal_tree(rank.process, SIGTERM);
  }
  // mpirun needs seconds to end ranks of this host, and ends by itself when its last rank ends. At
  // a terminal it has received Ctrl-C already.
  if (elsewhere && !(at_terminal_ && interrupted_ == SIGINT)) kill(mpirun_, SIGTERM);
}

void Run::kill_ranks() {
  if (ending_ == Ending::asked) ending_ = Ending::killed;
  for (const RunOutcome::Rank& rank : outcome_.ranks())
    if (rank.process != 0 && !rank.over) signal_tree(rank.process, SIGKILL);
  if (!mpirun_ended_) return;
  // Kill the remaining processes of ranks and mpirun.
  for (const pid_t each : descendants(getpid())) kill(each, SIGKILL);
}

void Run::say(const std::string& text) {
  err_.writer.write(kMpirun, "penstock: " + text + "\n");
}

int Run::conclude() {
  const auto of_ranks = [&](auto&& which) {
    std::vector<size_t> found;
    for (size_t rank = 0; rank < outcome_.ranks().size(); ++rank)
      if (which(outcome_.ranks()[rank])) found.push_back(rank);
    return found;
  };
  if (const std::string summary = outcome_.summary(); !summary.empty()) say(summary);
  const std::vector<size_t> ended = of_ranks([](const auto& rank) { return rank.ended_by_run; });
  if (interrupted_ != 0) {
    say(fmt::format("interrupted by signal {}; all ranks were ended", interrupted_));
    return 128 + interrupted_;
  }
  if (!ended.empty())
    say(fmt::format("{} had not ended {:g} s later (--grace) and {} ended", rank_list(ended),
                    options_.grace_s, ended.size() == 1 ? "was" : "were"));
  if (outcome_.first_failed() != nullptr) return outcome_.status();
  const int own =
      WIFEXITED(mpirun_status_) ? WEXITSTATUS(mpirun_status_) : 128 + WTERMSIG(mpirun_status_);
  const std::vector<size_t> silent = of_ranks([](const auto& rank) { return !rank.status; });
  if (!silent.empty())
    say(fmt::format("mpirun ended with status {}; no report how they ended came from {}", own,
                    rank_list(silent)));
  return own != 0 ? own : outcome_.status();
}

}  // namespace

int launch(const LaunchOptions& options) {
  Run run(options);
  if (!run.start())
    return fail(fmt::format("no process for mpirun could be made: {}", system_error_text(errno)));
  run.follow();
  return run.conclude();
}

}  // namespace penstock::command
