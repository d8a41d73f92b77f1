// The state of one set on this rank: every tensor that plugins declared, kept by name.
//
// Keys are (gradient, element range, leg, plugin id, state name), never buckets, so a new plan
// finds everything again. All calls from the thread that owns the set's plan; tensors stay where
// they are until dropped.
#pragma once

#include "core/base/buffer.hpp"
#include "core/base/status.hpp"

#include <penstock/item.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

struct StateKey {
  std::string gradient;
  uint64_t first = 0;
  uint64_t numel = 0;
  uint32_t leg = 0;
  std::string owner;  // plugin id, "memory/residual"
  std::string name;

  auto tie() const { return std::tie(gradient, first, numel, leg, owner, name); }
  bool operator<(const StateKey& other) const { return tie() < other.tie(); }
  std::string text() const;  // for messages
};

struct StateTensor {
  penstock_tensor view{};
  int64_t shape[2] = {0, 0};
  Buffer buffer;
};

class StateStore {
 public:
  // What the buckets of a plan claim: those of an earlier plan, which stays whole until it ends, or
  // new ones. `earlier` must live until settle.
  explicit StateStore(const StateStore* earlier = nullptr) : earlier_(earlier) {}
  // The tensor of `key`: the earlier one when it has the declared shape and dtype, shared with it;
  // else, for mass that follows the elements of its item, one joined from the ranges of earlier
  // ones; else a zeroed one.
  Result<StateTensor*> claim(const StateKey& key, const penstock_state_declaration& declaration);
  // The plan is complete: the earlier one is not looked at any more.
  void settle() { earlier_ = nullptr; }

  void zero();  // every tensor
  uint64_t bytes() const;

  // Appends all tensors to `out`.
  void write(std::string& out) const;
  // Fills tensors from what write gave. A saved tensor that nobody claims, or of another shape, is
  // an error: mass would be lost. On error nothing has changed.
  Status read(std::string_view bytes);

  // A hash over all replicated state, equal on all ranks.
  uint64_t hash_replicated() const;

 private:
  // A method may keep the same numbers in another class under a new plan: momentum is local where
  // entries are chosen, and the same everywhere where nothing is lost.
  struct Claimed {
    std::shared_ptr<StateTensor> tensor;
    uint32_t state_class = 0;
    uint32_t on_resize = 0;
  };
  void join_ranges(const StateKey& key, StateTensor& target) const;

  const StateStore* earlier_;
  std::map<StateKey, Claimed> tensors_;
};

}  // namespace penstock
