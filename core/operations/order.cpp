#include "core/operations/order.hpp"

#include "core/base/bytes.hpp"
#include "core/comm/channel.hpp"
#include "core/tensor/check.hpp"
#include "core/tensor/dtype.hpp"

#include <penstock/mean.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace penstock {
namespace {

constexpr uint64_t kSupportedPatterns =
    PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER) |
    PENSTOCK_PATTERN_BIT(PENSTOCK_BROADCAST) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_TO_ALL) |
    PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER) | PENSTOCK_PATTERN_BIT(PENSTOCK_BARRIER);

std::string_view reduction_name(uint32_t reduction) {
  switch (reduction) {
    case PENSTOCK_REDUCE_SUM:
      return "sum";
    case PENSTOCK_REDUCE_MIN:
      return "min";
    case PENSTOCK_REDUCE_MAX:
      return "max";
    case PENSTOCK_REDUCE_PRODUCT:
      return "product";
    default:
      return {};
  }
}

Status check_tensor(const penstock_tensor& tensor, std::string_view role) {
  const Status fault = tensor_fault(tensor);
  return fault.ok() ? fault : Status(fault.code(), fmt::format("{} {}", role, fault.message()));
}

Status read_group(const penstock_operation_declaration& declaration, const Group& world,
                  OperationOrder& order) {
  if (declaration.n_ranks != 0 && declaration.ranks == nullptr)
    return invalid_argument("ranks is null, n_ranks is {}", declaration.n_ranks);
  PENSTOCK_ASSIGN(order.group, world.subset({declaration.ranks, declaration.n_ranks}));
  if (order.pattern != PENSTOCK_BROADCAST) return {};
  const auto root = order.group.position_of(declaration.root);
  if (!root)
    return invalid_argument("root is {}, expected one of the ranks [{}]", declaration.root,
                            fmt::join(order.group.ranks(), ", "));
  order.root_index = *root;
  return {};
}

Status read_reduction(const penstock_operation_declaration& declaration, OperationOrder& order) {
  // Callers leave the scale at zero if there is nothing to reduce.
  const auto unset = [](double scale) { return scale == 0 || scale == 1; };
  if (!order.reduces()) {
    if (declaration.average != 0 || !unset(declaration.prescale) || !unset(declaration.postscale)) {
      return invalid_argument("{} reduces nothing: average must be 0, prescale and postscale 1",
                              pattern_name(order.pattern));
    }
    return {};
  }
  order.reduction = declaration.reduction;
  order.prescale = declaration.prescale;
  order.postscale = declaration.postscale;
  order.average = declaration.average != 0;
  if (reduction_name(order.reduction).empty()) {
    return invalid_argument("reduction is {}, expected sum, min, max or product", order.reduction);
  }
  if (declaration.average > 1 || (order.average && order.reduction != PENSTOCK_REDUCE_SUM)) {
    return invalid_argument("average is {} with reduction {}, expected 0, or 1 with sum",
                            declaration.average, reduction_name(order.reduction));
  }
  if (!std::isfinite(order.prescale) || !std::isfinite(order.postscale)) {
    return invalid_argument("prescale is {} and postscale {}, expected finite numbers",
                            order.prescale, order.postscale);
  }
  const bool and_or =
      order.reduction == PENSTOCK_REDUCE_MIN || order.reduction == PENSTOCK_REDUCE_MAX;
  if (order.dtype == PENSTOCK_BOOL && (!and_or || order.prescale != 1 || order.postscale != 1)) {
    return invalid_argument(
        "{} of bool with prescale {} and postscale {}: expected min (and) or max (or) without "
        "scales; convert to int32 "
        "to count",
        reduction_name(order.reduction), order.prescale, order.postscale);
  }
  return {};
}

Status read_splits(const penstock_operation_declaration& declaration, OperationOrder& order) {
  const uint32_t size = order.group.size();
  if (order.pattern != PENSTOCK_ALL_TO_ALL) {
    return declaration.n_splits == 0 ? Status()
                                     : invalid_argument("splits are for all_to_all only");
  }
  if (declaration.n_splits == 0) {
    if (order.rows % size != 0) {
      return invalid_argument(
          "first dimension is {}, which {} ranks cannot share equally; give splits", order.rows,
          size);
    }
    order.splits.assign(size, order.rows / size);
    return {};
  }
  if (declaration.splits == nullptr || declaration.n_splits != size) {
    return invalid_argument("there are {} splits, expected one for each of the {} ranks",
                            declaration.n_splits, size);
  }
  uint64_t sum = 0;
  for (uint64_t i = 0; i < declaration.n_splits; ++i) {
    if (declaration.splits[i] > order.rows - sum) {
      return invalid_argument("splits add up to more than the first dimension, {}", order.rows);
    }
    sum += declaration.splits[i];
  }
  order.splits.assign(declaration.splits, declaration.splits + declaration.n_splits);
  return {};
}

