#include "tools/penstock/run/rank_lines.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <utility>

namespace penstock::command {

namespace {

constexpr size_t kLongestLine = 64 << 10;  // a longer line is passed on in parts

struct Tag {
  enum { none, cut_off, whole } found = none;
  size_t size = 0;
  int rank = kMpirun;
};

// Reads a tag, such as "[1,2]<stderr>:", at the beginning of `text`.
Tag tag_at(std::string_view text) {
  size_t at = 1;
  int rank = 0;
  for (const char end : {',', ']'}) {
    const size_t first = at;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
    if (at == text.size()) return {at - first > 10 ? Tag::none : Tag::cut_off};
    if (text[at] != end || at == first) return {};
    std::from_chars(text.data() + first, text.data() + at, rank);
    ++at;
  }
  for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stddiag>:"}) {
    const std::string_view rest = text.substr(at, stream.size());
    if (rest == stream) return {Tag::whole, at + stream.size(), rank};
    if (stream.starts_with(rest)) return {Tag::cut_off};
  }
  return {};
}

bool may_hold(std::string_view text, std::string_view kept) {
  if (kept.empty()) return false;
  if (text.find(kept) != std::string_view::npos) return true;
  for (size_t size = std::min(kept.size() - 1, text.size()); size > 0; --size)
    if (text.ends_with(kept.substr(0, size))) return true;
  return false;
}

}  // namespace

void RankLines::feed(std::string_view bytes) {
  unread_.append(bytes);
  const std::string_view text = unread_;
  size_t begin = 0;  // of the text that has not been appended yet
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\n') {
      append(text.substr(begin, ++at - begin));
      begin = at;
      from_ = kMpirun;
      continue;
    }
    const Tag tag = text[at] == '[' ? tag_at(text.substr(at)) : Tag{};
    if (tag.found == Tag::cut_off) break;
    if (tag.found == Tag::whole) {
      append(text.substr(begin, at - begin));
      begin = at += tag.size;
      from_ = tag.rank;
      continue;
    }
    ++at;
  }
  append(text.substr(begin, at - begin));
  unread_.erase(0, at);
}

void RankLines::append(std::string_view text) {
  if (text.empty()) return;
  std::string& line = unfinished_[from_];
  line.append(text);
  hand_on_lines(from_, line);
}

void RankLines::hand_on_lines(int rank, std::string& line) {
  size_t begin = 0;
  for (;;) {
    size_t end = line.find_first_of("\r\n", begin);
    // "\r\n" is one line end. A final "\r" may still become "\r\n".
    if (end != std::string::npos && line[end] == '\r') {
      if (end + 1 == line.size()) break;
      if (line[end + 1] == '\n') ++end;
    }
    if (end == std::string::npos && line.size() - begin <= kLongestLine) break;
    end = std::min(end, line.size() - 1);
    sink_(rank, std::string_view(line).substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  line.erase(0, begin);
}

void RankLines::flush(std::string_view kept) {
  if (kept.empty() && !unread_.empty()) {
    append(std::exchange(unread_, {}));
  }
  for (auto& [rank, line] : unfinished_) {
    if (line.empty() || may_hold(line, kept)) continue;
    sink_(rank, line);
    line.clear();
  }
}

namespace {

// Writes the whole text. Text that cannot be written is dropped, because the reader is gone.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

void RankWriter::write(int rank, std::string_view text) {
  if (text.empty()) return;
  if (unfinished_ && rank != last_) end_line();
  std::string out;
  if (!unfinished_ && prefix_ && rank != kMpirun) out = fmt::format("[{}] ", rank);
  out.append(text);
  write_all(fd_, out);
  unfinished_ = text.back() != '\n' && text.back() != '\r';
  last_ = rank;
}

void RankWriter::end_line() {
  if (unfinished_) write_all(fd_, "\n");
  unfinished_ = false;
}

bool is_noise(std::string_view line) {
  // A line is noise if it contains both words of a pattern.
  static constexpr std::array<std::array<std::string_view, 2>, 4> kPatterns = {{
      // With --enable-recovery Open MPI 4 reports each failed rank to a handler that does not
      // exist, and prints an error about that.
      {"PMIX ERROR: BAD-PARAM in file", "pmix_event_notification.c"},
      // The byte transfer reports a peer's death; the errors of the ranks name the dead rank.
      {"mca_btl_tcp_frag_recv: readv failed:", "Connection reset by peer"},
      // Both sides of a fork put the child into its own group; the later call gets an error.
      {"plm:rsh: Warning: setpgid(", "failed in parent"},
      // mpirun's notice about SIGUSR1 and SIGUSR2, which this command has passed on.
      {"mpirun: Forwarding signal", "to job"},
  }};
  return std::any_of(kPatterns.begin(), kPatterns.end(), [&](const auto& words) {
    return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
      return line.find(word) != std::string_view::npos;
    });
  });
}

}  // namespace penstock::command
