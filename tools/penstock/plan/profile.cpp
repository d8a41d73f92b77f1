#include "tools/penstock/plan/profile.hpp"

#include "core/base/nearest.hpp"
#include "tools/penstock/plan/tables.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

namespace penstock::command {

namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr double kMostWork = 1e30;  // in the profile's own unit; the sum of all rows stays finite

// Reads a shape such as "64x3x7x7". An empty text stands for work without a gradient.
Result<std::vector<int64_t>> shape_of(const TableFile& table, const TableRow& row) {
  std::vector<int64_t> shape;
  const std::string& text = row.cells[1];
  int64_t numel = 1;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, extent);
    if (error != std::errc() || stop != text.data() + end || extent < 1 ||
        extent > kMostElements / numel)
      return invalid_argument(
          "{}:{}: the shape of {} is \"{}\", expected extents of at least 1 like 64x3x7x7, or "
          "nothing for work without a gradient",
          table.name, row.line, row.cells.front(), text);
    numel *= extent;
    shape.push_back(extent);
    at = end + 1;
  }
  return shape;
}

// Sets the times of the gradients. Backward runs through the rows from the last to the first, and
// each row takes the share of the time that it has of the work.
void set_times(ModelProfile& profile, const std::vector<double>& before, double total) {
  for (const double done : before) {
    const double share = total > 0 ? done / total : 0;
    profile.forward_us.push_back(share * profile.whole_forward_us);
    profile.ready_us.push_back((1 - share) * profile.backward_us);
  }
}

Result<ModelProfile> profile_from(std::string_view text, const std::string& name,
                                  const std::string& file) {
  PENSTOCK_ASSIGN(const TableFile table, TableFile::parse(text, file, {"name", "shape", "work"}));
  ModelProfile profile;
  profile.name = name;
  const auto about = table.settings.find("about");
  profile.about = about == table.settings.end() ? file : about->second;
  PENSTOCK_ASSIGN(const double forward_ms, table.setting("forward_ms", kMostMs));
  PENSTOCK_ASSIGN(const double backward_ms, table.setting("backward_ms", kMostMs));
  profile.whole_forward_us = 1000 * forward_ms;
  profile.backward_us = 1000 * backward_ms;
  std::vector<double> before;  // work before each gradient, without its own
  std::set<std::string> names;
  double total = 0;
  for (const TableRow& row : table.rows) {
    PENSTOCK_ASSIGN(const double work, table.number(row, 2, "the work", kMostWork));
    PENSTOCK_ASSIGN(std::vector<int64_t> shape, shape_of(table, row));
    if (!names.insert(row.cells.front()).second)
      return invalid_argument("{}:{}: there is a second row {}, expected a name for each",
                              table.name, row.line, row.cells.front());
    if (!shape.empty()) {
      profile.gradients.emplace_back(row.cells.front(), profile.gradients.size(), std::move(shape));
      before.push_back(total);
    }
    total += work;
  }
  if (profile.gradients.empty())
    return invalid_argument("{}: no row has a shape, expected at least one gradient", table.name);
  set_times(profile, before, total);
  return profile;
}

}  // namespace

uint64_t ModelProfile::parameters() const {
  uint64_t total = 0;
  for (const DeclaredGradient& gradient : gradients) total += gradient.numel;
  return total;
}

void ModelProfile::scale(double forward, double backward) {
  whole_forward_us *= forward;
  backward_us *= backward;
  for (double& time : forward_us) time *= forward;
  for (double& time : ready_us) time *= backward;
}

Result<ModelProfile> load_profile(const std::string& name_or_file) {
  if (const std::string_view text = shipped_table(name_or_file + ".csv"); !text.empty())
    return profile_from(text, name_or_file, name_or_file + ".csv");
  std::error_code error;
  if (!std::filesystem::exists(name_or_file, error))
    return not_found("there is no model or file \"{}\"{}", name_or_file,
                     did_you_mean(name_or_file, shipped_models()));
  PENSTOCK_ASSIGN(const std::string text, read_table_file(name_or_file, "the profile of a model"));
  return profile_from(text, std::filesystem::path(name_or_file).stem().string(), name_or_file);
}

}  // namespace penstock::command
