#include "core/config/former_names.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::string_view kLent = "lent", kBorrowed = "borrowed";

NodeTable* table_at(NodeTable& tables, std::string_view name) {
  for (NodeEntry& entry : tables)
    if (entry.key == name) return std::get_if<NodeTable>(&entry.node.value);
  return nullptr;
}

Status rename(NodeTable& table, std::string_view title, std::string_view former,
              std::string_view now) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const NodeEntry& entry) { return entry.key == former; });
  if (found == table.end()) return {};
  if (find_key(table, now) != nullptr)
    return invalid_argument(
        "{}: {}.{} is the former name of {}.{}, which the file has too: remove "
        "one of them",
        found->node.where.text(), title, former, title, now);
  found->key = now;
  return {};
}

// Renames the value "lent" of any key.
void name_transport(NodeTable& table) {
  for (NodeEntry& entry : table) {
    if (auto* const text = std::get_if<std::string>(&entry.node.value);
        text != nullptr && *text == kLent)
      *text = kBorrowed;
  }
}

}  // namespace

Status replace_former_names(Node& root) {
  auto& tables = std::get<NodeTable>(root.value);
  if (NodeTable* runtime = table_at(tables, "runtime"))
    PENSTOCK_TRY(rename(*runtime, "runtime", "meeting_timeout_s", "rendezvous_timeout_s"));
  for (const std::string_view name : {"scheme", "transport"})
    if (NodeTable* table = table_at(tables, name)) name_transport(*table);
  if (NodeTable* schedulers = table_at(tables, "scheduler")) {
    for (NodeEntry& entry : *schedulers)
      if (auto* const instance = std::get_if<NodeTable>(&entry.node.value))
        PENSTOCK_TRY(
            rename(*instance, "scheduler." + entry.key, "replan_looks", "replan_observations"));
  }
  if (NodeTable* collectives = table_at(tables, "collective")) {
    PENSTOCK_TRY(rename(*collectives, "collective", kLent, kBorrowed));
    for (NodeEntry& entry : *collectives)
      if (auto* const instance = std::get_if<NodeTable>(&entry.node.value))
        name_transport(*instance);
  }
  return {};
}

}  // namespace penstock
