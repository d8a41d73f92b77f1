// A set of gradients over the C++ classes, driven as a frontend would, and simple statistics.
#pragma once

#include "core/runtime/runtime.hpp"
#include "core/set/set.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace penstock::bench {

// Ends the program with the error, because a benchmark cannot return it.
inline void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%.*s\n", int(status.message().size()), status.message().data());
  std::_Exit(1);
}

// Gives this process's session priority over other sessions on this machine, so that other load
// does not change the figures. The priorities between the run's own threads stay equal. Without
// permission, or on a kernel without groups of sessions, nothing changes.
inline void go_before_other_sessions() {
  if (std::FILE* group = std::fopen("/proc/self/autogroup", "w")) {
    std::fputs("-19", group);
    std::fclose(group);
  }
}

inline RuntimeHandle open(const std::string& config) {
  penstock_runtime_options options{};
  options.struct_size = sizeof options;
  options.config_text = str(config);
  auto runtime = Runtime::open(options);
  check(runtime.status());
  return std::move(runtime.value());
}

using Shape = std::vector<int64_t>;

inline std::vector<Shape> vectors_of(const std::vector<int64_t>& sizes) {
  std::vector<Shape> shapes;
  for (const int64_t size : sizes) shapes.push_back({size});
  return shapes;
}

// One gradient per shape, all float32.
class TrainingSet {
 public:
  TrainingSet(Runtime& runtime, std::vector<Shape> shapes) : shapes_(std::move(shapes)) {
    std::vector<std::string> names;
    for (size_t i = 0; i < shapes_.size(); ++i) names.push_back("gradient." + std::to_string(i));
    std::vector<penstock_gradient_declaration> declarations(shapes_.size());
    std::vector<const penstock_gradient_declaration*> pointers;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      penstock_gradient_declaration& c = declarations[i];
      c.struct_size = sizeof c;
      c.name = str(names[i]);
      c.shape = shapes_[i].data();
      c.n_dims = shapes_[i].size();
      c.dtype = PENSTOCK_FLOAT32;
      c.device_type = PENSTOCK_DEVICE_CPU;
      c.given_bucket = PENSTOCK_NO_BUCKET;
      pointers.push_back(&c);
      size_t numel = 1;
      for (const int64_t side : shapes_[i]) numel *= static_cast<size_t>(side);
      values.emplace_back(numel);
    }
    penstock_set_declaration declaration{};
    declaration.struct_size = sizeof declaration;
    declaration.name = str("bench");
    declaration.gradients = pointers.data();
    declaration.n_gradients = pointers.size();
    auto made = Set::create(runtime.services(), declaration);
    check(made.status());
    set_ = std::move(made.value());
  }
  Set& set() { return *set_; }

  void ready(size_t i) {
    penstock_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = values[i].data();
    tensor.shape = shapes_[i].data();
    tensor.n_dims = shapes_[i].size();
    tensor.numel = values[i].size();
    tensor.dtype = PENSTOCK_FLOAT32;
    tensor.device_type = PENSTOCK_DEVICE_CPU;
    check(set_->gradient_ready(i, tensor));
  }
  // All gradients in reverse order, as in backward, and then the end of the step.
  void step() {
    for (size_t i = values.size(); i-- > 0;) ready(i);
    check(set_->wait_all());
    check(set_->step_end());
  }

  std::vector<std::vector<float>> values;

 private:
  std::vector<Shape> shapes_;
  SetHandle set_;
};

struct Spread {
  double median, least, most;
};
inline Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

// The 161 gradients of ResNet-50 (ImageNet), in order of registration.
inline std::vector<int64_t> resnet50() {
  std::vector<int64_t> sizes{64 * 3 * 49, 64, 64};
  int64_t channels = 64;
  const int64_t widths[] = {64, 128, 256, 512};
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t w = widths[stage];
    for (int block = 0; block < blocks[stage]; ++block) {
      for (int64_t size : {channels * w, w, w, w * w * 9, w, w, w * w * 4, w * 4, w * 4})
        sizes.push_back(size);
      if (block == 0)
        for (int64_t size : {channels * w * 4, w * 4, w * 4}) sizes.push_back(size);
      channels = w * 4;
    }
  }
  sizes.push_back(2048 * 1000);
  sizes.push_back(1000);
  return sizes;
}

}  // namespace penstock::bench
