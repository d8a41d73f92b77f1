// See clipping.hpp.
#include <kernels/cuda/clipping.hpp>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/reduce.hpp>

#include <cmath>
#include <utility>

namespace penstock::kernels::cuda {
namespace {

// ---- The norm ----

__device__ double unscaled(double square, double scale) {
  return square / (scale * scale);
}

__global__ void __launch_bounds__(kWarp)
    write_square(const double* square, double scale, float* result) {
  if (threadIdx.x == 0) *result = static_cast<float>(unscaled(*square, scale));
}

constexpr uint64_t kTilesOffset = 64;

// Queues the sum of squares into the first word of the workspace.
int32_t queue_square(const float* x, uint64_t n, const Workspace& workspace, void* stream) {
  if (workspace.data == nullptr || !aligned(workspace.data, 64) ||
      workspace.bytes < square_norm_workspace_bytes(n))
    return cudaErrorInvalidValue;
  const Workspace tiles{static_cast<char*>(workspace.data) + kTilesOffset,
                        workspace.bytes - kTilesOffset};
  return sum_of_squares(x, n, static_cast<double*>(workspace.data), tiles, stream);
}

// ---- The clipped gradient ----

struct KnownClip {
  Clip clip;
  __device__ Clip operator()() const { return clip; }
};

struct ClipToNorm {
  const double* square;
  double scale, most;
  __device__ Clip operator()() const {
    return Clip::to_norm(std::sqrt(unscaled(*square, scale)), most);
  }
};

// The gradient is unscaled before it is clipped, so the fold itself must not unscale it.
template <uint32_t kForm, typename FindClip>
struct CompensateClipped {
  using In = FoldInput;
  using Facts = Clip;
  Fold fold;
  float unscale;
  FindClip find;
  __device__ Clip facts(uint64_t) const { return find(); }
  __device__ In load(uint64_t i) const { return load_fold<kForm>(fold, i); }
  __device__ void store(uint64_t i, In in, const Clip& clip) const {
    in.grad = clip(in.grad * unscale);
    const float work = apply_fold<kForm>(fold, in);
    store_fold<kForm>(fold, i, work, in);
  }
};

template <typename FindClip>
int32_t queue_compensate(Fold fold, const FindClip& find, uint64_t n, void* stream) {
  const float unscale = std::exchange(fold.unscale, 1.0f);
  Queue queue(stream);
  with_form(fold.form, [&]<uint32_t kForm>() {
    if constexpr (kForm != PENSTOCK_FORM_NONE)
      each_element(queue, CompensateClipped<kForm, FindClip>{fold, unscale, find}, n);
  });
  return queue.error();
}

}  // namespace

int32_t square_norm(const float* x, uint64_t n, double scale, float* result, Workspace workspace,
                    void* stream) noexcept {
  if (result == nullptr) return cudaErrorInvalidValue;
  const int32_t error = queue_square(x, n, workspace, stream);
  if (error != cudaSuccess) return error;
  Queue queue(stream);
  queue.run<write_square>(1, kWarp, static_cast<const double*>(workspace.data), scale, result);
  return queue.error();
}

int32_t compensate_clipped(const Fold& fold, const Clip& clip, uint64_t n, void* stream) noexcept {
  if (!can_fold(fold)) return cudaErrorInvalidValue;
  return queue_compensate(fold, KnownClip{clip}, n, stream);
}

int32_t compensate_clipped_to_norm(const Fold& fold, double scale, double most, uint64_t n,
                                   Workspace workspace, void* stream) noexcept {
  if (!can_fold(fold)) return cudaErrorInvalidValue;
  const int32_t error = queue_square(fold.grad, n, workspace, stream);
  if (error != cudaSuccess) return error;
  return queue_compensate(fold, ClipToNorm{static_cast<const double*>(workspace.data), scale, most},
                          n, stream);
}

}  // namespace penstock::kernels::cuda
