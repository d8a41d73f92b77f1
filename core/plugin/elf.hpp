// Reads a plugin's record and its exported symbols from an ELF64 file without loading it: no code
// of the file runs.
//
// Everything in the file is untrusted input. The reader uses the structures that the dynamic loader
// uses (program headers and the dynamic segment, never section headers) and checks every offset
// against the file before it reads.
#pragma once

#include "core/base/status.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ElfSymbol {
  std::string name;
  uint64_t file_offset = 0;  // offset of its bytes; 0 if the file has no bytes for it
  uint64_t size = 0;         // size in the symbol table
  uint64_t available = 0;    // bytes from file_offset to the end of its segment in the file
};

// The symbols that a shared object exports, in the order of its table. INVALID_ARGUMENT with the
// reason (not ELF, another machine, truncated, damaged) for a file that must not be loaded.
Result<std::vector<ElfSymbol>> exported_symbols(std::string_view file);

// Bytes of a defined symbol: from its start to the end of its segment in the file. NOT_FOUND if the
// symbol is missing.
Result<std::string_view> symbol_bytes(std::string_view file, std::string_view symbol);

// Reads the whole file. Refuses a file that is not a plain file or is larger than 1 GiB.
Result<std::string> read_plugin_file(const std::string& path);

}  // namespace penstock
