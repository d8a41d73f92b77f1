// The placement of a bucket adds to its program the stages that depend on where its pieces lie, and
// reports the time that they take elsewhere than on the host. There are three placements. This
// class is for pieces on the host and adds nothing. If some pieces are copied to the host first,
// the second placement adds `inspect`, `give out` and `return`. If some pieces are device-resident,
// the third placement adds all stages of core/bucket/on_device.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

class Placement {
 public:
  Placement() = default;
  virtual ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // ---- stages to add at this point of the program [control] ----
  virtual void before_load(Program&) {}
  virtual void after_load(Program&) {}
  virtual void before_begin(Program&, Coding&) {}
  virtual void after_measure(Program&, Coding&) {}
  virtual void after_encode(Program&, Leg&, uint32_t /*round*/) {}
  virtual void after_exchange(Program&, Leg&, uint32_t /*round*/) {}
  virtual void before_decode(Program&, Leg&, uint32_t /*round*/) {}
  virtual void after_store(Program&) {}
  // The program is complete.
  virtual Status list_ended() { return {}; }

  // ---- a step [engine] ----
  // Called before and after the `begin` of the stage with this number.
  virtual Status stage_begins(size_t) { return {}; }
  virtual Status stage_begun(size_t) { return {}; }
  // Adds the time that the last step has taken elsewhere than on the host, if it is known by now.
  virtual Status take_times() { return {}; }
  // Whether the times of the last step are known.
  virtual bool has_times() const { return true; }
};

}  // namespace penstock