uint64_t rows_of_share(uint64_t rows, uint32_t size, uint32_t index) {
  // The lowest ranks get one more row each, until the remainder is used up.
  return rows / size + (index < rows % size ? 1 : 0);
}

Status read_tensors(const penstock_operation_declaration& declaration, OperationOrder& order) {
  const penstock_tensor* input = declaration.input;
  const penstock_tensor* output = declaration.output;
  if (input == nullptr)
    return invalid_argument("{} needs an input tensor", pattern_name(order.pattern));
  PENSTOCK_TRY(check_tensor(*input, "the input"));
  order.dtype = input->dtype;
  order.numel = input->numel;
  order.input = input->data;
  order.shape.assign(input->shape, input->shape + input->n_dims);
  if (order.pattern != PENSTOCK_ALL_REDUCE && order.pattern != PENSTOCK_BROADCAST) {
    if (order.shape.empty()) {
      return invalid_argument("{} of a scalar: expected at least one dimension; reshape it to [1]",
                              pattern_name(order.pattern));
    }
    order.rows = static_cast<uint64_t>(order.shape[0]);
    order.row_numel = 1;
    for (size_t i = 1; i < order.shape.size(); ++i) {
      // Without rows on this rank the elements of a row were not counted above, but other ranks may
      // send rows.
      if (__builtin_mul_overflow(order.row_numel, static_cast<uint64_t>(order.shape[i]),
                                 &order.row_numel)) {
        return invalid_argument(
            "the input's shape is [{}], a row of it is more than memory can hold",
            fmt::join(order.shape, ", "));
      }
    }
  }
  if (output == nullptr) return {};
  PENSTOCK_TRY(check_tensor(*output, "the output"));
  order.output = output->data;
  order.output_numel = output->numel;
  if (output->dtype != input->dtype) {
    return invalid_argument("the output has dtype {}, the input {}; they must be equal",
                            dtype_name(output->dtype), dtype_name(input->dtype));
  }
  const uint64_t bytes = dtype_bytes(order.dtype);
  const auto* in = static_cast<const char*>(input->data);
  const auto* out = static_cast<const char*>(output->data);
  const bool overlap = in < out + output->numel * bytes && out < in + input->numel * bytes;
  const bool in_place = order.pattern == PENSTOCK_ALL_REDUCE || order.pattern == PENSTOCK_BROADCAST;
  if (overlap && !(in_place && in == out)) {
    return invalid_argument("input and output overlap, expected them {}",
                            in_place ? "equal or apart" : "apart");
  }
  uint64_t expected = order.output_numel;
  if (in_place) expected = order.numel;
  if (order.pattern == PENSTOCK_REDUCE_SCATTER) {
    expected = rows_of_share(order.rows, order.group.size(), order.group.rank()) * order.row_numel;
  }
  if (order.output_numel != expected) {
    return invalid_argument("the output has {} elements, expected {}", order.output_numel,
                            expected);
  }
  return {};
}

Status read_into(const penstock_operation_declaration& declaration, const Group& world,
                 OperationOrder& order) {
  if (order.name.empty())
    return invalid_argument("its name is empty, expected a name that all ranks use");
  if (order.pattern >= 64 || (kSupportedPatterns & PENSTOCK_PATTERN_BIT(order.pattern)) == 0) {
    return invalid_argument(
        "pattern is {}, expected all_reduce, all_gather, broadcast, all_to_all, reduce_scatter or "
        "barrier",
        order.pattern);
  }
  PENSTOCK_TRY(read_group(declaration, world, order));
  if (order.pattern != PENSTOCK_BARRIER) PENSTOCK_TRY(read_tensors(declaration, order));
  PENSTOCK_TRY(read_reduction(declaration, order));
  return read_splits(declaration, order);
}

}  // namespace

Result<OperationOrder> read_order(const penstock_operation_declaration& declaration,
                                  const Group& world) {
  if (!PENSTOCK_HAS_FIELD(&declaration, penstock_operation_declaration, average)) {
    return invalid_argument("operation: struct_size is {}, expected at least the size of ABI 0.1",
                            declaration.struct_size);
  }
  OperationOrder order;
  order.name = view(declaration.name);
  order.pattern = declaration.pattern;
  Status status = read_into(declaration, world, order);
  if (!status.ok()) return status.with_context(fmt::format("operation '{}'", order.name));
  return order;
}

std::string signature_of(const OperationOrder& order) {
  std::string text = fmt::format("pattern {}\n", pattern_name(order.pattern));
  if (order.pattern == PENSTOCK_BARRIER) return text;
  // The number of rows may differ if each rank brings its own rows.
  const bool own_rows =
      order.pattern == PENSTOCK_ALL_GATHER || order.pattern == PENSTOCK_ALL_TO_ALL;
  std::vector<std::string> sizes;
  for (int64_t size : order.shape)
    sizes.push_back(own_rows && sizes.empty() ? "any" : std::to_string(size));
  text += fmt::format("dtype {}\nshape [{}]\n", dtype_name(order.dtype), fmt::join(sizes, ", "));
  if (order.pattern == PENSTOCK_BROADCAST)
    text += fmt::format("root {}\n", order.group.ranks()[order.root_index]);
  if (order.reduces()) {
    text += fmt::format("reduction {}\nprescale {}\npostscale {}\n",
                        order.average ? "average" : reduction_name(order.reduction), order.prescale,
                        order.postscale);
  }
  return text;
}

