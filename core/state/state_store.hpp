// The state of one set on this rank: every tensor that plugins declared, kept by name.
//
// What has one number per element (residuals, momenta) is one tensor per gradient and leg, over all
// that this rank has of the gradient there, and items see their range of it: however a plan cuts
// the gradient, nothing is lost or joined. Other tensors belong to a range. Never to a bucket, so a
// new plan finds everything again. All calls from the thread that owns the set's plan; tensors stay
// where they are until dropped.
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
  ElementRange range;  // that the tensor is for
  uint32_t leg = 0;
  std::string owner;  // plugin id, "memory/NAME"
  std::string name;

  auto tie() const { return std::tie(gradient, range.first, range.numel, leg, owner, name); }
  bool operator<(const StateKey& other) const { return tie() < other.tie(); }
  std::string text() const;  // for messages
};

class StateStore {
 public:
  // What the buckets of a plan claim: those of an earlier plan, which stays whole until it ends, or
  // new ones. `earlier` must live until settle.
  // `forgets`: what a step changes can be dropped, so each tensor is there twice.
  explicit StateStore(bool forgets, const StateStore* earlier = nullptr)
      : forgets_(forgets), earlier_(earlier) {}

  // The state of an item that covers key.range of its gradient, of which this rank has `extent` at
  // the leg; valid as long as the store. Shared with the earlier plan where that had it in the same
  // shape, else zeroed. FAILED_PRECONDITION where mass has another size than what was cut. A new
  // one lies on the device of `stream`, on which all that use it queue their work, or on the CPU
  // where that is null; where the items of a gradient are worked on never changes.
  Result<StateView*> claim(StateKey key, const ElementRange& extent,
                           const penstock_state_declaration& declaration,
                           const Stream* stream = nullptr);
  // The plan is complete: the earlier one is not looked at any more.
  void settle() { earlier_ = nullptr; }

  // The step is over. What it has changed is kept, but for gradients of which `is_forgotten`
  // (null: none is); without a second generation nothing may be. Where a device is used this is
  // called on the engine's thread.
  Status end_step(const std::function<bool(const std::string& gradient)>& is_forgotten);
  bool keeps_anything() const { return !tensors_.empty(); }

  // Those of all plugins whose id begins so, between two steps.
  Status zero_of(std::string_view owner);
  // Of what is kept of gradients, all together.
  Result<double> square_norm_of_mass() const;
  Status zero();  // every tensor; a step under way is dropped
  uint64_t bytes() const;

  // Appends all tensors to `out`. DEVICE_ERROR.
  Status write(std::string& out) const;
  // Fills tensors from what write gave. A saved tensor that nobody claims, or of another shape, is
  // an error: mass would be lost. On error nothing has changed, unless a device has failed.
  Status read(std::string_view bytes);
  // Fills tensors from what each of several ranks wrote, for a rank of another number of them: mass
  // and local state as its on_resize says, replicated state from any, for it must be equal, soft
  // state from one, unless it has another shape here. Says what it did, a line for each kind. On
  // error the store is of no use.
  Result<std::string> read_shards(std::span<const std::string_view> shards, const Resize& to);
  // Says what becomes of the tensors that `next` has no place for, a line for each kind.
  std::string left_by(const StateStore& next) const;

  // A hash over all replicated state, equal on all ranks. What lies on a device is copied and
  // waited for: DEVICE_ERROR.
  Result<uint64_t> hash_replicated() const;

 private:
  // A method may keep the same numbers in another class under a new plan: momentum is local where
  // entries are chosen, and the same everywhere where nothing is lost.
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
  // What becomes of a tensor; `target`: its bytes, zeros so far.
  static Result<std::string_view> resize(const StateKey& key, const Claimed& claimed,
                                         std::span<const std::optional<std::string_view>> saved,
                                         const Resize& to, std::byte* target);

  const bool forgets_;
  const StateStore* earlier_;
  std::map<StateKey, Claimed> tensors_;
  std::deque<StateView> views_;
};

}  // namespace penstock
