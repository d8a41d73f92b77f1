// torch's view of the simulated CUDA devices (tests/device): which stream is current, and how one
// waits for another. torch itself has no part for CUDA in this program, so that its tensors of CUDA
// cannot be computed with, only handed on.
#ifndef PENSTOCK_LIBTORCH_TESTS_SIMULATED_GUARD_HPP
#define PENSTOCK_LIBTORCH_TESTS_SIMULATED_GUARD_HPP

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <vector>

namespace penstock::torch::testing {

// A stream of cuda:0 that keeps no order with others.
c10::Stream new_stream();
// What c10::Stream's headers do not tell: null for the default stream.
void* handle_of(const c10::Stream& stream);

// The current stream of cuda:0, in this scope.
class OnStream {
 public:
  explicit OnStream(const c10::Stream& stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  c10::Stream before_;
};

// A tensor of cuda:0, in memory of its own that is never given back.
at::Tensor on_device(const std::vector<std::int64_t>& shape);
// Queues a copy on the current stream. The values are there when the device comes to it, which it
// does as late as it can.
void write(const at::Tensor& tensor, const at::Tensor& values);
// What work on the current stream sees. Waits.
at::Tensor read(const at::Tensor& tensor);

// The streams for which tensors were recorded with torch's allocator since the last call, in order.
std::vector<c10::Stream> recorded();

}  // namespace penstock::torch::testing

#endif  // PENSTOCK_LIBTORCH_TESTS_SIMULATED_GUARD_HPP
