// See select.hpp. Plans the workspace and queues the kernels of select.cuh and select_write.cuh.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/select.cuh>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/select_write.cuh>

#include <bit>

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

bool has_workspace(const Workspace& workspace, uint64_t bytes) {
  return workspace.data != nullptr && aligned(workspace.data, 64) && workspace.bytes >= bytes;
}

bool legal(const SelectRequest& request) {
  if (request.n > kMostEntries) return false;
  if (request.fold.form != PENSTOCK_FORM_NONE &&
      (!can_fold(request.fold) || request.fold.work != request.x))
    return false;
  if (request.work != nullptr && request.work != request.x) return false;
  if (request.count == nullptr && (request.k > request.n || request.least > 0)) return false;
  if (request.least > 0 &&
      (request.instead == 0 || request.instead > std::min(request.n, request.k)))
    return false;
  if (request.n == 0) return true;
  return request.x != nullptr && (request.k == 0 || request.indices != nullptr);
}

bool legal(std::span<const SelectRequest> requests, const Workspace& workspace) {
  uint64_t bytes = 0, tiles = 0;
  for (const SelectRequest& request : requests) {
    if (!legal(request)) return false;
    bytes += select_workspace_bytes(request.n, request.k);
    tiles += pieces(request.n, kCollectTile);
  }
  return requests.empty() || (has_workspace(workspace, bytes) && tiles <= kMostBlocks);
}

// The rank of the bound in the sample; 0 if no sample is drawn.
uint32_t sample_rank_of(const SelectRequest& request) {
  if (request.count != nullptr || request.n <= kAlwaysAll || request.k == 0) return 0;
  const uint64_t rank = sample_rank(request.n, request.k);
  return rank > kSamples ? 0 : static_cast<uint32_t>(rank);
}

Selection selection_of(const SelectRequest& request, Parts& parts) {
  Selection s{};
  s.x = request.x;
  s.stride = 1;
  s.fold = request.fold;
  s.indices = request.indices;
  s.values = request.values;
  s.work = request.work;
  s.count = request.count;
  s.threshold = request.threshold;
  s.known_threshold = request.known_threshold;
  s.reached = request.reached;
  s.least = static_cast<uint32_t>(request.least);
  s.instead = static_cast<uint32_t>(request.instead);
  s.sample_rank = sample_rank_of(request);
  s.zeros_reach_zero = request.zeros == Zeros::kReachZero;
  s.zeros_fill_instead = request.zeros == Zeros::kFillInstead;
  plan_selection(parts, request.n, request.k, s);
  return s;
}

// Totals over all selections of the units that kernels number.
struct Totals {
  uint32_t tiles = 0;
  uint32_t digit_blocks = 0;
};

// Launches begin_selections, each time for as many selections as fit in a launch.
class Beginning {
 public:
  Beginning(Queue& queue, const Selections& table) : queue_(queue), table_(table) {}

  void add(const Selection& s) {
    begun_.all[n_] = s;
    begun_.first_tiles[n_] = totals_.tiles;
    begun_.first_digit_blocks[n_] = totals_.digit_blocks;
    totals_.tiles += s.n_tiles;
    totals_.digit_blocks += digit_blocks(s.n, s.capacity);
    if (++n_ == kMostBegun) launch();
  }
  Totals end() {
    launch();
    return totals_;
  }

 private:
  void launch() {
    queue_.run<begin_selections>(n_, kSampleThreads, begun_, table_);
    begun_.first += n_;
    n_ = 0;
  }

  Queue& queue_;
  Selections table_;
  BegunSelections begun_{};
  uint32_t n_ = 0;
  Totals totals_;
};

// A kernel for one form needs only the registers of this form, and most calls have one form.
void queue_collect(Queue& queue, std::span<const SelectRequest> requests, const Selections& table,
                   const Totals& totals) {
  uint32_t forms = 0;
  for (const SelectRequest& request : requests)
    if (request.n > 0) forms |= 1u << request.fold.form;
  if (!std::has_single_bit(forms))
    return queue.run<collect<kEachForm>>(totals.tiles, kCollectThreads, table);
  with_form(static_cast<uint32_t>(std::countr_zero(forms)), [&]<uint32_t kForm>() {
    queue.run<collect<kForm>>(totals.tiles, kCollectThreads, table);
  });
}

void queue_digits(Queue& queue, const Selections& table, const Totals& totals) {
  queue.run<find_digit<0>>(totals.digit_blocks, kDigitThreads, table);
  queue.run<find_digit<1>>(totals.digit_blocks, kDigitThreads, table);
  queue.run<find_digit<2>>(totals.digit_blocks, kDigitThreads, table);
}

SelectRequest largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                      const Fold* fold) {
  SelectRequest request{x, n, k, indices, values};
  if (fold != nullptr) request.fold = *fold;
  return request;
}

