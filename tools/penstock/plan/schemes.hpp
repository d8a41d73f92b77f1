// The schemes that `penstock plan` compares: files, folders, and the dense reference.
#pragma once

#include "core/config/config.hpp"
#include "tools/penstock/commands.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock::command {

// The scheme of a file, with the plugins that a run would find. If the file has several stages,
// this is the scheme of the last stage.
struct SchemeFile {
  std::string name;  // the name of the file, without folder and ending
  Scheme scheme;
  RuntimeConfig runtime;
  std::shared_ptr<Plugins> plugins;
  std::vector<std::string> directories;  // searched for plugins before the usual ones
};

// The name of the reference. Like DistributedDataParallel, it sends the gradients uncompressed,
// 25 MiB at a time.
inline constexpr const char* kDenseName = "dense";

// Returns the reference first, then the schemes of `paths` in their order; a folder stands for all
// its *.toml files, by name. If `paths` is empty, the schemes that come with Penstock are taken.
// Errors name the file. Two schemes with one name are refused.
Result<std::vector<SchemeFile>> open_schemes(std::vector<std::string> paths,
                                             const std::vector<std::string>& plugin_path);

}  // namespace penstock::command
