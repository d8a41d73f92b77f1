// For tests: N ranks as threads of one process, each with a runtime of its own over the loopback
// transport.
#pragma once

#include "core/runtime/runtime.hpp"
#include "core/set/set.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace penstock::testing {

struct GradientShape {
  std::string name;
  std::vector<int64_t> shape;
  uint32_t dtype = PENSTOCK_FLOAT32;
  uint32_t given_bucket = PENSTOCK_NO_BUCKET;
  uint32_t owner = 0;
  Place lies_on = {};
};

// Tables of further instances of loopback may say HUB, RANK and SIZE, which this function replaces.
inline std::string rank_config(std::string scheme, const std::string& hub, uint32_t rank,
                               uint32_t size) {
  for (const auto& [word, value] :
       {std::pair("HUB", hub), std::pair("RANK", fmt::format("{}", rank)),
        std::pair("SIZE", fmt::format("{}", size))})
    for (size_t at; (at = scheme.find(word)) != std::string::npos;)
      scheme.replace(at, std::string_view(word).size(), value);
  const std::string table = "[collective.loopback]\n";  // a scheme may end with options in it
  const bool is_open = scheme.find(table) != std::string::npos;
  return fmt::format("{}\n{}hub = \"{}\"\nrank = {}\nsize = {}\n", scheme, is_open ? "" : table,
                     hub, rank, size);
}

// A scheme over loopback; `more` holds further keys of [scheme], then tables.
inline std::string scheme_text(const std::string& keys, const std::string& tables = "") {
  return "[scheme]\ncollective = \"loopback\"\n" + keys + "\n[runtime]\ndeadline_s = 20\n" + tables;
}

// Keys of [runtime]: plugins are looked for in these folders of tests/plugins as well.
inline std::string test_plugins(const std::vector<std::string>& folders) {
  const auto program = std::filesystem::canonical("/proc/self/exe").parent_path();
  std::string paths;
  for (const std::string& folder : folders)
    paths +=
        fmt::format("{}\"{}/plugins/{}\"", paths.empty() ? "" : ", ", program.string(), folder);
  return fmt::format("allow_insecure_paths = true\nplugin_path = [{}]\n", paths);
}

inline Result<RuntimeHandle> open_rank(const std::string& config) {
  penstock_runtime_options options{};
  options.struct_size = sizeof options;
  options.config_text = str(config);
  return Runtime::open(options);
}

inline Result<SetHandle> make_set(Runtime& runtime, const std::vector<GradientShape>& gradients,
                                  uint32_t flags = 0, const std::string& name = "model",
                                  const std::string& scheme = "",
                                  const std::vector<uint32_t>& ranks = {}) {
  std::vector<penstock_gradient_declaration> declarations(gradients.size());
  std::vector<const penstock_gradient_declaration*> pointers;
  for (size_t i = 0; i < gradients.size(); ++i) {
    penstock_gradient_declaration& c = declarations[i];
    c.struct_size = sizeof c;
    c.name = str(gradients[i].name);
    c.shape = gradients[i].shape.data();
    c.n_dims = gradients[i].shape.size();
    c.dtype = gradients[i].dtype;
    c.device_type = gradients[i].lies_on.device_type;
    c.device_id = gradients[i].lies_on.device_id;
    c.given_bucket = gradients[i].given_bucket;
    c.owner = gradients[i].owner;
    pointers.push_back(&c);
  }
  penstock_set_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = str(name);
  declaration.gradients = pointers.data();
  declaration.n_gradients = pointers.size();
  declaration.scheme = str(scheme);
  declaration.ranks = ranks.data();  // none: all
  declaration.n_ranks = ranks.size();
  declaration.flags = flags | PENSTOCK_SET_REPORTS_OUTCOME | PENSTOCK_SET_PREVIOUS_UPDATE;
  return Set::create(runtime.services(), declaration);
}

// "topk_on_3": of a test of something with a name, and a number of ranks.
inline constexpr auto name_and_size = [](const auto& info) {
  return fmt::format("{}_on_{}", std::get<0>(info.param).name, std::get<1>(info.param));
};

inline penstock_tensor view_of(std::vector<float>& values) {
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  static const int64_t kNoShape = 0;
  tensor.shape = &kNoShape;
  tensor.data = values.data();
  tensor.numel = values.size();
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  return tensor;
}

// Runs `body(runtime, rank)` on every rank. Failures inside are gtest failures of the calling test.
inline void with_ranks(uint32_t size, const std::string& scheme,
                       const std::function<void(Runtime&, uint32_t)>& body,
                       Result<RuntimeHandle> (*open)(const std::string& config) = open_rank) {
  static std::atomic<int> next_hub{0};
  const std::string hub = fmt::format("pipeline-test-{}", next_hub++);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto runtime = open(rank_config(scheme, hub, rank, size));
      ASSERT_TRUE(runtime.ok()) << runtime.status().message();
      body(*runtime.value(), rank);
    });
  for (std::thread& thread : threads) thread.join();
}

#define ASSERT_OK(expression)                                         \
  do {                                                                \
    const ::penstock::Status assert_ok_status = (expression);         \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status.message(); \
  } while (false)

// One plain step of a set: all gradients ready in reverse order, then the wait. gradients[i] become
// the results.
inline Status run_step(Set& set, std::vector<std::vector<float>>& gradients,
                       uint32_t outcome = PENSTOCK_STEP_APPLIED) {
  for (size_t i = gradients.size(); i-- > 0;)
    PENSTOCK_TRY(set.gradient_ready(i, view_of(gradients[i])));
  PENSTOCK_TRY(set.wait_all());
  return set.step_end(outcome);
}

}  // namespace penstock::testing
