#include "core/plugin/record.hpp"

#include "core/plugin/c_struct.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace penstock {

namespace {

// Every major version of the ABI has these members at these offsets: magic, sizes and numbers.
constexpr size_t kCommonBytes = offsetof(penstock_plugin_record, kind);

// A text in a fixed array. It must end within the array and have only harmless characters.
template <size_t kSize>
Result<std::string> fixed_text(const char (&array)[kSize], std::string_view field) {
  const auto* end = static_cast<const char*>(std::memchr(array, 0, kSize));
  if (end == nullptr) {
    return invalid_argument("its record's {} is not terminated within {} bytes", field, kSize);
  }
  const std::string text(array, end);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return invalid_argument("its record's {} holds control characters", field);
  }
  return text;
}

Status read_identity(const penstock_plugin_record& raw, Record& record) {
  const std::optional<Kind> kind = [&]() -> std::optional<Kind> {
    for (Kind known : kKinds)
      if (static_cast<uint32_t>(known) == raw.kind) return known;
    return std::nullopt;
  }();
  if (!kind) {
    return invalid_argument("its record's kind is {}, expected 1 (compressor) to 4 (scheduler)",
                            raw.kind);
  }
  PENSTOCK_ASSIGN(const std::string id, fixed_text(raw.id, "id"));
  const std::string prefix = std::string(kind_name(*kind)) + "/";
  if (id.compare(0, prefix.size(), prefix) != 0 || !is_plugin_name(id.substr(prefix.size()))) {
    return invalid_argument(
        "its id is \"{}\", expected \"{}NAME\" for a {}, NAME of lower-case letters, digits, "
        "'-' and '_'",
        id, prefix, kind_name(*kind));
  }
  record.kind = *kind;
  record.id = id;
  record.name = id.substr(prefix.size());
  return {};
}

}  // namespace

bool is_plugin_name(std::string_view name) {
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const auto is_legal = [&](char c) { return is_word(c) || c == '-' || c == '_'; };
  return !name.empty() && is_word(name.front()) && std::all_of(name.begin(), name.end(), is_legal);
}

Result<Record> parse_record(std::string_view bytes) {
  if (bytes.size() < kCommonBytes) return invalid_argument("its record is cut off");
  penstock_plugin_record raw{};
  std::memcpy(&raw, bytes.data(), std::min(bytes.size(), sizeof raw));
  if (std::memcmp(raw.magic, PENSTOCK_PLUGIN_MAGIC, sizeof raw.magic) != 0) {
    return invalid_argument("its symbol penstock_plugin does not begin with the magic \"{}\"",
                            PENSTOCK_PLUGIN_MAGIC);
  }
  Record record;
  record.abi_major = raw.abi_major;
  record.abi_minor = raw.abi_minor;
  record.min_host_minor = raw.min_host_minor;
  if (raw.struct_size < kCommonBytes || raw.struct_size > bytes.size() ||
      raw.struct_size > kMostStructBytes) {
    return invalid_argument(
        "its record's struct_size is {}, expected {} at least and no more than the {} bytes there",
        raw.struct_size, sizeof raw, bytes.size());
  }
  if (record.abi_major != PENSTOCK_ABI_MAJOR) {
    // Another major version may have moved the rest. If the rest is readable, the id helps to name
    // the plugin.
    if (raw.struct_size >= kFirstBytes<penstock_plugin_record> && !read_identity(raw, record).ok())
      record.id.clear();
    return record;
  }
  if (raw.struct_size < kFirstBytes<penstock_plugin_record>) {
    return invalid_argument("its record's struct_size is {}, expected {} at least", raw.struct_size,
                            kFirstBytes<penstock_plugin_record>);
  }
  PENSTOCK_TRY(read_identity(raw, record));
  PENSTOCK_ASSIGN(record.version, fixed_text(raw.version, "version"));
  PENSTOCK_ASSIGN(record.summary, fixed_text(raw.summary, "summary"));
  PENSTOCK_ASSIGN(record.license, fixed_text(raw.license, "license"));
  PENSTOCK_ASSIGN(record.source, fixed_text(raw.source, "source"));
  return record;
}

Status check_abi(const Record& record) {
  if (record.abi_major != PENSTOCK_ABI_MAJOR) {
    return unimplemented(
        "built for plugin ABI {}.{}, this host has {}.{}: build it against this host's SDK",
        record.abi_major, record.abi_minor, PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR);
  }
  if (record.min_host_minor > PENSTOCK_ABI_MINOR) {
    return unimplemented(
        "needs a host with plugin ABI {}.{} at least, but this host has {}.{}: update Penstock",
        record.abi_major, record.min_host_minor, PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR);
  }
  return {};
}

}  // namespace penstock
