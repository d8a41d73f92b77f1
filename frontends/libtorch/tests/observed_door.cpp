// Replaces four functions of the C interface whose effect no plugin of this repository shows. Each
// replacement notes its arguments and calls the original. The linker prefers the functions of the
// program to the functions of libpenstock.

#include <dlfcn.h>
#include <penstock/runtime.h>

#include <vector>

namespace penstock::torch::testing {

struct Observed {
  std::vector<double> learning_rates;
  int momentum = 0;
  int ready = 0;  // gradients handed in
  int looks = 0;  // reports about lost results
};

Observed& observed() {
  static Observed one;
  return one;
}

}  // namespace penstock::torch::testing

extern "C" {

penstock_status* penstock_set_learning_rates(penstock_set* set, const double* learning_rates,
                                             uint64_t n_gradients) {
  using Function = decltype(&penstock_set_learning_rates);
  static const auto next =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "penstock_set_learning_rates"));
  std::vector<double>& rates = penstock::torch::testing::observed().learning_rates;
  rates.insert(rates.end(), learning_rates, learning_rates + n_gradients);
  return next(set, learning_rates, n_gradients);
}

penstock_status* penstock_gradient_ready(penstock_set* set, uint64_t index,
                                         const penstock_tensor* tensor, void* stream) {
  using Function = decltype(&penstock_gradient_ready);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "penstock_gradient_ready"));
  ++penstock::torch::testing::observed().ready;
  return next(set, index, tensor, stream);
}

penstock_status* penstock_set_momentum(penstock_set* set) {
  using Function = decltype(&penstock_set_momentum);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "penstock_set_momentum"));
  ++penstock::torch::testing::observed().momentum;
  return next(set);
}

penstock_status* penstock_results_gone(penstock_set* set, const uint8_t* gone,
                                       uint64_t n_gradients) {
  using Function = decltype(&penstock_results_gone);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "penstock_results_gone"));
  ++penstock::torch::testing::observed().looks;
  return next(set, gone, n_gradients);
}
}
