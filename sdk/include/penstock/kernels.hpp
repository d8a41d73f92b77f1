// Loads the device kernels that a plugin was linked with (penstock_add_plugin, ON_DEVICES). This
// happens in plan, because the plugin learns the device there, and no step waits yet for work of
// the device (kernels/cuda/loading.hpp).
#pragma once

#include <penstock/item.h>
#include <penstock/error.hpp>

namespace penstock::kernels::cuda {

// Null in a plugin that was not linked with device kernels.
[[gnu::weak, gnu::visibility("hidden")]] int32_t load_kernels(int32_t device,
                                                              const char** why) noexcept;

}  // namespace penstock::kernels::cuda

namespace penstock::sdk {

// On the devices where the items lie. DEVICE_ERROR.
inline void load_kernels_for(const penstock_item* const* items, uint64_t n_items) {
  if (kernels::cuda::load_kernels == nullptr) return;
  for (uint64_t i = 0; i < n_items; ++i) {
    const penstock_tensor& grad = items[i]->grad;
    if (grad.device_type != PENSTOCK_DEVICE_CUDA) continue;
    const char* why = "";
    const int32_t error = kernels::cuda::load_kernels(grad.device_id, &why);
    if (error != 0)
      throw device_error("cuda:", grad.device_id, " cannot load the kernels of this plugin: ", why,
                         " (error ", error, ")");
  }
}

}  // namespace penstock::sdk
