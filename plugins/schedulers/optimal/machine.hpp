// The machine of planning::forecast on routes that carry a bucket whole: one engine that decodes
// before it encodes, the earlier bucket first, and one link that carries buckets in order.
#pragma once

#include "runs.hpp"

#include <algorithm>
#include <vector>

namespace optimal {

// A bucket that is on the link or has arrived, and is not decoded yet.
struct Pending {
  double exchange_end = 0;
  double decode = 0;
  bool operator==(const Pending&) const = default;
};

// The engine from the end of one encoding to the start of the next.
class Engine {
 public:
  // `pending` must be in order, and must outlive the engine.
  Engine(double free_at, const std::vector<Pending>& pending) : now_(free_at), pending_(pending) {}

  // Decodes all arrived buckets. While no gradients are ready, it also decodes the bucket that
  // arrives first.
  void wait_for(double ready) {
    while (n_decoded_ < pending_.size()) {
      const double arrives = pending_[n_decoded_].exchange_end;
      if (arrives > now_ && ready <= now_) return;
      if (arrives > now_ && ready < arrives) break;
      decode();
    }
    now_ = std::max(now_, ready);
  }
  double decode_all() {
    while (n_decoded_ < pending_.size()) decode();
    return now_;
  }
  double now() const { return now_; }
  uint32_t n_decoded() const { return n_decoded_; }

 private:
  void decode() {
    const Pending& next = pending_[n_decoded_++];
    now_ = std::max(now_, next.exchange_end) + next.decode;
  }

  double now_;
  const std::vector<Pending>& pending_;
  uint32_t n_decoded_ = 0;
};

// The state of the machine when a bucket has just been encoded; all zero before the first bucket.
struct Head {
  double engine = 0;  // when the engine is free
  double link = 0;    // when the link is free
  std::vector<Pending> pending;

  // Encodes the next bucket.
  void add(const Run& run) {
    Engine waits(engine, pending);
    waits.wait_for(run.ready);
    pending.erase(pending.begin(), pending.begin() + waits.n_decoded());
    engine = waits.now() + run.encode;
    link = std::max(link, engine) + run.exchange;
    pending.push_back({link, run.decode});
  }
  // When the last bucket is decoded if no more come.
  double end() const { return Engine(engine, pending).decode_all(); }
};

}  // namespace optimal
