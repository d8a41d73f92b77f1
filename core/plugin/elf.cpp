#include "core/plugin/elf.hpp"

#include "core/base/system_error.hpp"

#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace penstock {

namespace {

constexpr uintmax_t kMostBytes = uintmax_t{1} << 30;
constexpr size_t kMostHeaders = 4096;

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "say here which ELF machine this host is"
#endif

Status damaged(std::string_view what) {
  return invalid_argument("damaged shared object: {}; build or copy it again", what);
}

// The bytes of the file. Every read uses `bytes`, which refuses to read beyond the file.
class ElfFile {
 public:
  explicit ElfFile(std::string_view file) : file_(file) {}

  // Reads and checks headers and segments. The other functions may be called after success.
  Status open();
  Result<std::vector<ElfSymbol>> symbols() const;

 private:
  struct DynamicTables {
    std::optional<uint64_t> symbols, strings, strings_size, gnu_hash, hash;
  };

  std::optional<std::string_view> bytes(uint64_t offset, uint64_t size) const {
    if (offset > file_.size() || size > file_.size() - offset) return std::nullopt;
    return file_.substr(offset, size);
  }
  template <typename T>
  std::optional<T> at(uint64_t offset) const {
    const std::optional<std::string_view> found = bytes(offset, sizeof(T));
    if (!found) return std::nullopt;
    T value;
    std::memcpy(&value, found->data(), sizeof value);
    return value;
  }
  // The bytes of the file from an address of the loaded image to the end of its segment. Empty if
  // no segment contains the address.
  std::optional<std::string_view> at_address(uint64_t address) const {
    for (const Elf64_Phdr& segment : loads_) {
      if (address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz) continue;
      const uint64_t into = address - segment.p_vaddr;
      return file_.substr(segment.p_offset + into, segment.p_filesz - into);
    }
    return std::nullopt;
  }

  Status check_header(const Elf64_Ehdr& header) const;
  Result<DynamicTables> dynamic_tables() const;
  Result<uint64_t> count_by_gnu_hash(uint64_t address) const;
  Result<uint64_t> count_symbols(const DynamicTables& tables) const;

  std::string_view file_;
  std::vector<Elf64_Phdr> loads_;
  Elf64_Phdr dynamic_{};  // its p_type is 0 until it is found
};

Status ElfFile::check_header(const Elf64_Ehdr& header) const {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT) {
    return invalid_argument("not a 64-bit little-endian ELF file");
  }
  if (header.e_machine != kMachine) {
    return invalid_argument("built for ELF machine {}, expected {}: build it for this processor",
                            header.e_machine, kMachine);
  }
  if (header.e_type != ET_DYN) {
    return invalid_argument("ELF type is {}, expected a shared object ({})", header.e_type, ET_DYN);
  }
  return {};
}

Status ElfFile::open() {
  if (file_.substr(0, SELFMAG) != std::string_view(ELFMAG, SELFMAG)) {
    return invalid_argument("not an ELF file, expected a shared object");
  }
  const std::optional<Elf64_Ehdr> header = at<Elf64_Ehdr>(0);
  if (!header) return damaged("it ends inside the ELF header");
  PENSTOCK_TRY(check_header(*header));
  if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 ||
      header->e_phnum > kMostHeaders) {
    return damaged("its program headers have an impossible size or number");
  }
  // Linkers write the sections at the end of a file. If the sections are missing, the file was cut
  // off, even if the loader accepts it.
  if (header->e_shoff != 0 &&
      !bytes(header->e_shoff, uint64_t{header->e_shnum} * header->e_shentsize)) {
    return damaged("it is truncated: the section headers lie behind its end");
  }
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    // Cannot overflow: e_phnum is small, and an offset near the end of the number range fails the
    // check of the bounds.
    if (header->e_phoff > file_.size()) return damaged("it is truncated: no program headers");
    const auto segment = at<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return damaged("it is truncated inside the program headers");
    if (segment->p_type == PT_DYNAMIC) dynamic_ = *segment;
    if (segment->p_type != PT_LOAD) continue;
    // If a segment is longer than the file, the first access to the mapped pages gives SIGBUS.
    if (!bytes(segment->p_offset, segment->p_filesz)) {
      return damaged("it is truncated: a segment reaches behind its end");
    }
    if (segment->p_filesz > segment->p_memsz ||
        segment->p_vaddr + segment->p_memsz < segment->p_vaddr) {
      return damaged("a segment has an impossible size");
    }
    loads_.push_back(*segment);
  }
  if (dynamic_.p_type != PT_DYNAMIC)
    return invalid_argument("not a shared object: it has no dynamic segment");
  return {};
}

Result<ElfFile::DynamicTables> ElfFile::dynamic_tables() const {
  std::optional<std::string_view> entries = at_address(dynamic_.p_vaddr);
  if (!entries) return damaged("its dynamic segment lies outside of the loaded segments");
  entries = entries->substr(0, dynamic_.p_filesz);
  DynamicTables tables;
  for (; entries->size() >= sizeof(Elf64_Dyn); entries->remove_prefix(sizeof(Elf64_Dyn))) {
    Elf64_Dyn entry;
    std::memcpy(&entry, entries->data(), sizeof entry);
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) tables.symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRTAB) tables.strings = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) tables.strings_size = entry.d_un.d_val;
    if (entry.d_tag == DT_GNU_HASH) tables.gnu_hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_HASH) tables.hash = entry.d_un.d_ptr;
  }
  if (!tables.symbols || !tables.strings || !tables.strings_size)
    return damaged("it has no table of symbols");
  return tables;
}

