// See select.hpp: plans the workspace and queues the kernels of select.cuh.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/scan.cuh>
#include <kernels/cuda/select.cuh>
#include <kernels/cuda/select.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint64_t kMostEntries = 0xffffffffu;

template <uint32_t kForm>
struct Compensate {
  using In = FoldInput;
  using Facts = NoFacts;
  Fold fold;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ In load(uint64_t i) const { return load_fold<kForm>(fold, i); }
  __device__ void store(uint64_t i, In in, NoFacts) const {
    const float work = apply_fold<kForm>(fold, in);
    store_fold<kForm>(fold, i, work, in);
  }
};

void queue_compensate(Queue& queue, const Fold* fold, uint64_t n) {
  if (fold == nullptr) return;
  with_form(fold->form, [&]<uint32_t kForm>() {
    if constexpr (kForm != PENSTOCK_FORM_NONE) each_element(queue, Compensate<kForm>{*fold}, n);
  });
}

// What is asked of a selection.
struct Request {
  const float* x;
  uint64_t n;
  uint64_t k;
  const float* threshold;  // null: the k largest
  uint32_t* indices;
  float* values;
  float* work;      // null: nothing is taken out
  uint64_t* count;  // null: it is k
  const Fold* fold;
  uint64_t least = 0;  // where fewer reach the threshold, the `instead` largest
  uint64_t instead = 0;
  Reached* reached = nullptr;
  Zeros zeros = Zeros::kNeverReach;
};

bool legal(const Request& request, const Workspace& workspace) {
  if (request.n > kMostEntries) return false;
  if (request.fold != nullptr && (!can_fold(*request.fold) || request.fold->work != request.x))
    return false;
  if (request.count == nullptr && request.k > request.n) return false;
  if (request.count != nullptr && request.threshold == nullptr) return false;
  if (request.n == 0 || request.k == 0) return true;
  return request.x != nullptr && request.indices != nullptr && workspace.data != nullptr &&
         aligned(workspace.data, 64) &&
         workspace.bytes >= select_workspace_bytes(request.n, request.k);
}

void queue_bound(Queue& queue, const Selection& s, const Request& request) {
  const uint64_t rank = sample_rank(request.n, request.k);
  if (request.threshold != nullptr || request.n <= kAlwaysAll || rank > kSamples)
    return queue.run(set_bound, 1, kWarp, s, request.threshold, 0);
  const Fold fold = request.fold == nullptr ? Fold{} : *request.fold;
  with_form(fold.form, [&]<uint32_t kForm>() {
    queue.run(find_sampled_bound<kForm>, 1, kSampleThreads, s, fold, static_cast<uint32_t>(rank));
  });
}

void queue_digits(Queue& queue, const Selection& s) {
  const uint64_t blocks =
      std::min<uint64_t>(kDigitBlocks, pieces(s.n, uint64_t{4} * kDigitThreads));
  queue.run(find_digit<0>, blocks, kDigitThreads, s);
  queue.run(find_digit<1>, blocks, kDigitThreads, s);
  queue.run(find_digit<2>, blocks, kDigitThreads, s);
}

int32_t select(const Request& request, const Workspace& workspace, void* stream) {
  if (!legal(request, workspace)) return cudaErrorInvalidValue;
  Queue queue(stream);
  if (request.n == 0 || request.k == 0) {
    queue_compensate(queue, request.fold, request.n);
    if (request.count != nullptr) queue.zero(request.count, sizeof(uint64_t));
    return queue.error();
  }
  if (request.threshold == nullptr && request.k == request.n) {
    queue_compensate(queue, request.fold, request.n);
    queue.run(write_everything, pieces(request.n, kElementThreads), kElementThreads, request.x,
              request.n, request.indices, request.values, request.work);
    return queue.error();
  }
  Selection s = plan_selection(request.x, 1, request.n, std::min(request.n, request.k),
                               request.threshold != nullptr, workspace.data)
                    .selection;
  s.least = static_cast<uint32_t>(request.least);
  s.instead = static_cast<uint32_t>(request.instead);
  s.reached = request.reached;
  s.zeros_reach_zero = request.zeros == Zeros::kReachZero;
  queue.zero(s.state, sizeof(SelectState));
  queue_bound(queue, s, request);
  const Fold fold = request.fold == nullptr ? Fold{} : *request.fold;
  with_form(fold.form, [&]<uint32_t kForm>() {
    queue.run(collect<kForm>, s.n_tiles, kCollectThreads, s, fold);
  });
  queue_digits(queue, s);
  const uint64_t blocks = pieces(s.n_tiles, kTileWarps);
  queue.run(count_chosen, blocks, kTileThreads, s);
  queue.run(scan_tiles, 1, kScanThreads, s.chosen, s.n_tiles, nullptr);
  queue.run(write_chosen, blocks, kTileThreads, s, request.indices, request.values, request.work,
            request.count);
  return queue.error();
}

}  // namespace

