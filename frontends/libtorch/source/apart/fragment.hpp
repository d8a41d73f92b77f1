// A fragment: some parameters, their anchors, and the set that exchanges their drift.
//
// An anchor is a copy of a parameter that is equal on all ranks. The drift is the distance from the
// parameter to its anchor. It is the gradient of the anchor for the outer step, so a Slot of the
// anchor takes it to the core and back, and the set compresses and averages it like gradients.
#ifndef PENSTOCK_LIBTORCH_APART_FRAGMENT_HPP
#define PENSTOCK_LIBTORCH_APART_FRAGMENT_HPP

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../door.hpp"
#include "../parameters.hpp"
#include "../slot.hpp"

namespace penstock::torch {

// The calls of an exchange are start(), then wait(), then land(), in an order that is equal on
// every rank. All calls come from the thread that trains.
class Fragment {
 public:
  // Collective over `ranks`. on_host: anchors, momenta and drifts lie in host memory, not on the
  // parameters' devices. Anchors of 16-bit parameters have 32 bits, because an outer step may be
  // too small for 16 bits. Throws for a device or an element type that cannot be exchanged.
  // agreement: lines that must be equal on these ranks.
  Fragment(std::vector<NamedParameter> named, const OuterStep& outer, const std::string& scheme,
           bool on_host, const Ranks& ranks, const std::string& agreement);
  Fragment(const Fragment&) = delete;
  Fragment& operator=(const Fragment&) = delete;

  const std::vector<NamedParameter>& named() const { return named_; }
  // By parameter, in the order of named(). They have no values until take_anchors().
  std::vector<at::Tensor> anchors() const;
  const std::vector<at::Tensor>& momenta() const { return momenta_; }  // empty without a momentum
  // Drifts, then their means; empty between exchanges.
  const std::vector<at::Tensor>& results() const { return results_; }
  GradientSet& set() const { return *set_; }

  // Reports the outer learning rate to the set.
  void tell(const OuterStep& outer);
  // Makes the present parameters the anchors, with momenta of zero, if there are no anchors yet.
  void take_anchors(bool with_momentum);

  // True from start() to land().
  bool is_under_way() const { return !results_.empty(); }
  // Hands the drifts in. Returns at once; the exchange runs on threads of the runtime. agreement:
  // lines that must be equal on all ranks in this exchange. They are compared beside it. Where they
  // differ, wait() throws on every rank.
  void start(const std::string& agreement);
  // Waits for the results and ends the step of the set. Does nothing if the results are there, or
  // if no exchange is under way. After an error there is no exchange any more.
  void wait();
  // Waits, takes the outer step and moves the parameters to mix * parameter + (1 - mix) * anchor.
  // Frozen parameters stay. A parameter whose result is not finite goes back to its anchor, which
  // stays. Returns an entry for each such parameter: its name, or "" if the parameter is finite on
  // this rank.
  std::vector<std::string> land(const OuterStep& outer, double mix);
  // Throws an exchange under way away, on every rank: state and residuals are as before start().
  void forget();

  // Copies saved tensors into its own, by parameter. `results` are the results of an exchange that
  // had not landed, or empty.
  void restore(const std::vector<at::Tensor>& anchors, const std::vector<at::Tensor>& momenta,
               const std::vector<at::Tensor>& results);

 private:
  std::string frozen() const;
  at::Tensor drift_of(const Slot& slot);
  // Memory for a drift. Host memory is kept for the next round: the system clears new memory page
  // by page, which takes longer than the drift.
  at::Tensor room_for(const Slot& slot);
  void finish();
  // After an error of `work` no exchange is under way.
  void or_none(const std::function<void()>& work);
  void wait_for_results();
  void judge();
  void clear();

  const std::vector<NamedParameter> named_;
  std::vector<Slot> slots_;  // of the anchors; slot i belongs to parameter i
  std::vector<at::Tensor> momenta_, results_, rooms_;
  std::vector<at::Tensor> abandoned_;   // results of exchanges that ended with an error
  std::vector<std::uint64_t> numbers_;  // of all gradients of the set
  std::vector<std::uint8_t> gone_;      // by parameter: not 0 if its result is not finite
  bool has_anchors_ = false;
  bool is_there_ = false;  // the results have arrived, and the set's step has ended
  std::shared_ptr<GradientSet> set_;
};

// The parameter's own memory without history; of a complex parameter two floats each.
at::Tensor values_of(const at::Tensor& parameter);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_FRAGMENT_HPP
