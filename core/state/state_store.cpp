#include "core/state/state_store.hpp"

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <tuple>

namespace penstock {
namespace {

constexpr std::string_view kSummed = "taken over, their sum over ranks did not change";
constexpr std::string_view kAveraged = "taken over, their mean over ranks did not change";
constexpr std::string_view kDropped = "dropped, because their plugin declares so";
constexpr std::string_view kReshaped =
    "dropped, because their shape differs on this number of "
    "ranks";
constexpr std::string_view kEqual = "equal in all shards, loaded on this rank too";
constexpr std::string_view kTaken = "taken from one shard each";

std::string_view class_name(uint32_t state_class) {
  switch (state_class) {
    case PENSTOCK_STATE_MASS:
      return "mass";
    case PENSTOCK_STATE_LOCAL:
      return "local";
    case PENSTOCK_STATE_REPLICATED:
      return "replicated";
    default:
      return "soft";
  }
}

// A summary of kinds of states and their handling, with the number of tensors.
class Account {
 public:
  void add(const StateKey& key, uint32_t state_class, std::string_view what) {
    ++done_[fmt::format("{} '{}' of {}: {{}} tensors, {}", class_name(state_class), key.name,
                        key.owner, what)];
  }
  std::string text() const {
    std::string said;
    for (const auto& [line, count] : done_) said += fmt::format(fmt::runtime(line), count) + "\n";
    return said;
  }

