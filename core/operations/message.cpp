#include "core/operations/message.hpp"

#include "core/base/unless_thrown.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Below this size a copy costs less than a separate message.
constexpr uint64_t kMostOfOne = uint64_t{1} << 20;
constexpr uint64_t kMostTogether = uint64_t{16} << 20;

// Booleans travel as bytes 0 and 1, so AND is the minimum, and OR is the maximum.
uint32_t sent_dtype(const OperationOrder& order) {
  return order.dtype == PENSTOCK_BOOL ? uint32_t{PENSTOCK_UINT8} : order.dtype;
}

}  // namespace

bool OperationMessage::may_join(const OperationOrder& first, uint64_t bytes,
                                const OperationOrder& order) {
  if (order.pattern != first.pattern ||
      (order.pattern != PENSTOCK_ALL_REDUCE && order.pattern != PENSTOCK_BROADCAST))
    return false;
  if (sent_dtype(order) != sent_dtype(first) || order.reduction != first.reduction ||
      order.root_index != first.root_index || order.group.ranks() != first.group.ranks())
    return false;
  return order.bytes() <= kMostOfOne && first.bytes() <= kMostOfOne &&
         bytes + order.bytes() <= kMostTogether;
}

Status OperationMessage::pack() {
  NamedOperation& first = *operations_.front();
  const OperationOrder& order = first.order_;
  exec_ = {sizeof exec_, nullptr, nullptr, 0, PENSTOCK_DEVICE_CPU, 0};
  step_.struct_size = sizeof step_;
  step_.grad_scale = 1;
  step_.rank = order.group.rank();
  step_.world = order.group.size();
  message.struct_size = sizeof message;
  message.pattern = order.pattern;
  message.reduction = order.reduction;
  message.dtype = sent_dtype(order);
  message.peer = order.root_index;
  message.exec = &exec_;
  message.step = &step_;
  OperationLayout& layout = first.layout_;
  if (operations_.size() == 1) {
    message.send = first.send_;
    message.receive = first.target_;
    message.count = layout.send_numel;
    message.flags = layout.receive_counts.empty() ? 0 : PENSTOCK_MESSAGE_EXACT_COUNTS;
    message.send_counts = layout.send_counts.empty() ? nullptr : layout.send_counts.data();
    message.receive_counts = layout.receive_counts.empty() ? nullptr : layout.receive_counts.data();
    message.receive_offsets =
        layout.receive_offsets.empty() ? nullptr : layout.receive_offsets.data();
    return {};
  }
  uint64_t bytes = 0;
  for (const auto& operation : operations_) bytes += operation->order_.bytes();
  PENSTOCK_TRY(unless_thrown([&]() -> Status {
    together_ = Buffer(std::max<uint64_t>(bytes, 1));
    return {};
  }));
  std::byte* to = together_.data();
  for (const auto& operation : operations_) {
    const uint64_t size = operation->order_.bytes();
    if (size != 0) std::memcpy(to, operation->send_, size);
    to += size;
  }
  message.send = message.receive = together_.data();
  message.count = bytes / dtype_bytes(message.dtype);
  return {};
}

void OperationMessage::unpack() {
  if (operations_.size() == 1) return;
  const std::byte* from = together_.data();
  for (const auto& operation : operations_) {
    const uint64_t size = operation->order_.bytes();
    if (size != 0) std::memcpy(operation->target_, from, size);
    from += size;
  }
}

void OperationMessage::finished(Status status) {
  const std::shared_ptr<OperationWorker> worker = std::move(worker_);
  worker->exchanged(std::move(self_), std::move(status));
}

}  // namespace penstock
