// The runtime of this process: init, shutdown, and the number of this rank.

#include "world.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

namespace penstock::torch {
namespace {

constexpr char kNotInitialized[] =
    "Penstock has not been initialized or was shut down; call penstock::torch::init()";

struct World {
  penstock_runtime* runtime = nullptr;
  penstock_topology topology{};
  ::pid_t owner = 0;
  // The number of sets made so far, for each list of ranks. It never decreases, so every rank gives
  // the n-th set of a list an equal name.
  std::map<Ranks, std::uint64_t> n_sets;
  // Sets that shutdown() may still have to end.
  std::vector<std::weak_ptr<GradientSet>> sets;
};

// Never destroyed, because close_at_exit() may run after the destructors of statics.
std::vector<void (*)()>& last_actions() {
  static auto& all = *new std::vector<void (*)()>;
  return all;
}

std::recursive_mutex& world_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

World& world() {
  static World one;
  return one;
}

const penstock_topology& topology() {
  current();
  return world().topology;
}

// Closes the runtime when the process exits. A forked child has the handle but not the runtime's
// threads, so it must not touch the runtime.
void close_at_exit() {
  if (world().runtime != nullptr && ::getpid() == world().owner) shutdown();
}

void open_runtime(const Configuration& configuration) {
  const std::string_view version(penstock_version().data, penstock_version().size);
  const std::string frontend = "penstock.libtorch " + std::string(version);
  penstock_runtime_options options{};
  options.struct_size = sizeof options;
  options.config_path = view(configuration.config);
  options.config_text = view(configuration.config_text);
  options.frontend = view(frontend);
  penstock_runtime* opened = nullptr;
  check(penstock_runtime_open(&options, &opened));
  penstock_topology found{};
  found.struct_size = sizeof found;
  try {
    check(penstock_runtime_topology(opened, &found));
  } catch (...) {
    penstock_runtime_close(opened);
    throw;
  }
  world() = World{opened, found, ::getpid(), {}, {}};
}

// Returns the TOML text of a scheme: `scheme` itself, or the content of the file if `scheme` is a
// path that ends in .toml.
std::string scheme_text(const std::string& scheme) {
  const bool is_path = scheme.find('\n') == std::string::npos && scheme.ends_with(".toml");
  if (!is_path) return scheme;
  std::ifstream file(scheme, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    refuse_argument("scheme is the path " + scheme +
                    ", which cannot be read; give an existing file or TOML text");
  return text.str();
}

}  // namespace

penstock_runtime* current() {
  if (world().runtime == nullptr) refuse_moment(kNotInitialized);
  return world().runtime;
}

std::shared_ptr<GradientSet> create_set(const std::string& kind,
                                        const std::vector<GradientSpec>& gradients,
                                        std::uint32_t flags, const std::string& scheme,
                                        const Ranks& ranks, const std::string& agreement) {
  penstock_runtime* const runtime = current();
  const std::string text = scheme_text(scheme);
  std::string name = kind + "." + std::to_string(world().n_sets[ranks]++);
  const char* between = " of ranks ";
  for (const std::uint32_t rank : ranks) name += std::exchange(between, ",") + std::to_string(rank);
  auto made =
      std::make_shared<GradientSet>(runtime, name, gradients, flags, text, ranks, agreement);
  world().sets.push_back(made);
  return made;
}

void init(const Configuration& configuration) {
  if (!configuration.config.empty() && !configuration.config_text.empty())
    refuse_argument("init got config and config_text, expected only config or only config_text");
  const std::lock_guard lock(world_mutex());
  if (world().runtime != nullptr) {
    if (!configuration.config.empty() || !configuration.config_text.empty())
      refuse_argument(
          "init was given a configuration but the runtime is open; call shutdown() first");
    return;
  }
  open_runtime(configuration);
  // Registered after the library was loaded, so that it runs before the library's own end.
  [[maybe_unused]] static const int registered = std::atexit(close_at_exit);
}

void before_shutdown(void (*action)()) {
  auto& all = last_actions();
  if (std::find(all.begin(), all.end(), action) == all.end()) all.push_back(action);
}

std::size_t size_of(const Ranks& ranks) {
  return ranks.empty() ? size() : ranks.size();
}

void shutdown() {
  const std::lock_guard lock(world_mutex());
  if (world().runtime == nullptr) return;
  for (const auto action : last_actions()) {
    try {
      action();
    } catch (const std::exception&) {
      // The run has failed before, and an earlier call has reported the error.
    }
  }
  World closing = std::exchange(world(), World{});
  for (const auto& weak : closing.sets) {
    if (const auto set = weak.lock()) set->destroy();
  }
  penstock_runtime_close(closing.runtime);
}

void give_up(const std::string& reason) noexcept {
  if (world().runtime != nullptr) penstock_abort(world().runtime, view(reason));
}

bool is_initialized() noexcept {
  return world().runtime != nullptr;
}

std::uint32_t rank() {
  return topology().rank;
}
std::uint32_t size() {
  return topology().size;
}
std::uint32_t local_rank() {
  return topology().local_rank;
}
std::uint32_t local_size() {
  return topology().local_size;
}

std::string report() {
  std::string text;
  check(penstock_runtime_report(current(), &text, take_text));
  return text;
}

}  // namespace penstock::torch
