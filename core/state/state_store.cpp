#include "core/state/state_store.hpp"

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <tuple>

namespace penstock {

std::string StateKey::text() const {
  return fmt::format("state '{}' of {} for gradient '{}' [{}, {})", name, owner, gradient, first,
                     first + numel);
}

namespace {

bool has_shape(const StateTensor& tensor, const penstock_state_declaration& declaration) {
  return tensor.view.dtype == declaration.dtype && tensor.shape[0] == int64_t(declaration.rows) &&
         tensor.shape[1] == int64_t(declaration.cols);
}

Result<std::shared_ptr<StateTensor>> make_tensor(const StateKey& key,
                                                 const penstock_state_declaration& declaration) {
  // Sizes and types have been looked at where the plugin's need was taken.
  const uint64_t numel = declaration.rows * declaration.cols;
  const uint64_t bytes = numel * dtype_bytes(declaration.dtype);
  std::optional<Buffer> buffer = Buffer::try_make(bytes);
  if (!buffer)
    return out_of_memory("{} takes {} bytes ({} x {}), more than there are", key.text(), bytes,
                         declaration.rows, declaration.cols);
  auto fresh = std::make_shared<StateTensor>();
  fresh->shape[0] = int64_t(declaration.rows);
  fresh->shape[1] = int64_t(declaration.cols);
  fresh->buffer = std::move(*buffer);
  penstock_tensor& view = fresh->view;
  view.struct_size = sizeof view;
  view.data = fresh->buffer.data();
  view.shape = fresh->shape;
  view.n_dims = 2;
  view.numel = numel;
  view.dtype = declaration.dtype;
  view.device_type = PENSTOCK_DEVICE_CPU;
  return fresh;
}

}  // namespace

Result<StateTensor*> StateStore::claim(const StateKey& key,
                                       const penstock_state_declaration& declaration) {
  const auto [slot, is_new] = tensors_.try_emplace(key);
  Claimed& claimed = slot->second;
  // Somebody in this plan holds a view of it already.
  if (!is_new && !has_shape(*claimed.tensor, declaration))
    return internal("{} is declared as {} x {} and as {} x {} in one plan, expected one shape",
                    key.text(), claimed.tensor->shape[0], claimed.tensor->shape[1],
                    declaration.rows, declaration.cols);
  claimed.state_class = declaration.state_class;
  claimed.on_resize = declaration.on_resize;
  if (!is_new) return claimed.tensor.get();
  if (earlier_ != nullptr)
    if (const auto found = earlier_->tensors_.find(key);
        found != earlier_->tensors_.end() && has_shape(*found->second.tensor, declaration)) {
      claimed.tensor = found->second.tensor;
      return claimed.tensor.get();
    }
  PENSTOCK_ASSIGN(claimed.tensor, make_tensor(key, declaration));
  if (earlier_ != nullptr && declaration.state_class == PENSTOCK_STATE_MASS &&
      claimed.tensor->view.numel == key.numel)
    earlier_->join_ranges(key, *claimed.tensor);
  return claimed.tensor.get();
}

// Copies what is kept for other ranges of the same gradient, where the ranges overlap.
void StateStore::join_ranges(const StateKey& key, StateTensor& target) const {
  const uint64_t element = dtype_bytes(target.view.dtype);
  for (auto found = tensors_.lower_bound(StateKey{key.gradient, 0, 0, 0, {}, {}});
       found != tensors_.end() && found->first.gradient == key.gradient; ++found) {
    const StateKey& other = found->first;
    const StateTensor& tensor = *found->second.tensor;
    if (other.leg != key.leg || other.owner != key.owner || other.name != key.name ||
        tensor.view.dtype != target.view.dtype || tensor.view.numel != other.numel)
      continue;
    const uint64_t begin = std::max(key.first, other.first);
    const uint64_t end = std::min(key.first + key.numel, other.first + other.numel);
    if (begin >= end) continue;
    std::memcpy(target.buffer.data() + (begin - key.first) * element,
                tensor.buffer.data() + (begin - other.first) * element, (end - begin) * element);
  }
}

void StateStore::zero() {
  for (auto& [key, claimed] : tensors_)
    if (const Buffer& buffer = claimed.tensor->buffer; buffer.bytes() != 0)
      std::memset(buffer.data(), 0, buffer.bytes());
}

uint64_t StateStore::bytes() const {
  uint64_t total = 0;
  for (const auto& [key, claimed] : tensors_) total += claimed.tensor->buffer.bytes();
  return total;
}

void StateStore::write(std::string& out) const {
  ByteWriter writer(out);
  writer.put<uint64_t>(tensors_.size());
  for (const auto& [key, claimed] : tensors_) {
    const StateTensor* tensor = claimed.tensor.get();
    writer.text(key.gradient);
    writer.put(key.first);
    writer.put(key.numel);
    writer.put(key.leg);
    writer.text(key.owner);
    writer.text(key.name);
    writer.put(tensor->view.dtype);
    writer.put(tensor->shape[0]);
    writer.put(tensor->shape[1]);
    writer.text({reinterpret_cast<const char*>(tensor->buffer.data()), tensor->buffer.bytes()});
  }
}

Status StateStore::read(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto count = reader.get<uint64_t>();
  std::vector<std::pair<StateTensor*, std::string_view>> found;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    StateKey key;
    key.gradient = reader.text();
    key.first = reader.get<uint64_t>();
    key.numel = reader.get<uint64_t>();
    key.leg = reader.get<uint32_t>();
    key.owner = reader.text();
    key.name = reader.text();
    const auto dtype = reader.get<uint32_t>();
    const auto rows = reader.get<int64_t>();
    const auto cols = reader.get<int64_t>();
    const std::string_view data = reader.text();
    if (!reader.ok()) break;
    const auto tensor = tensors_.find(key);
    if (tensor == tensors_.end())
      return mismatch(
          "the saved {} has no place in this set: load it under the configuration it was saved "
          "with",
          key.text());
    StateTensor& target = *tensor->second.tensor;
    if (target.view.dtype != dtype || target.shape[0] != rows || target.shape[1] != cols ||
        target.buffer.bytes() != data.size())
      return mismatch("the saved {} is {} x {}, expected {} x {}", key.text(), rows, cols,
                      target.shape[0], target.shape[1]);
    found.emplace_back(&target, data);
  }
  if (!reader.at_end()) return invalid_argument("the saved state is truncated or damaged");
  zero();
  for (const auto& [tensor, data] : found)
    if (!data.empty()) std::memcpy(tensor->buffer.data(), data.data(), data.size());
  return {};
}

uint64_t StateStore::hash_replicated() const {
  uint64_t hash = hash64("");
  for (const auto& [key, claimed] : tensors_) {
    if (claimed.state_class != PENSTOCK_STATE_REPLICATED) continue;
    const Buffer& buffer = claimed.tensor->buffer;
    hash ^= hash64({buffer.as<const char>(), buffer.bytes()});
    hash = hash * 0x9E3779B97F4A7C15u + 1;
  }
  return hash;
}

}  // namespace penstock
