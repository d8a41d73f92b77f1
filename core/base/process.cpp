#include "core/base/process.hpp"

#include <pthread.h>

#include <atomic>

namespace penstock {
namespace {

// Increases in every child before fork returns there.
std::atomic<uint32_t> generation{0};

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

HomeProcess::HomeProcess() : generation_(generation.load(std::memory_order_relaxed)) {}

bool HomeProcess::is_here() const {
  return generation_ == generation.load(std::memory_order_relaxed);
}

Status HomeProcess::check() const {
  if (is_here()) return {};
  return failed_precondition(
      "this process was forked from the process that opened the runtime, but the threads and "
      "connections stayed there: a call from here would wait for ever; call from the process that "
      "opened the runtime (workers of a data loader only load data), or start this process anew "
      "and open a runtime in it");
}

}  // namespace penstock
