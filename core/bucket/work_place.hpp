// A place of work, where pieces are compressed. It supplies the exec that plugin calls receive; it
// makes, clears, scales and copies memory; and it chooses the link for the exchange. A set has one
// place for the host (host_place.hpp), and another place if some gradients are device-resident
// (on_device/device_place.hpp). Code of core/bucket outside on_device knows of no devices: it calls
// a place, and the only difference for which it may ask is `works_at_once`.
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

  // The exec that plugin calls receive.
  const penstock_exec& exec() const { return exec_; }
  // Sets the scratch of that exec. The memory must outlive the calls.
  void lend(const WorkMemory& scratch) {
    exec_.scratch = scratch.data();
    exec_.scratch_bytes = scratch.bytes();
  }
  // The name in messages: "on the CPU".
  virtual std::string_view name() const = 0;
  // True: the work of a call is done when the call returns. False: the work is queued, and no
  // function here waits for it.
  virtual bool works_at_once() const = 0;

  // ---- when buckets are made [control]; OUT_OF_MEMORY and DEVICE_ERROR ----

  // Memory for values. It is zeroed if the host may write it.
  virtual Result<WorkMemory> make(uint64_t bytes) const = 0;
  virtual Result<WorkMemory> make_scratch(uint64_t bytes) const = 0;
  // Memory for messages over `link` that carry data of items in this place.
  virtual Result<WorkMemory> make_for(const Link& link, uint64_t bytes) const = 0;
  virtual Result<StateView*> claim(StateStore& states, const StateKey& key,
                                   const ElementRange& extent,
                                   const penstock_state_declaration& declaration) const = 0;
  // Writes the device type and number into the item's tensors.
  virtual void place(ItemRun& item) const = 0;
  // The link for a round of the item. Every rank must answer alike.
  virtual Link& link_of(const Coding& coding, const ItemRun& item, uint32_t round) const = 0;
  // The link over which ranks add unchanged values.
  virtual Link& link_of_values(LevelLinks& links) const = 0;
  // Whether messages of a link can be sent directly from values in this place.
  virtual bool sends_from_here(const Link& link) const = 0;
  // Text that describes the path of the item's messages. It must be equal on all ranks; mostly
  // empty.
  virtual std::string_view way(const BucketRun& bucket, const Coding& coding,
                               const ItemRun& item) const = 0;
  // Points a section of a payload at `here` in the memory of a message.
  virtual void point(penstock_section& section, const WorkMemory& memory,
                     std::byte* here) const = 0;

  // ---- values, in a step [engine] ----

  virtual Status clear(void* values, uint64_t bytes) const = 0;
  virtual Status scale(uint32_t dtype, void* values, uint64_t count, double factor) const = 0;
  virtual Status divide(uint32_t dtype, void* values, uint64_t count, uint32_t by) const = 0;
  // Copies of elements. A place makes the copies one by one, or all together in `end_copies`.
  virtual void begin_copies(BucketRun&) const {}
  virtual void copy(BucketRun& bucket, const void* source, void* target, uint64_t count,
                    uint64_t element) const = 0;
  virtual Status end_copies(BucketRun&) const { return {}; }
  // Points `piece.values` at the values of a piece of the bucket; true if all are finite.
  virtual bool load(BucketRun& bucket, size_t piece) const = 0;
  // Copies the result back to the gradient; NaN if the bucket is void.
  virtual Status store(BucketRun& bucket, PieceRun& piece) const = 0;
  // Scales the sum of an item to the units in which its owner encodes it; true if all its values
  // are finite.
  virtual bool take_sum(BucketRun& bucket, Coding& coding, size_t item) const = 0;
  // The place to which a memory's `measure` writes its numbers; `scalars` is their place in the
  // prologue message.
  virtual float* place_of_scalars(BucketRun& bucket, const MemoryCall& call,
                                  float* scalars) const = 0;

  // ---- payloads, in a step [engine] ----

  virtual Status clear(const penstock_section& section, uint64_t bytes) const = 0;
  // `sent`: the address of a section that encode has written, as the host sees it. `moved`: notes
  // that the host has moved the section to `target`.
  virtual const void* sent(const MessageRun& message, const penstock_section& section) const = 0;
  virtual void moved(penstock_section& section, std::byte* target) const = 0;
  // Called when a payload has arrived in the message's memory, to which its sections point.
  // INVALID_PAYLOAD.
  virtual Status arrived(BucketRun& bucket, const MessageRun& message, uint32_t round,
                         uint32_t rank, ItemRun& item) const = 0;

 protected:
  explicit WorkPlace(const penstock_exec& exec) : exec_(exec) {}

 private:
  penstock_exec exec_{};
};

}  // namespace penstock