uint64_t select_workspace_bytes(uint64_t n, uint64_t k) noexcept {
  if (n == 0 || k == 0 || n > kMostEntries) return 0;
  return plan_selection(nullptr, 1, n, std::min(n, k), false, nullptr).bytes;
}

int32_t select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                       Workspace workspace, void* stream, const Fold* fold) noexcept {
  return select({x, n, k, nullptr, indices, values, nullptr, nullptr, fold}, workspace, stream);
}

int32_t take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                     Workspace workspace, void* stream, const Fold* fold) noexcept {
  return select({work, n, k, nullptr, indices, values, work, nullptr, fold}, workspace, stream);
}

int32_t select_above(const float* x, uint64_t n, const float* threshold, uint64_t capacity,
                     uint32_t* indices, float* values, uint64_t* count, Workspace workspace,
                     void* stream, const Fold* fold, Zeros zeros) noexcept {
  if (threshold == nullptr || count == nullptr) return cudaErrorInvalidValue;
  Request request{x, n, capacity, threshold, indices, values, nullptr, count, fold};
  request.zeros = zeros;
  return select(request, workspace, stream);
}

int32_t take_above(float* work, uint64_t n, const float* threshold, uint64_t capacity,
                   uint32_t* indices, float* values, uint64_t* count, Workspace workspace,
                   void* stream, const Fold* fold, Zeros zeros) noexcept {
  if (threshold == nullptr || count == nullptr) return cudaErrorInvalidValue;
  Request request{work, n, capacity, threshold, indices, values, work, count, fold};
  request.zeros = zeros;
  return select(request, workspace, stream);
}

int32_t select_near(float* work, uint64_t n, const float* threshold, const Band& band, bool taken,
                    uint32_t* indices, float* values, uint64_t* count, Reached* reached,
                    Workspace workspace, void* stream) noexcept {
  if (threshold == nullptr || count == nullptr || reached == nullptr || n == 0 || band.least == 0 ||
      band.target == 0 || band.target > n || band.most < band.target)
    return cudaErrorInvalidValue;
  return select({work, n, band.most, threshold, indices, values, taken ? work : nullptr, count,
                 nullptr, band.least, band.target, reached},
                workspace, stream);
}

int32_t kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k, float* magnitude,
                      Workspace workspace, void* stream) noexcept {
  if (n > kMostEntries || k == 0 || k > n || x == nullptr || magnitude == nullptr ||
      workspace.data == nullptr || !aligned(workspace.data, 64) ||
      workspace.bytes < select_workspace_bytes(n, k))
    return cudaErrorInvalidValue;
  Selection s = plan_selection(x, stride, n, k, false, workspace.data).selection;
  s.capacity = 0;
  Queue queue(stream);
  queue.zero(s.state, sizeof(SelectState));
  queue.run(set_bound, 1, kWarp, s, nullptr, 1);  // more than there is room for: all compete
  queue_digits(queue, s);
  queue.run(write_magnitude, 1, kWarp, s, magnitude);
  return queue.error();
}

int32_t compensate(const Fold& fold, uint64_t n, void* stream) noexcept {
  if (!can_fold(fold)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue_compensate(queue, &fold, n);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
