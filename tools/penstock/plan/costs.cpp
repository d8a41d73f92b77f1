#include "tools/penstock/plan/costs.hpp"

#include "tools/penstock/plan/tables.hpp"

#include <fmt/ranges.h>

#include <iterator>
#include <utility>
#include <vector>

namespace penstock::command {

namespace {

// The columns of a table of costs after the method's name, and their members.
constexpr std::pair<const char*, double MethodCost::*> kColumns[] = {
    {"encode_us", &MethodCost::encode_us},
    {"encode_ns_per_element", &MethodCost::encode_ns},
    {"decode_us", &MethodCost::decode_us},
    {"decode_ns_per_element", &MethodCost::decode_ns},
    {"further_payload_ns_per_element", &MethodCost::further_ns}};

std::vector<std::string> column_names() {
  std::vector<std::string> names{"method"};
  for (const auto& [name, member] : kColumns) names.emplace_back(name);
  return names;
}

}  // namespace

std::string method_name(const InstanceConfig& compressor, const InstanceConfig& memory) {
  std::string options;
  for (const auto& [key, setting] : compressor.options)
    options += fmt::format("{}{} = {}", options.empty() ? "" : "; ", key, setting.text());
  return compressor.plugin + (options.empty() ? "" : "(" + options + ")") + "+" + memory.plugin;
}

const MethodCost* CostTable::find(const InstanceConfig& compressor,
                                  const InstanceConfig& memory) const {
  const auto exact = methods.find(method_name(compressor, memory));
  if (exact != methods.end()) return &exact->second;
  const MethodCost* near = nullptr;
  for (const auto& [name, cost] : methods) {
    if (name.substr(0, name.find_first_of("(+")) != compressor.plugin) continue;
    if (name.substr(name.rfind('+') + 1) == memory.plugin) return &cost;
    if (near == nullptr) near = &cost;
  }
  return near;
}

std::string CostTable::text() const {
  std::string text =
      fmt::format("# Written by penstock plan --measure --save-costs FILE.\n# about = {}\n{}\n",
                  about, fmt::join(column_names(), ","));
  for (const auto& [method, cost] : methods) {
    text += method;
    for (const auto& [name, member] : kColumns) text += fmt::format(",{:.4g}", cost.*member);
    text += "\n";
  }
  return text;
}

Result<CostTable> load_costs(const std::string& path) {
  std::string text(shipped_table("costs.csv"));
  if (!path.empty()) {
    PENSTOCK_ASSIGN(text, read_table_file(path, "a table of costs"));
  }
  PENSTOCK_ASSIGN(const TableFile table,
                  TableFile::parse(text, path.empty() ? "costs.csv" : path, column_names()));
  CostTable costs;
  const auto about = table.settings.find("about");
  costs.about = about == table.settings.end() ? table.name : about->second;
  for (const TableRow& row : table.rows) {
    MethodCost& cost = costs.methods[row.cells.front()];
    for (size_t i = 0; i < std::size(kColumns); ++i) {
      const auto [name, member] = kColumns[i];
      PENSTOCK_ASSIGN(cost.*member, table.number(row, i + 1, name, kMostMs));
    }
  }
  return costs;
}

}  // namespace penstock::command
