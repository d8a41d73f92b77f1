// The sequence of steps that ranks make apart: when a fragment exchanges its drift, and when the
// result is applied. The sequence depends only on the number of the step, so it is equal on every
// rank, whatever the speed of the ranks.
#ifndef PENSTOCK_LIBTORCH_APART_ROUNDS_HPP
#define PENSTOCK_LIBTORCH_APART_ROUNDS_HPP

#include <ATen/core/Tensor.h>
#include <penstock/torch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../parameters.hpp"
#include "fragment.hpp"
#include "pace.hpp"
#include "rotation.hpp"

namespace penstock::torch {

// Throws if a LocalSteps exchanges this parameter. `asker`: the object that would exchange it too.
void refuse_apart(const at::Tensor& parameter, const std::string& asker);

// The fragments of one model with their rotation, and the outer step. All calls come from the
// thread that trains, in one order on every rank.
class Rounds {
 public:
  // Collective over the ranks that exchange.
  Rounds(::torch::optim::Optimizer& optimizer, const NamedTensors& named,
         const LocalStepsOptions& options);
  // Does the work of close(). Its errors are dropped.
  ~Rounds();
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  const Rotation& rotation() const { return rotation_; }
  const Pace& pace() const { return pace_; }
  const OuterStep& outer() const { return outer_; }
  const std::vector<std::unique_ptr<Fragment>>& fragments() const { return fragments_; }
  // Of the optimizer, since the parameters were equal to the first anchors.
  std::int64_t steps() const { return steps_; }
  // True if every parameter is equal to its anchor, on every rank.
  bool are_equal() const { return are_equal_; }

  bool has(const at::Tensor& parameter) const;
  // False after close(), or after the runtime was shut down.
  bool alive() const;
  // Throws unless alive().
  void check_alive() const;

  // Replaces the outer step, between two steps, on every rank. Throws if only one of the two has a
  // momentum.
  void use(const OuterStep& outer);
  // Makes the present parameters the anchors, if there are no anchors yet.
  void take_anchors();
  // The anchors with the names of their parameters, in the order of the parameters.
  std::vector<std::pair<std::string, at::Tensor>> anchors();

  // Call it before every step of the optimizer. Collective before the first one.
  void before_step();
  // Call it after every step of the optimizer, also after one that the program has left out on this
  // rank, because all ranks must count the same steps.
  void after_step();
  // Ends all rounds now: every parameter is equal to its anchor, on every rank. The places of the
  // fragments in the rotation stay. Right after the end of a round there is nothing to end: a drift
  // of zero would only let the outer momentum move the anchors. Collective.
  void synchronize();

  // Waits for the results of exchanges under way, without applying them.
  void wait();
  // Throws exchanges under way away, on every rank.
  void forget();
  // Notes that saved anchors have replaced the anchors, at this number of steps. are_equal: the
  // saved parameters were equal to them.
  void restored(std::int64_t steps, bool are_equal);
  // Throws exchanges under way away and destroys the sets. Every rank must call it.
  void close();

 private:
  void compare_anchors();
  void exchange();
  void await_and_land(Fragment& fragment);
  void start(Fragment& fragment) const;
  void land(Fragment& fragment, double mix);
  void destroy_sets();

  ::torch::optim::Optimizer& optimizer_;
  const std::size_t n_parameters_;
  const Rotation rotation_;
  Pace pace_;
  const double mix_;
  const Ranks ranks_;
  OuterStep outer_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Fragment>> fragments_;
  std::int64_t steps_ = 0;
  bool are_equal_ = true;
  bool is_checked_ = false;  // the ranks have compared their anchors
  bool has_said_cause_ = false;
  bool is_closed_ = false;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_ROUNDS_HPP
