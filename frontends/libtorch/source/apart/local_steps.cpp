// The public calls of LocalSteps, which use the rounds.

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "outer.hpp"
#include "rounds.hpp"
#include "saved.hpp"

namespace penstock::torch {
namespace {

constexpr char kStateKey[] = "penstock_local_steps";

}  // namespace

struct LocalSteps::Parts {
  ::torch::optim::Optimizer& optimizer;
  Rounds rounds;
};

LocalSteps::LocalSteps(::torch::optim::Optimizer& optimizer, const NamedTensors& named_parameters,
                       const LocalStepsOptions& options)
    : parts_(new Parts{optimizer, {optimizer, named_parameters, options}}) {}
LocalSteps::LocalSteps(LocalSteps&&) noexcept = default;
LocalSteps& LocalSteps::operator=(LocalSteps&&) noexcept = default;
LocalSteps::~LocalSteps() = default;

void LocalSteps::step() {
  parts_->rounds.before_step();
  parts_->optimizer.step();
  parts_->rounds.after_step();
}

at::Tensor LocalSteps::step(const std::function<at::Tensor()>& closure) {
  parts_->rounds.before_step();
  at::Tensor loss = parts_->optimizer.step(closure);
  parts_->rounds.after_step();
  return loss;
}

void LocalSteps::skip_step() {
  parts_->rounds.before_step();
  parts_->rounds.after_step();
}

void LocalSteps::zero_grad(bool set_to_none) {
  parts_->optimizer.zero_grad(set_to_none);
}

void LocalSteps::synchronize() {
  parts_->rounds.synchronize();
}

NamedTensors LocalSteps::anchors() {
  NamedTensors named;
  for (auto& [name, anchor] : parts_->rounds.anchors()) named.insert(name, anchor);
  return named;
}

OuterStep LocalSteps::outer() const {
  return parts_->rounds.outer();
}

void LocalSteps::set_outer(const std::optional<OuterStep>& outer) {
  parts_->rounds.use(checked(outer));
}

void LocalSteps::close() {
  parts_->rounds.close();
}

// ---- State and reports ----

std::vector<std::uint8_t> LocalSteps::save_state() {
  ::torch::serialize::OutputArchive archive;
  write_state(parts_->rounds, archive);
  std::ostringstream written;
  archive.save_to(written);
  const std::string bytes = written.str();
  return {bytes.begin(), bytes.end()};
}

void LocalSteps::load_state(const std::vector<std::uint8_t>& state) {
  ::torch::serialize::InputArchive archive;
  try {
    archive.load_from(reinterpret_cast<const char*>(state.data()), state.size());
  } catch (const std::exception&) {
    refuse_argument("these " + std::to_string(state.size()) +
                    " bytes were not saved by LocalSteps; expected the bytes that "
                    "LocalSteps::save_state returned on this rank");
  }
  read_state(parts_->rounds, archive);
}

void LocalSteps::save(::torch::serialize::OutputArchive& archive) {
  ::torch::serialize::OutputArchive own(archive.compilation_unit());
  write_state(parts_->rounds, own);
  archive.write(kStateKey, own);
}

void LocalSteps::load(::torch::serialize::InputArchive& archive) {
  ::torch::serialize::InputArchive own;
  if (!archive.try_read(kStateKey, own))
    refuse_argument(
        "the archive has no part \"penstock_local_steps\": it was not written by LocalSteps::save");
  read_state(parts_->rounds, own);
}

Counters LocalSteps::counters() const {
  Counters total{};
  for (const auto& fragment : parts_->rounds.fragments()) {
    const Counters one = fragment->set().counters();
    total.steps += one.steps;
    total.gradient_bytes += one.gradient_bytes;
    total.payload_bytes += one.payload_bytes;
    total.messages += one.messages;
    total.void_buckets += one.void_buckets;
    total.wait_us += one.wait_us;
    total.moved_bytes += one.moved_bytes;
    total.dense_moved_bytes += one.dense_moved_bytes;
    total.forgotten_steps += one.forgotten_steps;
  }
  return total;
}

std::string LocalSteps::report() const {
  const Rounds& rounds = parts_->rounds;
  std::string text = "{\"steps\": " + std::to_string(rounds.steps()) +
                     ", \"every\": " + std::to_string(rounds.rotation().every);
  if (const auto pace = rounds.pace().report())
    text += ", \"step_s\": " + number_text(pace->step) +
            ", \"wait_s\": " + number_text(pace->wait) +
            ", \"delay_that_hides\": " + std::to_string(pace->delay_that_hides);
  text += ", \"fragments\": [";
  const char* between = "";
  for (const auto& fragment : rounds.fragments())
    text += std::exchange(between, ", ") + fragment->set().report();
  return text + "]}";
}

}  // namespace penstock::torch
