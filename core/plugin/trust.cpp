#include "core/plugin/trust.hpp"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>

namespace penstock {

namespace fs = std::filesystem;

namespace {

// Many systems make a group for each user, so that files may be group-writable by default.
bool is_private_group(gid_t group) {
  std::array<char, 16384> user_text{}, group_text{};
  passwd user{}, *found_user = nullptr;
  if (::getpwuid_r(::geteuid(), &user, user_text.data(), user_text.size(), &found_user) != 0 ||
      found_user == nullptr || user.pw_gid != group)
    return false;
  struct group entry {
  }, *found_group = nullptr;
  if (::getgrgid_r(group, &entry, group_text.data(), group_text.size(), &found_group) != 0 ||
      found_group == nullptr)
    return false;
  const std::string_view name = user.pw_name;
  for (char** member = entry.gr_mem; *member != nullptr; ++member)
    if (name != *member) return false;
  return name == entry.gr_name;
}

bool is_trusted_group(gid_t group) {
  return group == 0 || is_private_group(group);
}

}  // namespace

Result<std::string> real_path(const std::string& path) {
  if (path.empty() || !fs::path(path).is_absolute()) {
    return invalid_argument(
        "\"{}\" is not an absolute path; plugins are never searched for in the working directory",
        path);
  }
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return not_found("{}: {}", path, error.message());
  return real.string();
}

Status check_trust(const std::string& path, bool allow_insecure) {
  if (allow_insecure) return {};
  const std::string remedy = "; fix it, or set runtime.allow_insecure_paths = true if you know why";
  // The sticky bit prevents other users from renaming or removing files that belong to another
  // user. They can still add files.
  bool parent_of_private = false;
  for (fs::path at = path;; at = at.parent_path()) {
    struct stat info {};
    if (::lstat(at.c_str(), &info) != 0) return not_found("{}: cannot be examined", at.string());
    if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
      return failed_precondition(
          "{}: not loaded, because {} belongs to user {}, expected root or user {}{}", path,
          at.string(), info.st_uid, ::geteuid(), remedy);
    }
    const bool by_everybody = (info.st_mode & S_IWOTH) != 0;
    const bool by_group = (info.st_mode & S_IWGRP) != 0 && !is_trusted_group(info.st_gid);
    const bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if ((by_everybody || by_group) && !(sticky && parent_of_private)) {
      return failed_precondition(
          "{}: not loaded, because {} may write to {}{}", path,
          by_everybody ? std::string("everybody") : fmt::format("group {}", info.st_gid),
          at.string(), remedy);
    }
    parent_of_private = S_ISDIR(info.st_mode);
    if (at == at.parent_path()) return {};
  }
}

}  // namespace penstock
