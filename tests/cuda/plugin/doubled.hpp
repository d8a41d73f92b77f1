// The kernel of the plugin beside this file.
#pragma once

#include <cstdint>

// values = values * factor + others, on the device, in the order of `stream`.
void queue_scale_and_add(float* values, const float* others, float factor, uint64_t n,
                         void* stream);
