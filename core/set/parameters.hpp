// Compares the parameters with which ranks begin. If they differ, each rank trains a model of its
// own, and nothing ever reports it. Some programs want that, so a difference is an error only if
// the program asks for it.
#pragma once

#include "core/bucket/context.hpp"
#include "core/set/services.hpp"

#include <penstock/runtime.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class Parameters {
 public:
  // The arguments must outlive the object. `group`: the ranks of the set.
  Parameters(const SetContext& set, const Services& services, const Group& group)
      : set_(set), services_(services), group_(group) {}

  // [control] Collective, between two steps. See penstock_set_compare_parameters.
  Status compare(std::span<const penstock_str> names, std::span<const uint64_t> checksums,
                 std::string_view advice) const;

 private:
  Result<std::vector<std::string>> hear_all(std::string_view topic, std::string text) const;

  const SetContext& set_;
  const Services& services_;
  const Group& group_;
};

}  // namespace penstock
