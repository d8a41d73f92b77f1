#include "core/state/generations.hpp"

#include "core/tensor/dtype.hpp"

#include <algorithm>

namespace penstock {

bool Generations::is_written(const Range& range) const {
  return std::any_of(written.begin(), written.end(), [&](const Range& one) {
    return one.first <= range.first && range.end <= one.end;
  });
}

Status Generations::advance() {
  if (written.empty()) return {};
  std::sort(written.begin(), written.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  uint64_t end = 0;
  for (const Range& range : written) {
    if (range.first > end) PENSTOCK_TRY(copy({end, range.first}));
    end = std::max(end, range.end);
  }
  if (end < memory.bytes()) PENSTOCK_TRY(copy({end, memory.bytes()}));
  other_is_current = !other_is_current;
  written.clear();
  return {};
}

StateView::StateView(Generations& tensor, const penstock_state_declaration& declared,
                     uint64_t first_byte)
    : tensor_(tensor),
      range_{first_byte, first_byte + declared.rows * declared.cols * dtype_bytes(declared.dtype)},
      shape_{int64_t(declared.rows), int64_t(declared.cols)} {
  c_.struct_size = sizeof c_;
  c_.shape = shape_;
  c_.n_dims = 2;
  c_.numel = declared.rows * declared.cols;
  c_.dtype = declared.dtype;
  c_.device_type = tensor.memory.place().device_type;
  c_.device_id = tensor.memory.place().device_id;
  before_ = c_;
  // The step path allocates nothing.
  if (tensor.other) tensor.written.reserve(tensor.written.capacity() + 1);
  close();
}

void StateView::close() {
  c_.data = tensor_.current().data() + range_.first;
}

void StateView::open_unwritten() {
  before_.data = tensor_.current().data() + range_.first;
  c_.data = tensor_.next().data() + range_.first;
  if (tensor_.other && !tensor_.is_written(range_)) tensor_.written.push_back(range_);
}

Status StateView::open() {
  const bool is_there = !tensor_.other || tensor_.is_written(range_);
  open_unwritten();
  return is_there ? Status() : copy_after_all();
}

Status StateView::copy_after_all() {
  if (!tensor_.other) return {};
  return tensor_.next().copy_from(tensor_.current(), range_.first, range_.end - range_.first);
}

}  // namespace penstock
