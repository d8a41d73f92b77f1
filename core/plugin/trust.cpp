#include "core/plugin/trust.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace penstock {

namespace fs = std::filesystem;

Result<std::string> real_path(const std::string& path) {
  if (path.empty() || !fs::path(path).is_absolute()) {
    return invalid_argument(
        "\"{}\" is not an absolute path; plugins are never looked for in the working directory",
        path);
  }
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return not_found("{}: {}", path, error.message());
  return real.string();
}

Status check_trust(const std::string& path, bool allow_insecure) {
  if (allow_insecure) return {};
  const std::string remedy =
      "; mend it, or set runtime.allow_insecure_paths = true if you know why";
  // The sticky bit keeps others from renaming or removing what is not theirs; it does not keep them
  // from adding files.
  bool parent_of_private = false;
  for (fs::path at = path;; at = at.parent_path()) {
    struct stat info {};
    if (::lstat(at.c_str(), &info) != 0) return not_found("{}: cannot be examined", at.string());
    if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
      return failed_precondition(
          "{}: not loaded, because {} belongs to user {}, expected root or user {}{}", path,
          at.string(), info.st_uid, ::geteuid(), remedy);
    }
    const bool world_writable = (info.st_mode & S_IWOTH) != 0;
    const bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if (world_writable && !(sticky && parent_of_private)) {
      return failed_precondition("{}: not loaded, because everybody may write to {}{}", path,
                                 at.string(), remedy);
    }
    parent_of_private = S_ISDIR(info.st_mode);
    if (at == at.parent_path()) return {};
  }
}

}  // namespace penstock
