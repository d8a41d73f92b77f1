// The order of a named operation: its checked declaration, the facts that ranks must agree on, and
// the layout of its bytes. Pure functions.
#pragma once

#include "core/comm/group.hpp"
#include "core/tensor/dtype.hpp"

#include <penstock/runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// A checked declaration that owns copies of everything but the tensor memory, which stays the
// caller's.
struct OperationOrder {
  std::string name;
  uint32_t pattern = 0;
  uint32_t reduction = 0;  // reduction of its message
  uint32_t dtype = 0;
  Group group;
  uint32_t root_index = 0;  // BROADCAST: rank in the group
  std::vector<int64_t> shape;
  uint64_t numel = 0;
  uint64_t rows = 0;       // first dimension
  uint64_t row_numel = 0;  // elements per row
  const void* input = nullptr;
  void* output = nullptr;  // null: the operation owns its output
  uint64_t output_numel = 0;
  std::vector<uint64_t> splits;  // ALL_TO_ALL: rows for each rank of the group
  double prescale = 1;
  double postscale = 1;
  bool average = false;
  bool is_zeros = false;  // true on a rank that has joined: neither input nor output

  uint64_t bytes() const { return numel * dtype_bytes(dtype); }
  bool reduces() const {
    return pattern == PENSTOCK_ALL_REDUCE || pattern == PENSTOCK_REDUCE_SCATTER;
  }
};

// INVALID_ARGUMENT, with the operation's name, for each error that this rank alone can detect;
// UNIMPLEMENTED for tensors that are not on the CPU.
Result<OperationOrder> read_order(const penstock_operation_declaration& declaration,
                                  const Group& world);

// Lines that must be equal on all ranks of the group.
std::string signature_of(const OperationOrder& order);
// The data that a joined rank needs to add zeros to it; empty if the operation is not a sum.
std::string zeros_of(const OperationOrder& order);
// The order of a joined rank, which has no tensors. INVALID_PAYLOAD if `zeros` is invalid.
Result<OperationOrder> order_of_zeros(std::string_view name, std::string_view zeros, Group group);
// This rank's rows (ALL_GATHER) or splits (ALL_TO_ALL); empty for other patterns.
std::string detail_of(const OperationOrder& order);

// Counts in elements, per rank of the group.
struct OperationLayout {
  uint64_t send_numel = 0;
  uint64_t receive_numel = 0;
  std::vector<uint64_t> send_counts;      // ALL_TO_ALL
  std::vector<uint64_t> receive_counts;   // ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER
  std::vector<uint64_t> receive_offsets;  // ALL_GATHER, ALL_TO_ALL
  std::vector<uint64_t>
      rows;  // ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER: first-dimension rows per rank
};

// INVALID_PAYLOAD if the detail of a peer is invalid.
Result<OperationLayout> lay_out(const OperationOrder& order,
                                const std::vector<std::string>& details);

}  // namespace penstock
