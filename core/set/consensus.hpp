// All ranks of a set go on, or none does: what one rank finds wrong by itself, the others would
// never hear of.
#pragma once

#include "core/bucket/context.hpp"
#include "core/set/services.hpp"

#include <string>
#include <string_view>

namespace penstock {

// All functions are [control], those that say so collective over the ranks of the set.
class Consensus {
 public:
  // All outlive it. `group`: the ranks of the set.
  Consensus(const SetContext& set, const Services& services, const Group& group)
      : set_(set), services_(services), group_(group) {}

  // Collective, while the set is made: success where `mine` is one on every rank.
  Status at_start(std::string_view stage, const Status& mine) const;
  // Collective, between two steps. Where `mine` is an error on some rank, it fails on every rank.
  Status to_go_on(std::string_view topic, const Status& mine);
  // Collective. MISMATCH where the texts of the ranks are not equal.
  Status on_text(std::string_view topic, std::string_view text) const;
  // Collective. What the first rank hands in as `mine`.
  Result<std::string> hear_first(std::string_view topic, std::string_view mine) const;

  // Notes that all ranks have failed alike, so that the set goes on unchanged.
  Status refused(Status status) {
    refused_together_ = !status.ok();
    return status;
  }
  void begin() { refused_together_ = false; }  // a change
  bool refused_together() const { return refused_together_; }

 private:
  const SetContext& set_;
  const Services& services_;
  const Group& group_;
  bool refused_together_ = false;  // the last failure was one of all ranks
};

}  // namespace penstock
