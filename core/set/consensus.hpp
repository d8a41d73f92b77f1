// Makes all ranks of a set go on, or none: an error that one rank finds alone is reported to the
// other ranks, which could not notice it.
#pragma once

#include "core/bucket/context.hpp"
#include "core/set/services.hpp"

#include <string>
#include <string_view>

namespace penstock {

// All functions are [control]. "Collective" means that every rank of the set calls the function.
class Consensus {
 public:
  // The arguments must outlive the object. `group`: the set's ranks.
  Consensus(const SetContext& set, const Services& services, const Group& group)
      : set_(set), services_(services), group_(group) {}

  // Collective, while the set is made. Succeeds if `mine` is a success on every rank.
  Status at_start(std::string_view stage, const Status& mine) const;
  // Collective, between two steps. Fails on every rank if `mine` is an error on any rank.
  Status to_go_on(std::string_view topic, const Status& mine);
  // Collective. MISMATCH if the texts of the ranks are not equal.
  Status on_text(std::string_view topic, std::string_view text) const;
  // Collective. Returns on every rank the text `mine` of the first rank.
  Result<std::string> hear_first(std::string_view topic, std::string_view mine) const;

  // Notes whether `status` is a failure that all ranks share, after which the set goes on
  // unchanged. Returns `status`.
  Status refused(Status status) {
    refused_together_ = !status.ok();
    return status;
  }
  void begin() { refused_together_ = false; }  // a change begins
  bool refused_together() const { return refused_together_; }

 private:
  const SetContext& set_;
  const Services& services_;
  const Group& group_;
  bool refused_together_ = false;  // all ranks shared the last failure
};

}  // namespace penstock
