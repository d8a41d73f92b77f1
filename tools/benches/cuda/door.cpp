// C functions for torch_topk.py, which has its arrays in torch's tensors.
#include <kernels/cuda/select.hpp>

#define DOOR extern "C" __attribute__((visibility("default")))

namespace cuda = penstock::kernels::cuda;

DOOR uint64_t penstock_cuda_select_bytes(uint64_t n, uint64_t k) {
  return cuda::select_workspace_bytes(n, k);
}

DOOR int32_t penstock_cuda_select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices,
                                          float* values, void* workspace, uint64_t bytes,
                                          void* stream) {
  return cuda::select_largest(x, n, k, indices, values, {workspace, bytes}, stream);
}
