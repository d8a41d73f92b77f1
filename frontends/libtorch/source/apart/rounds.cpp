// The sequence of steps that ranks make apart.

#include "rounds.hpp"

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>

#include "../exchange.hpp"
#include "../later_advice.hpp"
#include "../world.hpp"
#include "layers.hpp"
#include "outer.hpp"

namespace penstock::torch {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kEqualStart =
    "Call penstock::torch::broadcast_parameters(*model) before the first step: LocalSteps adds "
    "equal updates to every rank's anchors, which start from its parameters.";

// Never destroyed, because the exit of the process may call wait_for_all_rounds() after the
// destructors of statics.
std::vector<Rounds*>& all_rounds() {
  static auto& all = *new std::vector<Rounds*>;
  return all;
}

// Ranks that are behind still need the messages of this one.
void wait_for_all_rounds() {
  for (Rounds* one : all_rounds())
    if (one->alive()) one->wait();
}

double checked_mix(double mix) {
  if (!(mix >= 0 && mix < 1))
    refuse_argument("mix is " + number_text(mix) +
                    ", expected a number from 0 to below 1: the weight of a rank's own parameter "
                    "when a result is applied");
  return mix;
}

// For a text that ranks compare.
std::string line_of(const OuterStep& outer) {
  return "outer = lr " + number_text(outer.lr) + ", momentum " + number_text(outer.momentum) +
         (outer.nesterov ? ", nesterov\n" : "\n");
}

std::vector<NamedParameter> parameters_to_exchange(::torch::optim::Optimizer& optimizer,
                                                   const NamedTensors& named) {
  std::vector<NamedParameter> all = name_parameters(optimizer, named);
  if (all.empty())
    refuse_argument("the optimizer has no parameters, so LocalSteps has nothing to exchange");
  for (const NamedParameter& one : all) {
    refuse_apart(one.tensor, "another LocalSteps");
    refuse_averaged(one.tensor);
  }
  return all;
}

}  // namespace

void refuse_apart(const at::Tensor& parameter, const std::string& asker) {
  for (const Rounds* one : all_rounds()) {
    if (one->alive() && one->has(parameter))
      refuse_argument("LocalSteps exchanges these parameters already, and " + asker +
                      " would exchange them too: use one of both, or call close() of the "
                      "LocalSteps optimizer, on every rank");
  }
}

Rounds::Rounds(::torch::optim::Optimizer& optimizer, const NamedTensors& named,
               const LocalStepsOptions& options)
    : optimizer_(optimizer),
      n_parameters_(count_parameters(optimizer)),
      rotation_(options.every, options.fragments, options.delay),
      pace_(rotation_),
      mix_(checked_mix(options.mix)),
      ranks_(options.ranks),
      outer_(checked(options.outer)) {
  const std::vector<NamedParameter> all = parameters_to_exchange(optimizer, named);
  for (const NamedParameter& one : all) names_.push_back(one.name);
  const auto parts = fragments_of(names_, static_cast<std::size_t>(rotation_.fragments));
  const std::string shared = "every = " + std::to_string(options.every) +
                             "\nfragments = " + std::to_string(options.fragments) +
                             "\ndelay = " + std::to_string(options.delay) +
                             "\nmix = " + number_text(mix_) + "\n" + line_of(outer_);
  for (const auto& part : parts) {
    std::vector<NamedParameter> own;
    for (const std::size_t place : part) own.push_back(all[place]);
    fragments_.push_back(std::make_unique<Fragment>(std::move(own), outer_, options.scheme,
                                                    options.anchors_on_host, ranks_, shared));
  }
  all_rounds().push_back(this);
  before_shutdown(wait_for_all_rounds);
}

Rounds::~Rounds() {
  try {
    close();
  } catch (const std::exception&) {
    // The run is over, and an earlier call has reported the error.
  }
  destroy_sets();
  auto& all = all_rounds();
  all.erase(std::find(all.begin(), all.end(), this));
}

bool Rounds::has(const at::Tensor& parameter) const {
  for (const auto& fragment : fragments_)
    for (const NamedParameter& one : fragment->named())
      if (one.tensor.is_same(parameter)) return true;
  return false;
}

bool Rounds::alive() const {
  return !is_closed_ && std::all_of(fragments_.begin(), fragments_.end(),
                                    [](const auto& fragment) { return fragment->set().alive(); });
}

void Rounds::check_alive() const {
  if (!alive())
    refuse_argument(
        "the exchange of this LocalSteps has ended, by close() or penstock::torch::shutdown(): "
        "wrap the optimizer again, after penstock::torch::init()");
}

void Rounds::use(const OuterStep& outer) {
  check_alive();
  if (keeps_momentum(outer) != keeps_momentum(outer_))
    refuse_argument("the outer step changes from momentum " + number_text(outer_.momentum) +
                    " to " + number_text(outer.momentum) +
                    ": a momentum can neither begin nor end between two rounds; change its size, "
                    "or lr");
  outer_ = outer;
  for (const auto& fragment : fragments_) fragment->tell(outer);
}

