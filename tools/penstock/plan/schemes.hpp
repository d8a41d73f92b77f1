// The schemes that `penstock plan` compares: files, folders, and the dense reference.
#pragma once

#include "core/config/config.hpp"
#include "tools/penstock/commands.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock::command {

// A scheme as a file names it, with the plugins that a run under it would find; of several stages
// the last.
struct SchemeFile {
  std::string name;  // of the file, without folder and ending
  Scheme scheme;
  RuntimeConfig runtime;
  std::shared_ptr<Plugins> plugins;
  std::vector<std::string> directories;  // in which they are looked for before the usual ones
};

// Of the reference, which is what DistributedDataParallel does: the gradients as they are, 25 MiB
// at a time.
inline constexpr const char* kDenseName = "dense";

// The reference first, then the files in the order given; of a folder all *.toml, by name. Nothing
// given: the schemes that come with Penstock. Errors name the file; two of one name are refused.
Result<std::vector<SchemeFile>> open_schemes(std::vector<std::string> paths,
                                             const std::vector<std::string>& plugin_path);

}  // namespace penstock::command
