// The required functions of a table, by kind.
#include "core/plugin/module.hpp"

#include "core/plugin/c_struct.hpp"
#include "core/plugin/options.hpp"

#include <cstddef>
#include <cstring>

namespace penstock {

namespace {

struct Member {
  const char* name;
  size_t offset;
};

#define PENSTOCK_MEMBER(table, member) \
  Member {                             \
#member, offsetof(table, member)   \
  }

const std::vector<Member>& mandatory_members(Kind kind) {
  static const std::vector<Member> compressor = {
      PENSTOCK_MEMBER(penstock_compressor, create),   PENSTOCK_MEMBER(penstock_compressor, destroy),
      PENSTOCK_MEMBER(penstock_compressor, describe), PENSTOCK_MEMBER(penstock_compressor, plan),
      PENSTOCK_MEMBER(penstock_compressor, encode),   PENSTOCK_MEMBER(penstock_compressor, decode)};
  static const std::vector<Member> memory = {
      PENSTOCK_MEMBER(penstock_memory, create), PENSTOCK_MEMBER(penstock_memory, destroy),
      PENSTOCK_MEMBER(penstock_memory, plan), PENSTOCK_MEMBER(penstock_memory, compensate)};
  static const std::vector<Member> collective = {
      PENSTOCK_MEMBER(penstock_collective, create),   PENSTOCK_MEMBER(penstock_collective, destroy),
      PENSTOCK_MEMBER(penstock_collective, describe), PENSTOCK_MEMBER(penstock_collective, volume),
      PENSTOCK_MEMBER(penstock_collective, open),     PENSTOCK_MEMBER(penstock_collective, submit),
      PENSTOCK_MEMBER(penstock_collective, progress), PENSTOCK_MEMBER(penstock_collective, release),
      PENSTOCK_MEMBER(penstock_collective, abort),    PENSTOCK_MEMBER(penstock_collective, close)};
  static const std::vector<Member> scheduler = {
      PENSTOCK_MEMBER(penstock_scheduler, create), PENSTOCK_MEMBER(penstock_scheduler, destroy),
      PENSTOCK_MEMBER(penstock_scheduler, describe), PENSTOCK_MEMBER(penstock_scheduler, plan)};
  switch (kind) {
    case Kind::compressor:
      return compressor;
    case Kind::memory:
      return memory;
    case Kind::collective:
      return collective;
    case Kind::scheduler:
      return scheduler;
  }
  return compressor;
}

#undef PENSTOCK_MEMBER

}  // namespace

Status check_module(Kind kind, const penstock_module* module) {
  if (module == nullptr) return invalid_argument("load succeeded but gave no module");
  if (module->struct_size < kFirstBytes<penstock_module> ||
      module->struct_size > kMostStructBytes) {
    return invalid_argument("its module's struct_size is {}, expected {} at least",
                            module->struct_size, kFirstBytes<penstock_module>);
  }
  if (module->table == nullptr)
    return invalid_argument("its module has no {} table", kind_name(kind));
  const auto* table = static_cast<const char*>(module->table);
  uint64_t table_size = 0;
  std::memcpy(&table_size, table, sizeof table_size);
  if (table_size > kMostStructBytes) {
    return invalid_argument("its {} table's struct_size is {}, which no table has", kind_name(kind),
                            table_size);
  }
  for (const Member& member : mandatory_members(kind)) {
    void (*function)() = nullptr;
    const bool within = table_size >= member.offset + sizeof function;
    if (within) std::memcpy(&function, table + member.offset, sizeof function);
    if (function == nullptr) {
      return invalid_argument("its {} table lacks the mandatory member {}", kind_name(kind),
                              member.name);
    }
  }
  return check_option_declarations(module->options, module->n_options);
}

}  // namespace penstock
