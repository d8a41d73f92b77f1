#include "core/set/parameters.hpp"

#include "core/base/hash.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <future>

namespace penstock {
namespace {

std::string_view bytes_of(std::span<const uint64_t> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

// The checksums that the ranks sent of their parameters, in order of ranks.
class Checksums {
 public:
  Checksums(const std::vector<std::string>& texts, const std::vector<uint32_t>& ranks)
      : texts_(texts), ranks_(ranks) {}

  bool are_as_many() const {
    return std::all_of(texts_.begin(), texts_.end(),
                       [&](const std::string& one) { return one.size() == texts_[0].size(); });
  }
  bool are_equal(size_t parameter) const { return those_that_differ(parameter).empty(); }
  std::vector<uint32_t> those_that_differ(size_t parameter) const {
    std::vector<uint32_t> ranks;
    for (size_t i = 1; i < texts_.size(); ++i)
      if (of(i, parameter) != of(0, parameter)) ranks.push_back(ranks_[i]);
    return ranks;
  }

 private:
  std::string_view of(size_t i, size_t parameter) const {
    return std::string_view(texts_[i]).substr(parameter * sizeof(uint64_t), sizeof(uint64_t));
  }
  const std::vector<std::string>& texts_;
  const std::vector<uint32_t>& ranks_;
};

constexpr size_t kNamed = 8;  // the most ranks or parameters that a message names

std::string named(const std::vector<uint32_t>& ranks) {
  const size_t n = std::min(ranks.size(), kNamed);
  const bool all = n == ranks.size();
  return fmt::format("{}{} {} not hold", fmt::join(ranks.begin(), ranks.begin() + int64_t(n), ", "),
                     all ? "" : " and others", ranks.size() == 1 ? "does" : "do");
}

// Returns "2 of 6 parameters differ: a, b".
std::string those_of(std::span<const penstock_str> names, const std::vector<size_t>& differing) {
  std::vector<std::string_view> some;
  for (size_t i = 0; i < std::min(differing.size(), kNamed); ++i)
    some.push_back(view(names[differing[i]]));
  return fmt::format("{} of {} parameters differ: {}{}", differing.size(), names.size(),
                     fmt::join(some, ", "), some.size() == differing.size() ? "" : " and others");
}

}  // namespace

// Waits as long as an operation waits, because a rank may still be reading its data.
Result<std::vector<std::string>> Parameters::hear_all(std::string_view topic,
                                                      std::string text) const {
  OperationRequest request;
  request.name = fmt::format("penstock set-up: {} of set '{}'", topic, set_.name);
  request.ranks = group_.ranks();
  request.detail = std::move(text);
  request.holds = set_.name;
  request.if_joined = OperationRequest::IfJoined::refused;
  using Answer = std::pair<Status, std::vector<std::string>>;
  // Shared, because the answer of a run that is given up may come late.
  const auto promise = std::make_shared<std::promise<Answer>>();
  auto answer = promise->get_future();
  const uint64_t id =
      services_.control.request(std::move(request), [promise](Status status, auto response) {
        promise->set_value({std::move(status), std::move(response.details)});
      });
  services_.control.blocked(id);
  auto [status, details] = answer.get();
  PENSTOCK_TRY(status);
  return std::move(details);
}

Status Parameters::compare(std::span<const penstock_str> names, std::span<const uint64_t> checksums,
                           std::string_view advice) const {
  const std::string& asked = services_.config.runtime().check_parameters;
  if (group_.size() == 1 || asked == "off") return {};
  const uint64_t whole = hash64(bytes_of(checksums), checksums.size());
  PENSTOCK_ASSIGN(const auto wholes, hear_all("parameters", hash_text(whole)));
  if (std::all_of(wholes.begin(), wholes.end(), [&](const auto& one) { return one == wholes[0]; }))
    return {};
  PENSTOCK_ASSIGN(const auto texts, hear_all("each parameter", std::string(bytes_of(checksums))));
  const Checksums all(texts, group_.ranks());
  if (!all.are_as_many())
    return mismatch(
        "set '{}': check_parameters, or the list of parameters, is not equal on all ranks: this "
        "rank compares {} parameters",
        set_.name, names.size());
  std::vector<size_t> differing;
  for (size_t i = 0; i < names.size(); ++i)
    if (!all.are_equal(i)) differing.push_back(i);
  // The hashes differ but no checksum does: impossible, unless a rank sent other data.
  if (differing.empty())
    return internal(
        "set '{}': the parameters differ as a whole, but no "
        "single parameter differs",
        set_.name);
  const std::string found = fmt::format(
      "parameter {} differs between ranks {}: rank {} the values of rank {} ({}). {}",
      view(names[differing[0]]),
      set_.attempt == 0 ? "at the first step" : fmt::format("after {} steps", set_.attempt),
      named(all.those_that_differ(differing[0])), group_.ranks()[0], those_of(names, differing),
      advice);
  if (asked == "error") return mismatch("{}", found);
  if (set_.rank == 0)
    services_.log.write(LogLevel::warning, "set",
                        fmt::format("set '{}': {} runtime.check_parameters = \"error\" does not "
                                    "let such a run go on, \"off\" does not compare",
                                    set_.name, found));
  return {};
}

}  // namespace penstock
