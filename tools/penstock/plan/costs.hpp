// What methods take to encode and decode: a line through calls of few and of many elements.
#pragma once

#include "core/config/config.hpp"

#include <map>
#include <string>

namespace penstock::command {

struct MethodCost {
  double encode_us = 0;  // of a call, whatever its size: compensate and encode
  double encode_ns = 0;  // more for every element of the gradient
  double decode_us = 0;  // of one payload, and what follows until the result is there
  double decode_ns = 0;
  double further_ns = 0;  // for every element of each payload more
};

// How tables call a compressor with its options beside a memory: "topk(density = 0.01)+residual".
std::string method_name(const InstanceConfig& compressor, const InstanceConfig& memory);

struct CostTable {
  std::string about;                          // on which machine, by which command
  std::map<std::string, MethodCost> methods;  // by name

  // The method's; else that of its compressor with other options, or with another memory; null
  // where none is known.
  const MethodCost* find(const InstanceConfig& compressor, const InstanceConfig& memory) const;
  // As load_costs reads it.
  std::string text() const;
};

// The shipped table where `path` is empty. NOT_FOUND, INVALID_ARGUMENT: as profiles.
Result<CostTable> load_costs(const std::string& path);

}  // namespace penstock::command