// The dynamic segment has no number of symbols, but the hash table has: the last chain of the last
// bucket ends with the last symbol.
Result<uint64_t> ElfFile::count_by_gnu_hash(uint64_t address) const {
  const std::optional<std::string_view> table = at_address(address);
  struct Header {
    uint32_t n_buckets, first_symbol, n_bloom_words, bloom_shift;
  } header;
  if (!table || table->size() < sizeof header) return damaged("its hash table is cut off");
  std::memcpy(&header, table->data(), sizeof header);
  const auto word = [&](uint64_t offset) -> std::optional<uint32_t> {
    if (offset > table->size() || table->size() - offset < sizeof(uint32_t)) return std::nullopt;
    uint32_t value;
    std::memcpy(&value, table->data() + offset, sizeof value);
    return value;
  };
  const uint64_t buckets = sizeof header + uint64_t{header.n_bloom_words} * 8;
  const uint64_t chains = buckets + uint64_t{header.n_buckets} * 4;
  uint64_t last = 0;
  for (uint64_t i = 0; i < header.n_buckets; ++i) {
    const std::optional<uint32_t> symbol = word(buckets + i * 4);
    if (!symbol) return damaged("its hash table is cut off");
    last = std::max<uint64_t>(last, *symbol);
  }
  if (last < header.first_symbol) return uint64_t{header.first_symbol};
  for (;; ++last) {
    const std::optional<uint32_t> hash = word(chains + (last - header.first_symbol) * 4);
    if (!hash) return damaged("its hash table is cut off");
    if ((*hash & 1) != 0) return last + 1;
  }
}

Result<uint64_t> ElfFile::count_symbols(const DynamicTables& tables) const {
  if (tables.gnu_hash) return count_by_gnu_hash(*tables.gnu_hash);
  if (!tables.hash) return damaged("it has no hash table of symbols");
  const std::optional<std::string_view> table = at_address(*tables.hash);
  uint32_t counts[2];  // buckets, symbols
  if (!table || table->size() < sizeof counts) return damaged("its hash table is cut off");
  std::memcpy(counts, table->data(), sizeof counts);
  return uint64_t{counts[1]};
}

bool is_exported(const Elf64_Sym& symbol) {
  const unsigned binding = ELF64_ST_BIND(symbol.st_info);
  const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  return symbol.st_shndx != SHN_UNDEF &&
         (visibility == STV_DEFAULT || visibility == STV_PROTECTED) &&
         (binding == STB_GLOBAL || binding == STB_WEAK || binding == STB_GNU_UNIQUE);
}

Result<std::vector<ElfSymbol>> ElfFile::symbols() const {
  PENSTOCK_ASSIGN(const DynamicTables tables, dynamic_tables());
  PENSTOCK_ASSIGN(const uint64_t count, count_symbols(tables));
  const std::optional<std::string_view> entries = at_address(*tables.symbols);
  const std::optional<std::string_view> strings = at_address(*tables.strings);
  if (!entries || count > entries->size() / sizeof(Elf64_Sym)) {
    return damaged("its table of symbols is cut off");
  }
  if (!strings || *tables.strings_size > strings->size())
    return damaged("its table of names is cut off");
  const std::string_view names = strings->substr(0, *tables.strings_size);
  std::vector<ElfSymbol> result;
  for (uint64_t i = 1; i < count; ++i) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, entries->data() + i * sizeof symbol, sizeof symbol);
    if (!is_exported(symbol)) continue;
    const size_t end =
        symbol.st_name < names.size() ? names.find('\0', symbol.st_name) : std::string_view::npos;
    if (end == std::string_view::npos)
      return damaged("a symbol's name lies outside of the table of names");
    ElfSymbol found{std::string(names.substr(symbol.st_name, end - symbol.st_name)), 0,
                    symbol.st_size, 0};
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    const std::optional<std::string_view> data = at_address(symbol.st_value);
    if (data && type != STT_TLS && symbol.st_shndx != SHN_ABS) {
      found.file_offset = static_cast<uint64_t>(data->data() - file_.data());
      found.available = data->size();
    }
    result.push_back(std::move(found));
  }
  return result;
}

}  // namespace

Result<std::vector<ElfSymbol>> exported_symbols(std::string_view file) {
  ElfFile elf(file);
  PENSTOCK_TRY(elf.open());
  return elf.symbols();
}

Result<std::string_view> symbol_bytes(std::string_view file, std::string_view symbol) {
  PENSTOCK_ASSIGN(const std::vector<ElfSymbol> symbols, exported_symbols(file));
  for (const ElfSymbol& found : symbols) {
    if (found.name != symbol) continue;
    if (found.available == 0)
      return damaged(fmt::format("the symbol {} has no bytes in the file", symbol));
    return file.substr(found.file_offset, found.available);
  }
  return not_found("does not define the symbol {}", symbol);
}

Result<std::string> read_plugin_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A pipe or a device could block or never end.
  if (fs::status(path, error).type() != fs::file_type::regular) {
    return invalid_argument("{}: not a plain file, expected a shared object", path);
  }
  const uintmax_t size = fs::file_size(path, error);
  if (error || size > kMostBytes) {
    return invalid_argument("{}: larger than {} MiB, expected a plugin", path, kMostBytes >> 20);
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) return cannot_read(path, "the file", errno);
  return text;
}

}  // namespace penstock
