#include "core/control/activity.hpp"

#include "core/base/clock.hpp"
#include "core/base/printable.hpp"
#include "core/control/protocol.hpp"
#include "core/control/socket.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace penstock {

using control::seconds;

namespace {

// A younger activity is reported without its age, and a shorter call is not reported.
constexpr uint64_t kWorthTellingUs = 1'000'000;

// The innermost plugin call of this thread. exit() runs its handlers on the thread that called
// exit().
thread_local const CallSlot::Call* call_here = nullptr;

// A program may end while the engine's thread is in a plugin, so only a call of this thread counts.
void name_call_that_exits() {
  if (call_here == nullptr) return;
  const std::string text = printable(fmt::format(
      "penstock: the plugin ended the process: {} called exit(), where a plugin returns a status; "
      "fix the plugin, or use another",
      PluginCall::text_of(*call_here)));
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(nullptr);
  _exit(EXIT_FAILURE);
}

std::string text_of(const Activity::Steps& steps) {
  const uint64_t step = steps.step.load();
  switch (steps.phase.load()) {
    case Activity::Phase::computes:
      return fmt::format("gradients of step {} of set '{}'", step, steps.set);
    case Activity::Phase::waits:
      return fmt::format("wait for step {} of set '{}'", step, steps.set);
    case Activity::Phase::ended:
      return fmt::format("end of step {} of set '{}'", step, steps.set);
    default:
      return fmt::format("made set '{}'", steps.set);
  }
}

}  // namespace

PluginCall::PluginCall(CallSlot* slot, std::string_view kind, std::string_view name,
                       std::string_view stage, std::string_view where, std::string_view set,
                       uint64_t step)
    : slot_(slot), call_{kind, name, stage, where, set, step} {
  // Registered once per process, and also valid in a child of fork that calls exit() within a call.
  [[maybe_unused]] static const int registered = std::atexit(name_call_that_exits);
  outer_here_ = std::exchange(call_here, &call_);
  if (slot_ == nullptr) return;
  call_.since_us = now_us();
  const Lock lock(slot_->mutex_);
  call_.older = std::exchange(slot_->youngest_, &call_);
}

PluginCall::~PluginCall() {
  call_here = outer_here_;
  if (slot_ == nullptr) return;
  const Lock lock(slot_->mutex_);
  CallSlot::Call** at = &slot_->youngest_;
  while (*at != &call_) at = &(*at)->older;
  *at = call_.older;
}

std::string PluginCall::text_of(const CallSlot::Call& call) {
  std::string text = fmt::format("{} of {}", call.stage, call.kind);
  if (!call.name.empty()) text += fmt::format(" '{}'", call.name);
  if (!call.where.empty()) text += fmt::format(" for {}", call.where);
  if (!call.set.empty()) text += fmt::format(" of set '{}', step {}", call.set, call.step);
  return text;
}

std::optional<CallSlot::Long> CallSlot::lasting(uint64_t at_least_us) const {
  const Lock lock(mutex_);
  if (youngest_ == nullptr) return std::nullopt;
  const uint64_t now = now_us();
  const uint64_t lasted = now - std::min(now, youngest_->since_us);
  if (lasted < at_least_us) return std::nullopt;
  return Long{PluginCall::text_of(*youngest_), lasted, youngest_->since_us};
}

void Activity::Steps::at(Phase now, uint64_t at_step) {
  step.store(at_step, std::memory_order_relaxed);
  phase.store(now, std::memory_order_relaxed);
  since_us.store(now_us(), std::memory_order_release);
}

void Activity::did(std::string_view text) {
  const Lock lock(mutex_);
  did_.assign(text);
  did_us_ = now_us();
}

std::shared_ptr<Activity::Steps> Activity::add_set(std::string name) {
  auto steps = std::make_shared<Steps>(std::move(name));
  steps->at(Phase::rests, 0);
  const Lock lock(mutex_);
  std::erase_if(sets_, [&](const auto& other) { return other->set == steps->set; });
  sets_.push_back(steps);
  return steps;
}

std::string Activity::text() const {
  for (const CallSlot* slot : slots())
    if (const auto call = slot->lasting(kWorthTellingUs))
      return fmt::format("{}, which has lasted {}", call->text, seconds(call->lasted_us));
  const Lock lock(mutex_);
  std::string text = did_;
  uint64_t since_us = did_us_;
  for (const auto& steps : sets_) {
    if (steps->since_us.load() < since_us) continue;
    since_us = steps->since_us.load();
    text = text_of(*steps);
  }
  const uint64_t now = now_us();
  if (text.empty() || now < since_us + kWorthTellingUs) return text;
  return fmt::format("{}, {} ago", text, seconds(now - since_us));
}

std::vector<std::pair<std::string, uint64_t>> Activity::steps_done() const {
  const Lock lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> done;
  for (const auto& steps : sets_) done.emplace_back(steps->set, steps->steps_done.load());
  return done;
}

}  // namespace penstock
