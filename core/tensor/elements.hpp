// The few element-wise operations of the core: conversion to and from float32, scaling, and checks
// for non-finite values.
#pragma once

#include "core/tensor/dtype.hpp"

#include <cstdint>

namespace penstock {

// float32[count] <- elements of a floating dtype, and back (rounding to nearest even).
void to_float32(uint32_t dtype, const void* source, float* target, uint64_t count);
void from_float32(uint32_t dtype, const float* source, void* target, uint64_t count);

// elements *= factor; integers through double, truncated.
void scale(uint32_t dtype, void* elements, uint64_t count, double factor);

// elements /= divisor: floating values are multiplied by its reciprocal; integers are truncated,
// and exact if they are multiples of it.
void divide(uint32_t dtype, void* elements, uint64_t count, uint32_t divisor);

// False if an element of a floating dtype is NaN or infinite; true for integers.
bool all_finite(uint32_t dtype, const void* elements, uint64_t count);

// Sets every element of a floating dtype to NaN, and of an integer dtype to 0.
void fill_nan(uint32_t dtype, void* elements, uint64_t count);

}  // namespace penstock