 private:
  std::map<std::string, uint64_t> done_;
};

}  // namespace

std::string StateKey::text() const {
  return fmt::format("state '{}' of {} for gradient '{}' [{}, {})", name, owner, gradient,
                     range.first, range.end());
}

Result<std::shared_ptr<Generations>> StateStore::make_tensor(const StateKey& key, uint64_t rows,
                                                             uint64_t cols, uint32_t dtype,
                                                             const Stream* stream) const {
  // The sizes and types were checked when the core took the plugin's need.
  const uint64_t bytes = rows * cols * dtype_bytes(dtype);
  const auto make = [&]() -> Result<StateMemory> {
    if (stream != nullptr) {
      Result<StateMemory> memory = StateMemory::make_on_device(bytes, *stream);
      if (!memory.ok()) return memory.status().with_context(key.text());
      return memory;
    }
    std::optional<StateMemory> memory = StateMemory::try_make_on_host(bytes);
    if (memory) return std::move(*memory);
    return out_of_memory("{} takes {} bytes ({} x {}{}), more than there are", key.text(),
                         bytes * (forgets_ ? 2 : 1), rows, cols,
                         forgets_ ? ", twice: [runtime] forget = false halves it" : "");
  };
  PENSTOCK_ASSIGN(StateMemory memory, make());
  auto tensor = std::make_shared<Generations>(rows, cols, dtype, std::move(memory));
  if (forgets_) {
    PENSTOCK_ASSIGN(tensor->other, make());
  }
  return tensor;
}

Result<StateView*> StateStore::claim(StateKey key, const ElementRange& extent,
                                     const penstock_state_declaration& declaration,
                                     const Stream* stream) {
  const ElementRange range = key.range;
  const uint64_t numel = declaration.rows * declaration.cols;
  // Values of these classes must not be lost.
  const bool keeps_by_element = declaration.state_class == PENSTOCK_STATE_MASS ||
                                declaration.state_class == PENSTOCK_STATE_LOCAL;
  const bool per_element = declaration.state_class != PENSTOCK_STATE_SOFT && numel == range.numel;
  if (keeps_by_element && !per_element && range != extent)
    return failed_precondition(
        "{} has {} x {} numbers, not one per element, so gradient '{}' cannot be cut: the kept "
        "values would be lost at the next cut",
        key.text(), declaration.rows, declaration.cols, key.gradient);
  if (per_element) key.range = extent;
  const uint64_t rows = per_element ? extent.numel : declaration.rows;
  const uint64_t cols = per_element ? 1 : declaration.cols;
  const auto fits = [&](const Generations& tensor) {
    return tensor.dtype == declaration.dtype && tensor.rows == rows && tensor.cols == cols;
  };
  const auto [slot, is_new] = tensors_.try_emplace(key);
  Claimed& claimed = slot->second;
  // A view of this plan refers to the tensor already.
  if (!is_new && !fits(*claimed.tensor))
    return internal("{} is declared as {} x {} and as {} x {} in one plan, expected one shape",
                    key.text(), claimed.tensor->rows, claimed.tensor->cols, rows, cols);
  claimed.state_class = declaration.state_class;
  claimed.on_resize = declaration.on_resize;
  if (is_new && earlier_ != nullptr)
    if (const auto found = earlier_->tensors_.find(key);
        found != earlier_->tensors_.end() && fits(*found->second.tensor))
      claimed.tensor = found->second.tensor;
  if (claimed.tensor == nullptr) {
    PENSTOCK_ASSIGN(claimed.tensor, make_tensor(key, rows, cols, declaration.dtype, stream));
  }
  const uint64_t skipped = per_element ? range.first - extent.first : 0;
  return &views_.emplace_back(*claimed.tensor, declaration,
                              skipped * dtype_bytes(declaration.dtype));
}

Status StateStore::end_step(const std::function<bool(const std::string& gradient)>& is_forgotten) {
  for (auto& [key, claimed] : tensors_) {
    if (is_forgotten && is_forgotten(key.gradient))
      claimed.tensor->drop();
    else
      PENSTOCK_TRY(claimed.tensor->advance());
  }
  for (StateView& view : views_) view.close();
  return {};
}

Status StateStore::zero_of(std::string_view owner) {
  for (auto& [key, claimed] : tensors_)
    if (std::string_view(key.owner).starts_with(owner))
      PENSTOCK_TRY(claimed.tensor->current().zero());
  return {};
}

Result<double> StateStore::square_norm_of_mass() const {
  double sum = 0;
  std::string image;
  for (const auto& [key, claimed] : tensors_) {
    if (claimed.state_class != PENSTOCK_STATE_MASS || claimed.tensor->dtype != PENSTOCK_FLOAT32)
      continue;
    image.resize(claimed.tensor->current().bytes());
    PENSTOCK_TRY(claimed.tensor->current().read(std::as_writable_bytes(std::span(image))));
    const auto* values = reinterpret_cast<const float*>(image.data());
    for (size_t i = 0; i < image.size() / sizeof(float); ++i)
      sum += double{values[i]} * double{values[i]};
  }
  return sum;
}

Status StateStore::zero() {
  for (auto& [key, claimed] : tensors_) {
    claimed.tensor->drop();
    PENSTOCK_TRY(claimed.tensor->current().zero());
  }
  for (StateView& view : views_) view.close();
  return {};
}

uint64_t StateStore::bytes() const {
  uint64_t total = 0;
  for (const auto& [key, claimed] : tensors_) total += claimed.tensor->bytes();
  return total;
}

Status StateStore::write(std::string& out) const {
  ByteWriter writer(out);
  writer.put<uint64_t>(tensors_.size());
  std::string image;
  for (const auto& [key, claimed] : tensors_) {
    const Generations& tensor = *claimed.tensor;
    writer.text(key.gradient);
    writer.put(key.range.first);
    writer.put(key.range.numel);
    writer.put(key.leg);
    writer.text(key.owner);
    writer.text(key.name);
    writer.put(tensor.dtype);
    writer.put(tensor.rows);
    writer.put(tensor.cols);
    const StateMemory& memory = tensor.current();
    if (memory.is_on_host()) {
      writer.text({reinterpret_cast<const char*>(memory.data()), memory.bytes()});
      continue;
    }
    image.resize(memory.bytes());
    PENSTOCK_TRY(memory.read(std::as_writable_bytes(std::span(image))));
    writer.text(image);
  }
  return {};
}

Result<std::vector<StateStore::Saved>> StateStore::parse(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto count = reader.get<uint64_t>();
  std::vector<Saved> all;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    Saved& saved = all.emplace_back();
    saved.key.gradient = reader.text();
    saved.key.range.first = reader.get<uint64_t>();
    saved.key.range.numel = reader.get<uint64_t>();
    saved.key.leg = reader.get<uint32_t>();
    saved.key.owner = reader.text();
    saved.key.name = reader.text();
    saved.dtype = reader.get<uint32_t>();
    saved.rows = reader.get<uint64_t>();
    saved.cols = reader.get<uint64_t>();
    saved.data = reader.text();
  }
  if (!reader.at_end()) return invalid_argument("the saved state is truncated or damaged");
  return all;
}

Result<StateStore::Claimed*> StateStore::place_of(const Saved& saved) {
  const auto found = tensors_.find(saved.key);
  if (found == tensors_.end())
    return mismatch(
        "the saved {} has no place in this set: load it under the configuration it was saved "
        "with",
        saved.key.text());
  const Generations& target = *found->second.tensor;
  if (target.dtype != saved.dtype || target.rows != saved.rows || target.cols != saved.cols ||
      target.memory.bytes() != saved.data.size())
    return mismatch("the saved {} is {} x {}, expected {} x {}", saved.key.text(), saved.rows,
                    saved.cols, target.rows, target.cols);
  return &found->second;
}

Status StateStore::read(std::string_view bytes) {
  PENSTOCK_ASSIGN(const std::vector<Saved> all, parse(bytes));
  std::vector<Generations*> places;
  for (const Saved& saved : all) {
    PENSTOCK_ASSIGN(const Claimed* place, place_of(saved));
    places.push_back(place->tensor.get());
  }
  PENSTOCK_TRY(zero());
  for (size_t i = 0; i < all.size(); ++i)
    PENSTOCK_TRY(places[i]->current().write(std::as_bytes(std::span(all[i].data))));
  return {};
}

