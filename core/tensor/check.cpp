#include "core/tensor/check.hpp"

#include "core/tensor/dtype.hpp"

namespace penstock {
namespace {

constexpr uint64_t kMostDimensions = 64;

// Row-major without gaps. Strides of dimensions with one element, and of tensors without elements,
// have no meaning.
bool is_contiguous(const penstock_tensor& tensor) {
  if (tensor.strides == nullptr || tensor.numel == 0) return true;
  uint64_t expected = 1;
  for (uint64_t i = tensor.n_dims; i-- > 0;) {
    if (tensor.shape[i] != 1 && static_cast<uint64_t>(tensor.strides[i]) != expected) return false;
    expected *= static_cast<uint64_t>(tensor.shape[i]);
  }
  return true;
}

}  // namespace

bool is_too_large(uint64_t numel, uint64_t element_bytes) {
  return numel > static_cast<uint64_t>(INT64_MAX) / element_bytes;
}

Status storage_fault(const penstock_tensor& tensor, const Place& expected) {
  if (!PENSTOCK_HAS_FIELD(&tensor, penstock_tensor, device_id))
    return invalid_argument("has struct_size {}, expected at least the size of ABI 0.1",
                            tensor.struct_size);
  if (const Place place = place_of(tensor); !(place == expected))
    return Status(
        expected.is_cpu() ? Code::unimplemented : Code::invalid_argument,
        fmt::format("lies on {}, expected {}; copy it there", place.name(), expected.name()));
  if (dtype_bytes(tensor.dtype) == 0)
    return invalid_argument("has dtype {}, expected an element type of penstock/base.h",
                            tensor.dtype);
  if (tensor.n_dims > kMostDimensions || (tensor.n_dims > 0 && tensor.shape == nullptr))
    return invalid_argument("has {} dimensions, expected a shape of at most {}", tensor.n_dims,
                            kMostDimensions);
  if (tensor.numel > 0 && tensor.data == nullptr)
    return invalid_argument("has no data for {} elements", tensor.numel);
  if (!is_contiguous(tensor))
    return invalid_argument("is not contiguous; make a contiguous copy of it");
  return {};
}

Status tensor_fault(const penstock_tensor& tensor) {
  PENSTOCK_TRY(storage_fault(tensor, Place()));
  uint64_t numel = 1;
  for (uint64_t i = 0; i < tensor.n_dims; ++i) {
    const int64_t size = tensor.shape[i];
    if (size < 0 || __builtin_mul_overflow(numel, static_cast<uint64_t>(size), &numel))
      return invalid_argument("has size {} in dimension {}, expected a size that fits into memory",
                              size, i);
  }
  if (is_too_large(numel, dtype_bytes(tensor.dtype)))
    return invalid_argument("has {} elements, too many", numel);
  if (numel != tensor.numel)
    return invalid_argument("has numel {}, its shape holds {} elements", tensor.numel, numel);
  return {};
}

}  // namespace penstock
