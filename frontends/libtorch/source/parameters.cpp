// The parameters and options of a torch optimizer that the exchange needs.

#include "parameters.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <map>
#include <set>

#include "door.hpp"
#include "slot.hpp"

namespace penstock::torch {
namespace {

void check_all_named(::torch::optim::Optimizer& optimizer, const std::set<const void*>& named) {
  std::string missing;
  std::size_t group_number = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (std::size_t i = 0; i < group.params().size(); ++i) {
      const at::Tensor& parameter = group.params()[i];
      if (named.contains(parameter.unsafeGetTensorImpl())) continue;
      missing += (missing.empty() ? "" : ", ") + std::string("parameter ") + std::to_string(i) +
                 " of group " + std::to_string(group_number) + " (" + shape_text(parameter) + ")";
    }
    ++group_number;
  }
  if (!missing.empty())
    refuse_argument(
        "named_parameters was specified, but one or more model parameters were not named: " +
        missing);
}

bool averages_over_steps(const ::torch::optim::OptimizerOptions& options) {
  if (const auto* sgd = dynamic_cast<const ::torch::optim::SGDOptions*>(&options))
    return sgd->momentum() > 0;
  if (const auto* rms = dynamic_cast<const ::torch::optim::RMSpropOptions*>(&options))
    return rms->momentum() > 0;
  if (const auto* adam = dynamic_cast<const ::torch::optim::AdamOptions*>(&options))
    return std::get<0>(adam->betas()) > 0;
  if (const auto* adamw = dynamic_cast<const ::torch::optim::AdamWOptions*>(&options))
    return std::get<0>(adamw->betas()) > 0;
  return false;
}

}  // namespace

std::vector<NamedParameter> name_parameters(::torch::optim::Optimizer& optimizer,
                                            const NamedTensors& named) {
  std::map<const void*, std::size_t> group_of;
  std::size_t group_number = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params())
      group_of.emplace(parameter.unsafeGetTensorImpl(), group_number);
    ++group_number;
  }
  std::vector<NamedParameter> result;
  std::set<const void*> seen;
  for (const auto& item : named) {
    const auto owned = group_of.find(item.value().unsafeGetTensorImpl());
    // A tensor with two names takes part under its first name.
    if (owned == group_of.end() || !seen.insert(owned->first).second) continue;
    result.push_back({item.key(), item.value(), owned->second});
  }
  check_all_named(optimizer, seen);
  return result;
}

std::size_t count_parameters(::torch::optim::Optimizer& optimizer) {
  std::size_t count = 0;
  for (const auto& group : optimizer.param_groups()) count += group.params().size();
  return count;
}

bool has_momentum(::torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (group.has_options() && averages_over_steps(group.options())) return true;
  }
  return false;
}

std::vector<std::optional<double>> learning_rates(::torch::optim::Optimizer& optimizer) {
  std::vector<std::optional<double>> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.emplace_back();
    if (!group.has_options()) continue;
    try {
      rates.back() = group.options().get_lr();
    } catch (const c10::Error&) {
      // User-defined options may have no learning rate; torch's base class then throws.
    }
  }
  return rates;
}

}  // namespace penstock::torch
