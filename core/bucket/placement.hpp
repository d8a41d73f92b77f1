// Where the pieces of a bucket are worked on, as far as its program depends on it: which stages
// stand beside those of every bucket, and how long they take. This class is the host's, and adds
// nothing.
#pragma once

#include "core/bucket/bucket.hpp"

namespace penstock {

class Placement {
 public:
  Placement() = default;
  virtual ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Of the bucket's pieces, which know where they lie. [control]
  static Result<std::unique_ptr<Placement>> of(BucketRun& bucket);

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
};

}  // namespace penstock
