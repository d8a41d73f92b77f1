// The times of methods to encode and decode: for each method a line through the times of a call
// with few and a call with many elements.
#pragma once

#include "core/config/config.hpp"

#include <map>
#include <string>

namespace penstock::command {

struct MethodCost {
  double encode_us = 0;  // fixed time of a call that compensates and encodes
  double encode_ns = 0;  // additional time for every element of the gradient
  double decode_us = 0;  // fixed time from the decoding of one payload until the result is there
  double decode_ns = 0;
  double further_ns = 0;  // for every element of each further payload
};

// The name of a method in tables, made of the compressor, its options and the memory:
// "topk(density = 0.01)+residual".
std::string method_name(const InstanceConfig& compressor, const InstanceConfig& memory);

struct CostTable {
  std::string about;                          // the machine and the command of the measurement
  std::map<std::string, MethodCost> methods;  // by name

  // The cost of the method; otherwise the cost of its compressor with other options or with another
  // memory; null if the table has no such cost.
  const MethodCost* find(const InstanceConfig& compressor, const InstanceConfig& memory) const;
  // The table in the format that load_costs() reads.
  std::string text() const;
};

// Loads a table of costs; an empty `path` means the shipped table. Errors are those of
// load_profile().
Result<CostTable> load_costs(const std::string& path);

}  // namespace penstock::command