Result<uint64_t> StateStore::hash_replicated() const {
  uint64_t hash = hash64("");
  std::string image;
  for (const auto& [key, claimed] : tensors_) {
    if (claimed.state_class != PENSTOCK_STATE_REPLICATED) continue;
    const StateMemory& memory = claimed.tensor->current();
    if (memory.is_on_host()) {
      hash ^= hash64({reinterpret_cast<const char*>(memory.data()), memory.bytes()});
    } else {
      image.resize(memory.bytes());
      PENSTOCK_TRY(memory.read(std::as_writable_bytes(std::span(image))));
      hash ^= hash64(image);
    }
    hash = hash * 0x9E3779B97F4A7C15u + 1;
  }
  return hash;
}

// ---- state that was saved by another number of ranks ----

Result<std::string_view> StateStore::resize(const StateKey& key, const Claimed& claimed,
                                            std::span<const std::optional<std::string_view>> saved,
                                            const Resize& to, std::byte* target) {
  const auto copy = [&](std::string_view data) {
    if (!data.empty()) std::memcpy(target, data.data(), data.size());
  };
  if (claimed.state_class == PENSTOCK_STATE_SOFT) {
    if (const auto& one = saved[to.rank % saved.size()]) copy(*one);
    return kTaken;
  }
  for (size_t from = 0; from < saved.size(); ++from)
    if (!saved[from])
      return mismatch("the shard of rank {} lacks {}, which other shards have", from, key.text());
  if (claimed.state_class == PENSTOCK_STATE_REPLICATED) {
    for (size_t from = 1; from < saved.size(); ++from)
      if (*saved[from] != *saved[0])
        return mismatch("{} differs between the shards of ranks 0 and {}, expected equal bits",
                        key.text(), from);
    copy(*saved[0]);
    return kEqual;
  }
  if (claimed.on_resize == PENSTOCK_RESIZE_DROP) return kDropped;
  const uint32_t dtype = claimed.tensor->dtype;
  if (claimed.on_resize != PENSTOCK_RESIZE_SUM ||
      (dtype != PENSTOCK_FLOAT32 && dtype != PENSTOCK_FLOAT64))
    return failed_precondition(
        "{} cannot be loaded by another number of ranks ({} saved, {} load it): {}; load it on as "
        "many ranks, or continue with only the parameters",
        key.text(), saved.size(), to.world,
        claimed.on_resize == PENSTOCK_RESIZE_SUM
            ? fmt::format("{} is not summed", dtype_name(dtype))
            : "its plugin declares that it cannot");
  // No rank is owed local state, so it keeps no worth.
  const bool averages = to.averages && claimed.state_class == PENSTOCK_STATE_MASS;
  take_share(saved, dtype, to, averages ? to.worth() : 1, {target, saved[0]->size()});
  return averages ? kAveraged : kSummed;
}

bool StateStore::is_soft(const StateKey& key) const {
  const auto found = tensors_.find(key);
  return found != tensors_.end() && found->second.state_class == PENSTOCK_STATE_SOFT;
}

Result<std::string> StateStore::read_shards(std::span<const std::string_view> shards,
                                            const Resize& to) {
  std::map<StateKey, std::vector<std::optional<std::string_view>>> all;
  Account done;
  std::map<StateKey, bool> reshaped;
  for (size_t from = 0; from < shards.size(); ++from) {
    PENSTOCK_ASSIGN(const std::vector<Saved> parsed, parse(shards[from]));
    for (const Saved& saved : parsed) {
      const Status fits = place_of(saved).status();
      if (!fits.ok() && is_soft(saved.key)) {
        if (reshaped.try_emplace(saved.key, true).second)
          done.add(saved.key, PENSTOCK_STATE_SOFT, kReshaped);
        continue;
      }
      PENSTOCK_TRY(fits.with_context(fmt::format("the shard of rank {}", from)));
      std::vector<std::optional<std::string_view>>& of_all = all[saved.key];
      of_all.resize(shards.size());
      of_all[from] = saved.data;
    }
  }
  PENSTOCK_TRY(zero());
  for (const auto& [key, saved] : all) {
    if (reshaped.count(key) != 0) continue;
    const Claimed& claimed = tensors_.at(key);
    StateMemory& memory = claimed.tensor->current();
    Buffer image(memory.is_on_host() ? 0 : memory.bytes());
    std::byte* target = memory.is_on_host() ? memory.data() : image.data();
    PENSTOCK_ASSIGN(const std::string_view what, resize(key, claimed, saved, to, target));
    if (!memory.is_on_host()) PENSTOCK_TRY(memory.write({image.data(), image.bytes()}));
    done.add(key, claimed.state_class, what);
  }
  return done.text();
}

std::string StateStore::left_by(const StateStore& next) const {
  Account left;
  for (const auto& [key, claimed] : tensors_)
    if (next.tensors_.count(key) == 0)
      left.add(key, claimed.state_class,
               claimed.state_class == PENSTOCK_STATE_MASS
                   ? "handed over to the gradients of the next step: the new plan does not keep it"
                   : "dropped: the new plan has no place for them");
  return left.text();
}

}  // namespace penstock
