#include "core/base/read_file.hpp"

#include "core/base/system_error.hpp"

#include <array>
#include <cerrno>
#include <fstream>

namespace penstock {

Result<std::string> read_whole_file(const std::string& path, std::string_view what,
                                    uintmax_t most_bytes) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return cannot_read(path, what, errno);
  std::string text;
  std::array<char, 1 << 16> chunk;
  // A loop over std::istreambuf_iterator would throw when the system cannot read.
  while (file.read(chunk.data(), chunk.size()), file.gcount() > 0) {
    text.append(chunk.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > most_bytes)
      return invalid_argument("{}: {} is larger than {} MiB", path, what, most_bytes >> 20);
  }
  if (file.bad()) return cannot_read(path, what, errno);
  return text;
}

}  // namespace penstock
