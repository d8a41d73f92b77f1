#include "core/base/system_error.hpp"

#include <cerrno>
#include <cstring>

namespace penstock {

namespace {

const char* remedy_of(int error) {
  switch (error) {
    case EMFILE:
      return "; raise the limit of this process (ulimit -n)";
    case ENFILE:
      return "; the whole machine has no more (sysctl fs.file-max)";
    case ENOMEM:
    case ENOBUFS:
      return "; the machine has no memory left for it";
    case EACCES:
    case EPERM:
      return "; check the permissions";
    case ENOSPC:
    case EDQUOT:
      return "; make room, or give another place";
    default:
      return "";
  }
}

bool is_used_up(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == ENOSPC || error == EDQUOT;
}

}  // namespace

std::string system_error_text(int error) {
  std::string text = std::strerror(error);
  // In lower case, for the middle of a sentence.
  if (error == EMFILE || error == ENFILE) text = "too many open files";
  return text + remedy_of(error);
}

Status not_given(std::string_view what, int error) {
  const bool is_taken =
      error == EADDRINUSE || error == EADDRNOTAVAIL || error == EACCES || error == EPERM;
  return Status(is_used_up(error) || is_taken ? Code::failed_precondition : Code::internal,
                fmt::format("{}: {}", what, system_error_text(error)));
}

Status cannot_read(std::string_view file, std::string_view what, int error) {
  const std::string why = error == 0 ? "check the permissions" : system_error_text(error);
  return Status(is_used_up(error) ? Code::failed_precondition : Code::not_found,
                fmt::format("{}: {} cannot be read: {}", file, what, why));
}

}  // namespace penstock