void Rounds::take_anchors() {
  for (const auto& fragment : fragments_) fragment->take_anchors(keeps_momentum(outer_));
}

std::vector<std::pair<std::string, at::Tensor>> Rounds::anchors() {
  take_anchors();
  std::map<std::string, at::Tensor> found;
  for (const auto& fragment : fragments_) {
    const std::vector<at::Tensor> anchors = fragment->anchors();
    for (std::size_t i = 0; i < anchors.size(); ++i)
      found.emplace(fragment->named()[i].name, anchors[i]);
  }
  std::vector<std::pair<std::string, at::Tensor>> ordered;
  for (const std::string& name : names_) ordered.emplace_back(name, found.at(name));
  return ordered;
}

// ---- steps ----

void Rounds::before_step() {
  check_alive();
  // The next exchange would notice too, but it may be far away.
  check(penstock_runtime_check(current()));
  if (count_parameters(optimizer_) != n_parameters_)
    refuse_argument(
        "LocalSteps takes no further parameter groups; add them to the optimizer before it is "
        "wrapped");
  take_anchors();
  if (is_checked_ && !fragments_.front()->set().comparison_due()) return;
  if (size_of(ranks_) != 1) compare_anchors();
  is_checked_ = true;
}

void Rounds::compare_anchors() {
  std::vector<penstock_str> names;
  std::vector<std::uint64_t> checksums;
  const auto all = anchors();
  for (const auto& [name, anchor] : all) {
    const at::Tensor plain = anchor.to(at::kCPU);
    names.push_back(view(name));
    checksums.push_back(penstock_checksum(plain.data_ptr(), plain.nbytes()));
  }
  fragments_.front()->set().call(penstock_set_compare_parameters, names.data(), checksums.data(),
                                 std::uint64_t{names.size()},
                                 view(is_checked_ ? kLaterAdvice : kEqualStart));
}

void Rounds::after_step() {
  ++steps_;
  pace_.step_ends(seconds_now());
  exchange();
  pace_.step_begins(seconds_now());
}

// Applies the result of the fragment, and starts the fragment, whose turn is now.
void Rounds::exchange() {
  const auto landing = rotation_.landing(steps_), starting = rotation_.starting(steps_);
  if (landing && fragments_[*landing]->is_under_way()) await_and_land(*fragments_[*landing]);
  are_equal_ = false;
  if (!starting) return;
  start(*fragments_[*starting]);
  if (rotation_.delay > 0) return;
  await_and_land(*fragments_[*starting]);
  are_equal_ = fragments_.size() == 1 && mix_ == 0;
}

void Rounds::start(Fragment& fragment) const {
  fragment.start("steps = " + std::to_string(steps_) + "\n" + line_of(outer_));
}

// Lands a result that is due. Waits before it is due, in synchronize(), say nothing about the
// delay.
void Rounds::await_and_land(Fragment& fragment) {
  const double began = seconds_now();
  fragment.wait();
  pace_.waited(seconds_now() - began);
  land(fragment, mix_);
}

void Rounds::synchronize() {
  before_step();
  if (are_equal_) return;
  for (const auto& fragment : fragments_) {
    if (fragment->is_under_way()) land(*fragment, mix_);
    start(*fragment);
  }
  for (const auto& fragment : fragments_) land(*fragment, 0.0);
  are_equal_ = true;
}

void Rounds::land(Fragment& fragment, double mix) {
  const std::vector<std::string> causes = fragment.land(outer_, mix);
  std::vector<std::string> own;
  for (const std::string& name : causes)
    if (!name.empty()) own.push_back(name);
  if (own.empty() || std::exchange(has_said_cause_, true)) return;
  const std::string more =
      own.size() > 1 ? " (and " + std::to_string(own.size() - 1) + " more)" : "";
  std::fprintf(stderr,
               "penstock warning: rank %u: parameter %s%s is not finite after step %lld of "
               "LocalSteps. On all ranks that exchange with it %zu parameters go back to their "
               "anchors; the outer momentum and the residuals stay. The state of the inner "
               "optimizer on this rank may be not finite too: then load a checkpoint. This is said "
               "once\n",
               rank(), own.front().c_str(), more.c_str(), static_cast<long long>(steps_),
               causes.size());
}

// ---- the end ----

void Rounds::wait() {
  for (const auto& fragment : fragments_) fragment->wait();
}

void Rounds::forget() {
  for (const auto& fragment : fragments_) fragment->forget();
}

void Rounds::restored(std::int64_t steps, bool are_equal) {
  steps_ = steps;
  are_equal_ = are_equal;
  is_checked_ = false;
}

void Rounds::close() {
  const bool was_alive = alive();
  is_closed_ = true;
  if (!was_alive) return;
  forget();
  destroy_sets();
}

void Rounds::destroy_sets() {
  for (const auto& fragment : fragments_) fragment->set().destroy();
}

}  // namespace penstock::torch
