// See dense.hpp.
#include <kernels/cuda/dense.hpp>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/fold.cuh>

namespace penstock::kernels::cuda::dense {
namespace {

struct Scale {
  using In = float;
  using Facts = NoFacts;
  const float* source;
  float* target;
  float scale;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, float x, NoFacts) const { target[i] = x * scale; }
};

// Sends the work of a fold, after compensating it unless kForm is NONE.
template <uint32_t kForm, Left kLeft>
struct SendAll {
  static constexpr bool kFolds = kForm != PENSTOCK_FORM_NONE;
  using In = FoldInput;
  using Facts = NoFacts;
  Fold fold;
  float* sent;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ In load(uint64_t i) const {
    if constexpr (kFolds)
      return load_fold<kForm>(fold, i);
    else
      return {fold.work[i], 0, 0};
  }
  __device__ void store(uint64_t i, In in, NoFacts) const {
    float work = in.work;
    if constexpr (kFolds) work = apply_fold<kForm>(fold, in);
    sent[i] = work;
    const float rest = kLeft == Left::kNothing ? 0.0f : work;
    if constexpr (kFolds)
      store_fold<kForm>(fold, i, rest, in);
    else if constexpr (kLeft == Left::kNothing)
      fold.work[i] = rest;
  }
};

bool has_array(const void* array, uint64_t count) {
  return count == 0 || array != nullptr;
}

}  // namespace

int32_t copy(const void* source, void* target, uint64_t bytes, void* stream) noexcept {
  if (!has_array(source, bytes) || !has_array(target, bytes)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.copy(source, target, bytes);
  return queue.error();
}

int32_t clear(void* target, uint64_t bytes, void* stream) noexcept {
  if (!has_array(target, bytes)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.zero(target, bytes);
  return queue.error();
}

int32_t copy_scaled(const float* source, float* target, uint64_t count, float scale,
                    void* stream) noexcept {
  if (!has_array(source, count) || !has_array(target, count)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, Scale{source, target, scale}, count);
  return queue.error();
}

int32_t send_all(float* work, float* sent, uint64_t count, Left left, void* stream,
                 const Fold* fold) noexcept {
  if (!has_array(work, count) || !has_array(sent, count)) return cudaErrorInvalidValue;
  if (count > 0 && fold != nullptr && (!can_fold(*fold) || fold->work != work))
    return cudaErrorInvalidValue;
  Fold first{};  // form NONE
  if (fold != nullptr) first = *fold;
  first.work = work;
  Queue queue(stream);
  with_form(first.form, [&]<uint32_t kForm>() {
    if (left == Left::kNothing)
      each_element(queue, SendAll<kForm, Left::kNothing>{first, sent}, count);
    else
      each_element(queue, SendAll<kForm, Left::kAll>{first, sent}, count);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda::dense