std::string zeros_of(const OperationOrder& order) {
  std::string text;
  const bool adds =
      order.reduction == PENSTOCK_REDUCE_SUM || order.reduction == PENSTOCK_REDUCE_MEAN;
  if (order.pattern != PENSTOCK_ALL_REDUCE || !adds) return text;
  ByteWriter writer(text);
  writer.put(order.reduction);
  writer.put(order.dtype);
  writer.put(order.numel);
  return text;
}

Result<OperationOrder> order_of_zeros(std::string_view name, std::string_view zeros, Group group) {
  ByteReader reader(zeros);
  OperationOrder order;
  order.name = name;
  order.pattern = PENSTOCK_ALL_REDUCE;
  order.reduction = reader.get<uint32_t>();
  order.dtype = reader.get<uint32_t>();
  order.numel = reader.get<uint64_t>();
  order.group = std::move(group);
  order.is_zeros = true;
  if (!reader.at_end() || dtype_bytes(order.dtype) == 0 ||
      is_too_large(order.numel, dtype_bytes(order.dtype)))
    return invalid_payload("operation '{}': {} bytes are not a description of the zeros to add",
                           name, zeros.size());
  return order;
}

std::string detail_of(const OperationOrder& order) {
  if (order.pattern == PENSTOCK_ALL_GATHER) return std::to_string(order.rows);
  if (order.pattern == PENSTOCK_ALL_TO_ALL) return fmt::format("{}", fmt::join(order.splits, ","));
  return {};
}

namespace {

// Reads exactly `count` numbers, separated by commas.
Result<std::vector<uint64_t>> read_numbers(std::string_view text, size_t count) {
  std::vector<uint64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (numbers.size() < count) {
    if (!numbers.empty() && (at == end || *at++ != ',')) break;
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) break;
    numbers.push_back(number);
    at = rest;
  }
  if (at != end || numbers.size() != count)
    return invalid_payload("'{}' is no list of {} numbers", text, count);
  return numbers;
}

// The number of rows that each rank of the group sends to this rank.
Result<std::vector<uint64_t>> received_rows(const OperationOrder& order,
                                            const std::vector<std::string>& details) {
  const bool to_all = order.pattern == PENSTOCK_ALL_TO_ALL;
  std::vector<uint64_t> rows;
  for (const std::string& detail : details) {
    PENSTOCK_ASSIGN(const std::vector<uint64_t> numbers,
                    read_numbers(detail, to_all ? order.group.size() : 1));
    rows.push_back(to_all ? numbers[order.group.rank()] : numbers[0]);
  }
  return rows;
}

}  // namespace

Result<OperationLayout> lay_out(const OperationOrder& order,
                                const std::vector<std::string>& details) {
  OperationLayout layout;
  layout.send_numel = layout.receive_numel = order.numel;
  const uint32_t size = order.group.size();
  if (details.size() != size) {
    return invalid_payload("operation '{}': {} ranks answered, expected {}", order.name,
                           details.size(), size);
  }
  if (order.pattern == PENSTOCK_REDUCE_SCATTER) {
    for (uint32_t i = 0; i < size; ++i) layout.rows.push_back(rows_of_share(order.rows, size, i));
  } else if (order.pattern == PENSTOCK_ALL_GATHER || order.pattern == PENSTOCK_ALL_TO_ALL) {
    Result<std::vector<uint64_t>> rows = received_rows(order, details);
    if (!rows.ok()) return rows.status().with_context(fmt::format("operation '{}'", order.name));
    layout.rows = std::move(*rows);
  } else {
    return layout;
  }
  uint64_t offset = 0;
  for (uint64_t rows : layout.rows) {
    uint64_t count = 0;
    uint64_t end = 0;
    if (__builtin_mul_overflow(rows, order.row_numel, &count) ||
        __builtin_add_overflow(offset, count, &end) ||
        is_too_large(end, dtype_bytes(order.dtype))) {
      return invalid_payload("operation '{}': the output's rows [{}] are more than memory can hold",
                             order.name, fmt::join(layout.rows, ", "));
    }
    layout.receive_counts.push_back(count);
    layout.receive_offsets.push_back(offset);
    offset = end;
  }
  layout.receive_numel = offset;
  if (order.pattern == PENSTOCK_REDUCE_SCATTER)
    layout.receive_numel = layout.receive_counts[order.group.rank()];
  if (order.pattern == PENSTOCK_ALL_TO_ALL) {
    layout.send_numel = 0;
    for (uint64_t rows : order.splits) {
      layout.send_counts.push_back(rows * order.row_numel);
      layout.send_numel += layout.send_counts.back();
    }
  }
  return layout;
}

}  // namespace penstock
