// The frontend's declaration of a set: checked here, and compared with the declarations of the
// other ranks.
#pragma once

#include "core/bucket/compiled_plan.hpp"
#include "core/set/services.hpp"

#include <penstock/runtime.h>

namespace penstock {

// All functions are [control].
class Declaration {
 public:
  // The arguments must outlive the object.
  Declaration(SetContext& set, const Services& services) : set_(set), services_(services) {}

  // Takes name and ranks first, so that a later error can be reported to the other ranks.
  Status take_ranks(const penstock_set_declaration& declaration);
  // Takes the rest, and fills in the context that the set's buckets share.
  Status take(const penstock_set_declaration& declaration);
  // Collective. MISMATCH if the ranks of the set have declared it differently.
  Status compare() const;

  const Group& group() const { return group_; }
  const Config& config() const { return config_; }
  const CompiledPlan::Gradients& gradients() const { return gradients_; }
  std::vector<const DeclaredGradient*> declared() const;
  // The flags PENSTOCK_SET_* of the frontend.
  uint32_t flags() const { return flags_; }
  bool has(uint32_t flag) const { return (flags_ & flag) != 0; }
  void set_flags(uint32_t flags) { flags_ = flags; }

 private:
  Status take_scheme(std::string_view scheme);
  Status take_gradients(const penstock_set_declaration& declaration);
  Result<uint32_t> owner_of(const penstock_gradient_declaration& gradient) const;
  void fill_context();

  SetContext& set_;
  const Services& services_;
  Group group_;
  Config config_;
  CompiledPlan::Gradients gradients_;
  uint32_t flags_ = 0;
  std::string agreement_;  // lines of the frontend
};

}  // namespace penstock
