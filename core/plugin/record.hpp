// A plugin's record, read from its file and checked, as plain values.
#pragma once

#include "core/base/kind.hpp"
#include "core/base/status.hpp"

#include <string>
#include <string_view>

namespace penstock {

struct Record {
  Kind kind = Kind::compressor;
  std::string id;    // "compressor/NAME"
  std::string name;  // "NAME"
  std::string version;
  std::string summary;
  std::string license;
  std::string source;
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
  uint32_t min_host_minor = 0;
};

// Whether this host can use a plugin with these ABI numbers; the UNIMPLEMENTED message says what to
// rebuild.
Status check_abi(const Record& record);

// Parses the bytes of `penstock_plugin`. INVALID_ARGUMENT for bytes that are not a record: wrong
// magic, a size or a text out of bounds, an unknown kind, an id that is not KIND/NAME. Does not
// check the ABI numbers. For another major, the result holds only the fields common to all majors
// (magic, sizes, ABI numbers), so that check_abi can explain the error.
Result<Record> parse_record(std::string_view bytes);

// Lower-case letters, digits, '-' and '_', beginning with a letter or digit: legal as a plugin's or
// instance's name.
bool is_plugin_name(std::string_view name);

}  // namespace penstock
