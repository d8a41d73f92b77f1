// The state of one set on this rank: every tensor that plugins declared, kept by name.
//
// State with one number per element (residuals, momenta) is one tensor per gradient and leg. The
// tensor covers everything that this rank has of the gradient on that leg, and items are views of
// their ranges: if a plan cuts the gradient in another way, nothing is lost. Other tensors belong
// to a range, never to a bucket, so a new plan finds all state again. All calls come from the
// thread that owns the set's plan; a tensor keeps its address until it is dropped.
#pragma once

#include "core/state/generations.hpp"
#include "core/state/resize.hpp"

#include <penstock/item.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

// Elements [first, first + numel) of a gradient.
struct ElementRange {
  uint64_t first = 0;
  uint64_t numel = 0;
  uint64_t end() const { return first + numel; }
  bool operator==(const ElementRange&) const = default;
};

struct StateKey {
  std::string gradient;
  ElementRange range;  // the range of the tensor
  uint32_t leg = 0;
  std::string owner;  // plugin id, "memory/NAME"
  std::string name;

  auto tie() const { return std::tie(gradient, range.first, range.numel, leg, owner, name); }
  bool operator<(const StateKey& other) const { return tie() < other.tie(); }
  std::string text() const;  // used in messages
};

class StateStore {
 public:
  // The tensors that the buckets of a plan claim: tensors of an earlier plan, which stays complete
  // until it ends, or new tensors. `earlier` must live until settle. `forgets`: the changes of a
  // step can be dropped, so each tensor exists twice.
  explicit StateStore(bool forgets, const StateStore* earlier = nullptr)
      : forgets_(forgets), earlier_(earlier) {}

  // The state of an item that covers key.range of its gradient; this rank has `extent` of the
  // gradient at the leg. Valid as long as the store. Shared with the earlier plan if that plan had
  // the tensor in this shape, else zeroed. FAILED_PRECONDITION if mass does not have the size of
  // the tensor from which it was cut. A new tensor lies on the device of `stream`, on which all
  // users of it queue their work, or on the CPU if `stream` is null. The place where the items of a
  // gradient are processed never changes.
  Result<StateView*> claim(StateKey key, const ElementRange& extent,
                           const penstock_state_declaration& declaration,
                           const Stream* stream = nullptr);
  // The plan is complete: the earlier store is not used any more.
  void settle() { earlier_ = nullptr; }

  // Ends the step and keeps its changes, except for gradients for which `is_forgotten` is true
  // (null: for no gradient). Without a second generation no gradient may be forgotten. If a device
  // is used, this is called on the engine's thread.
  Status end_step(const std::function<bool(const std::string& gradient)>& is_forgotten);
  bool keeps_anything() const { return !tensors_.empty(); }

  // Zeroes the tensors of all plugins whose id begins with `owner`; between two steps.
  Status zero_of(std::string_view owner);
  // The squared norm of all kept mass of all gradients.
  Result<double> square_norm_of_mass() const;
  Status zero();  // zeroes every tensor; drops a step under way
  uint64_t bytes() const;

  // Appends all tensors to `out`. DEVICE_ERROR.
  Status write(std::string& out) const;
  // Fills tensors from the output of write. A saved tensor that is not claimed, or has another
  // shape, is an error, because mass would be lost. After an error nothing has changed, unless a
  // device has failed.
  Status read(std::string_view bytes);
  // Fills tensors from the output of several ranks, on a rank of a run with another number of
  // ranks. Mass and local state follow their on_resize; replicated state is taken from any rank,
  // because it must be equal; soft state is taken from one rank unless its shape differs here.
  // Returns a report with a line for each kind. After an error the store must not be used.
  Result<std::string> read_shards(std::span<const std::string_view> shards, const Resize& to);
  // Reports the tensors for which `next` has no place, and whether they are handed over or dropped,
  // in a line for each kind.
  std::string left_by(const StateStore& next) const;

  // A hash over all replicated state, equal on all ranks. Copies state from devices and waits for
  // it: DEVICE_ERROR.
  Result<uint64_t> hash_replicated() const;

 private:
  // A method may keep the same numbers in another class under a new plan: momentum is local where
  // entries are selected, and replicated where nothing is lost.
  struct Claimed {
    std::shared_ptr<Generations> tensor;
    uint32_t state_class = 0;
    uint32_t on_resize = 0;
  };
  struct Saved {
    StateKey key;
    uint32_t dtype = 0;
    uint64_t rows = 0, cols = 0;
    std::string_view data;
  };
  Result<std::shared_ptr<Generations>> make_tensor(const StateKey& key, uint64_t rows,
                                                   uint64_t cols, uint32_t dtype,
                                                   const Stream* stream) const;
  static Result<std::vector<Saved>> parse(std::string_view bytes);
  Result<Claimed*> place_of(const Saved& saved);
  bool is_soft(const StateKey& key) const;
  // Resizes one tensor and returns a description; `target`: its bytes, zero at first.
  static Result<std::string_view> resize(const StateKey& key, const Claimed& claimed,
                                         std::span<const std::optional<std::string_view>> saved,
                                         const Resize& to, std::byte* target);

  const bool forgets_;
  const StateStore* earlier_;
  std::map<StateKey, Claimed> tensors_;
  std::deque<StateView> views_;
};

}  // namespace penstock
