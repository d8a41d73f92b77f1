// What the place of a bucket's pieces adds to its program: further stages, and the time that they
// take elsewhere than on the host. A bucket has one placement of three: this class, if all pieces
// are on the host, adds nothing. If some are copied to the host first it adds `inspect`, `give out`
// and `return`. If some are worked on on a device it adds all stages of core/bucket/on_device.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

class Placement {
 public:
  Placement() = default;
  virtual ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // ---- stages, where they stand in the list [control] ----
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
  // Around the begin of the stage with this number.
  virtual Status stage_begins(size_t) { return {}; }
  virtual Status stage_begun(size_t) { return {}; }
  // Adds what is known by now of the time that the last step has taken elsewhere than on the host.
  virtual Status take_times() { return {}; }
  // Whether the times of the last step are known.
  virtual bool has_times() const { return true; }
};

}  // namespace penstock