SelectRequest above(const float* x, uint64_t n, const float* threshold, uint64_t capacity,
                    uint32_t* indices, float* values, uint64_t* count, const Fold* fold,
                    Zeros zeros) {
  SelectRequest request = largest(x, n, capacity, indices, values, fold);
  request.threshold = threshold;
  request.count = count;
  request.zeros = zeros;
  return request;
}

}  // namespace

uint64_t select_workspace_bytes(uint64_t n, uint64_t k) noexcept {
  if (n > kMostEntries) return 0;
  Parts parts(nullptr);
  Selection s{};
  (void)plan_table(parts, 1);
  plan_selection(parts, n, k, s);
  return parts.bytes();
}

int32_t select(std::span<const SelectRequest> requests, Workspace workspace,
               void* stream) noexcept {
  if (!legal(requests, workspace)) return cudaErrorInvalidValue;
  Queue queue(stream);
  Parts parts(workspace.data);
  const Selections table = plan_table(parts, requests.size());
  Beginning beginning(queue, table);
  for (const SelectRequest& request : requests) beginning.add(selection_of(request, parts));
  const Totals totals = beginning.end();
  queue_collect(queue, requests, table, totals);
  queue_digits(queue, table, totals);
  const uint64_t blocks = pieces(totals.tiles, tiles_of_block(totals.tiles));
  queue.run<count_chosen>(blocks, kTileThreads, table, totals.tiles);
  queue.run<scan_chosen>(totals.tiles == 0 ? 0 : table.n, kScanThreads, table);
  queue.run<write_chosen>(blocks, kTileThreads, table, totals.tiles);
  return queue.error();
}

int32_t select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                       Workspace workspace, void* stream, const Fold* fold) noexcept {
  const SelectRequest request = largest(x, n, k, indices, values, fold);
  return select({&request, 1}, workspace, stream);
}

int32_t take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                     Workspace workspace, void* stream, const Fold* fold) noexcept {
  SelectRequest request = largest(work, n, k, indices, values, fold);
  request.work = work;
  return select({&request, 1}, workspace, stream);
}

int32_t select_above(const float* x, uint64_t n, const float* threshold, uint64_t capacity,
                     uint32_t* indices, float* values, uint64_t* count, Workspace workspace,
                     void* stream, const Fold* fold, Zeros zeros) noexcept {
  if (threshold == nullptr || count == nullptr) return cudaErrorInvalidValue;
  const SelectRequest request =
      above(x, n, threshold, capacity, indices, values, count, fold, zeros);
  return select({&request, 1}, workspace, stream);
}

int32_t take_above(float* work, uint64_t n, const float* threshold, uint64_t capacity,
                   uint32_t* indices, float* values, uint64_t* count, Workspace workspace,
                   void* stream, const Fold* fold, Zeros zeros) noexcept {
  if (threshold == nullptr || count == nullptr) return cudaErrorInvalidValue;
  SelectRequest request = above(work, n, threshold, capacity, indices, values, count, fold, zeros);
  request.work = work;
  return select({&request, 1}, workspace, stream);
}

int32_t select_near(float* work, uint64_t n, const float* threshold, const Band& band, bool taken,
                    uint32_t* indices, float* values, uint64_t* count, Reached* reached,
                    Workspace workspace, void* stream, Zeros zeros) noexcept {
  if (threshold == nullptr || count == nullptr || reached == nullptr || n == 0 || band.least == 0)
    return cudaErrorInvalidValue;
  SelectRequest request =
      above(work, n, threshold, band.most, indices, values, count, nullptr, zeros);
  if (taken) request.work = work;
  request.least = band.least;
  request.instead = band.target;
  request.reached = reached;
  return select({&request, 1}, workspace, stream);
}

int32_t kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k, float* magnitude,
                      Workspace workspace, void* stream) noexcept {
  if (n > kMostEntries || k == 0 || k > n || stride >> 32 != 0 || x == nullptr ||
      magnitude == nullptr || !has_workspace(workspace, select_workspace_bytes(n, k)))
    return cudaErrorInvalidValue;
  Parts parts(workspace.data);
  const Selections table = plan_table(parts, 1);
  Selection s{};
  s.x = x;
  s.stride = static_cast<uint32_t>(stride);
  plan_selection(parts, n, k, s);
  s.capacity = 0;
  Queue queue(stream);
  Beginning beginning(queue, table);
  beginning.add(s);
  queue_digits(queue, table, beginning.end());
  queue.run<write_magnitude>(1, kWarp, table, magnitude);
  return queue.error();
}

int32_t compensate(const Fold& fold, uint64_t n, void* stream) noexcept {
  if (!can_fold(fold)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_form(fold.form, [&]<uint32_t kForm>() {
    if constexpr (kForm != PENSTOCK_FORM_NONE) each_element(queue, Compensate<kForm>{fold}, n);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
