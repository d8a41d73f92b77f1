#include "core/trace/timeline_file.hpp"

#include "core/base/system_error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace penstock {
namespace {

constexpr std::string_view kHeader = R"({"displayTimeUnit":"ms","traceEvents":[)";
constexpr std::string_view kFooter = "\n]}\n";

}  // namespace

Status TimelineFile::open(const std::string& path) {
  close();
  path_ = path;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    return not_found(
        "the timeline cannot be written to '{}' ({}): give a path in a folder that exists and may "
        "be written",
        path, system_error_text(errno));
  end_of_events_ = kHeader.size();
  empty_ = true;
  return write_at(0, std::string(kHeader).append(kFooter));
}

// The events overwrite the footer, and one write puts a new footer behind them.
Status TimelineFile::append(std::string_view events) {
  if (descriptor_ < 0 || events.empty()) return {};
  std::string piece = empty_ ? "\n" : ",\n";
  piece.append(events);
  const uint64_t length = piece.size();
  piece.append(kFooter);
  Status status = write_at(end_of_events_, piece);
  if (status.ok()) {
    end_of_events_ += length;
    empty_ = false;
    return {};
  }
  // The footer's old place has room for it, also on a full disk.
  if (write_at(end_of_events_, kFooter).ok())
    (void)!::ftruncate(descriptor_, static_cast<off_t>(end_of_events_ + kFooter.size()));
  return status;
}

Status TimelineFile::write_at(uint64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return not_given(fmt::format("the timeline could not be written to '{}'", path_),
                       written < 0 ? errno : ENOSPC);
    text.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

void TimelineFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace penstock
