// Reads a plugin's record and its exported symbols out of an ELF64 file without loading it: no byte
// of the file runs.
//
// Everything in the file is input. The reader follows what the dynamic loader will follow (program
// headers and the dynamic segment, never section headers) and checks every offset against the file
// before it reads.
#pragma once

#include "core/base/status.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ElfSymbol {
  std::string name;
  uint64_t file_offset = 0;  // of its bytes; 0 where it has none in the file
  uint64_t size = 0;         // as the symbol table says
  uint64_t available = 0;    // bytes from file_offset to the end of its segment in the file
};

// The symbols a shared object defines for others, in the order of its table. INVALID_ARGUMENT with
// the reason (not ELF, another machine, truncated, damaged) for a file that must not be loaded.
Result<std::vector<ElfSymbol>> exported_symbols(std::string_view file);

// Bytes of a defined symbol: from its start to the end of its segment in the file. NOT_FOUND
// without that symbol.
Result<std::string_view> symbol_bytes(std::string_view file, std::string_view symbol);

// The whole file. Refused: not a plain file, larger than 1 GiB.
Result<std::string> read_plugin_file(const std::string& path);

}  // namespace penstock
