// Where pieces are worked on: what plugin calls are told of it, how memory there is made, cleared,
// scaled and copied, and over which link it is exchanged. A set has one place for the host
// (host_place.hpp), and another if gradients are worked on on a device
// (on_device/device_place.hpp). Outside of on_device no code of core/bucket knows of devices; it
// asks a place, at most whether it works at once.
#pragma once

#include "core/base/status.hpp"
#include "core/bucket/work_memory.hpp"
#include "core/state/state_store.hpp"

#include <penstock/item.h>

#include <string_view>

namespace penstock {

class BucketRun;
struct Coding;
struct CompressorCall;
struct ItemRun;
struct LevelLinks;
struct Link;
struct MemoryCall;
struct MessageRun;
struct PieceRun;

class WorkPlace {
 public:
  virtual ~WorkPlace() = default;
  WorkPlace(const WorkPlace&) = delete;
  WorkPlace& operator=(const WorkPlace&) = delete;

  // The exec that plugin calls get.
  const penstock_exec& exec() const { return exec_; }
  // Sets the scratch of that exec; the memory outlives the calls.
  void lend(const WorkMemory& scratch) {
    exec_.scratch = scratch.data();
    exec_.scratch_bytes = scratch.bytes();
  }
  // As messages say it: "on the CPU".
  virtual std::string_view name() const = 0;
  // A call's work is done when it returns. Else it is queued, and nothing here waits for it.
  virtual bool works_at_once() const = 0;

  // ---- when buckets are made [control]; OUT_OF_MEMORY and DEVICE_ERROR ----

  // For values. It is zeroed if the host may write it.
  virtual Result<WorkMemory> make(uint64_t bytes) const = 0;
  virtual Result<WorkMemory> make_scratch(uint64_t bytes) const = 0;
  // For messages over `link` that hold something of items that are worked on here.
  virtual Result<WorkMemory> make_for(const Link& link, uint64_t bytes) const = 0;
  virtual Result<StateView*> claim(StateStore& states, const StateKey& key,
                                   const ElementRange& extent,
                                   const penstock_state_declaration& declaration) const = 0;
  // Writes into the item's tensors where they lie.
  virtual void place(ItemRun& item) const = 0;
  // The link for a round of the item. Every rank answers alike.
  virtual Link& link_of(const Coding& coding, const ItemRun& item, uint32_t round) const = 0;
  // The link over which ranks add values as they are.
  virtual Link& link_of_values(LevelLinks& links) const = 0;
  // Whether messages of a link can be sent from these values.
  virtual bool sends_from_here(const Link& link) const = 0;
  // Text of the way that the item's messages take, which must be equal on all ranks; mostly empty.
  virtual std::string_view way(const BucketRun& bucket, const Coding& coding,
                               const ItemRun& item) const = 0;
  // Points a section of a payload at `here` of a message's memory.
  virtual void point(penstock_section& section, const WorkMemory& memory,
                     std::byte* here) const = 0;

  // ---- values, in a step [engine] ----

  virtual Status clear(void* values, uint64_t bytes) const = 0;
  virtual Status scale(uint32_t dtype, void* values, uint64_t count, double factor) const = 0;
  virtual Status divide(uint32_t dtype, void* values, uint64_t count, uint32_t by) const = 0;
  // Copies of elements: made one by one, or together when they end.
  virtual void begin_copies(BucketRun&) const {}
  virtual void copy(BucketRun& bucket, const void* source, void* target, uint64_t count,
                    uint64_t element) const = 0;
  virtual Status end_copies(BucketRun&) const { return {}; }
  // Points `piece.values` at the values of a piece of the bucket; true if all are finite.
  virtual bool load(BucketRun& bucket, size_t piece) const = 0;
  // Brings the result back to the gradient; NaN if the bucket is void.
  virtual Status store(BucketRun& bucket, PieceRun& piece) const = 0;
  // Scales the sum that an owner has of an item to the units in which it is encoded; true if all of
  // it is finite.
  virtual bool take_sum(BucketRun& bucket, Coding& coding, size_t item) const = 0;
  // Where a memory's measure leaves its numbers; `scalars` is where they travel from.
  virtual float* place_of_scalars(BucketRun& bucket, const MemoryCall& call,
                                  float* scalars) const = 0;

  // ---- payloads, in a step [engine] ----

  virtual Status clear(const penstock_section& section, uint64_t bytes) const = 0;
  // `sent`: where encode has left a section, as the host sees it. `moved`: the host has moved it to
  // `target`.
  virtual const void* sent(const MessageRun& message, const penstock_section& section) const = 0;
  virtual void moved(penstock_section& section, std::byte* target) const = 0;
  // A payload has arrived in the message's memory, to which its sections point. INVALID_PAYLOAD.
  virtual Status arrived(BucketRun& bucket, const MessageRun& message, uint32_t round,
                         uint32_t rank, ItemRun& item) const = 0;

 protected:
  explicit WorkPlace(const penstock_exec& exec) : exec_(exec) {}

 private:
  penstock_exec exec_{};
};

}  // namespace penstock
