#include "core/plugin/code_paths.hpp"

#include <fmt/format.h>
#include <kernels/fastest_path.hpp>

#include <algorithm>
#include <sstream>

namespace penstock {

namespace {

using kernels::CodePath;

// The text has "runs" and the paths in the first line, then lines "fastest FAMILY PATH". "-" stands
// for the family "".
constexpr std::string_view kRuns = "runs", kFastest = "fastest", kOthers = "-";

struct Offer {
  std::vector<std::string> runs;  // narrow to wide
  CodePaths fastest;
};

Result<Offer> read_offer(const std::string& text) {
  Offer offer;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word, family, path;
    words >> word;
    if (word == kRuns) {
      while (words >> path) offer.runs.push_back(path);
    } else if (word == kFastest && words >> family >> path) {
      offer.fastest[family == kOthers ? std::string() : family] = path;
    } else {
      return internal("a rank reports its code paths as \"{}\", which this version cannot read",
                      line);
    }
  }
  if (offer.runs.empty()) return internal("a rank reports no code path that it can run");
  return offer;
}

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string code_path_offer(bool measures) {
  std::string text(kRuns);
  for (const CodePath path : kernels::kAllCodePaths)
    if (kernels::code_path_supported(path))
      text += fmt::format(" {}", kernels::code_path_name(path));
  text += "\n";
  if (!measures) return text;
  for (const std::string_view family : kernels::code_path_families())
    text += fmt::format("{} {} {}\n", kFastest, family.empty() ? kOthers : family,
                        kernels::code_path_name(kernels::fastest_code_path(family)));
  return text;
}

Result<CodePaths> choose_code_paths(const std::vector<std::string>& texts,
                                    std::string_view wanted) {
  std::vector<Offer> offers;
  for (const std::string& text : texts) {
    PENSTOCK_ASSIGN(Offer offer, read_offer(text));
    offers.push_back(std::move(offer));
  }
  const bool forced = wanted != "auto";
  for (size_t rank = 0; forced && rank < offers.size(); ++rank) {
    if (holds(offers[rank].runs, wanted)) continue;
    return failed_precondition(
        "runtime.code_path = \"{}\", but the processor of rank {} runs only {}; set "
        "runtime.code_path to one of these paths, or to \"auto\"",
        wanted, rank, fmt::join(offers[rank].runs, ", "));
  }
  if (forced) return CodePaths{{"", std::string(wanted)}};

  const auto all_run = [&](std::string_view path) {
    return std::all_of(offers.begin(), offers.end(),
                       [&](const Offer& offer) { return holds(offer.runs, path); });
  };
  CodePaths chosen;
  for (const auto& [family, fastest] : offers.front().fastest) {
    std::string& path = chosen[family];
    for (const std::string& candidate : offers.front().runs) {
      if (all_run(candidate)) path = candidate;
      if (candidate == fastest) break;
    }
  }
  return chosen;
}

}  // namespace penstock
