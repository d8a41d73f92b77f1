// torch's interface to the simulated CUDA devices (tests/device): the current stream, waits of one
// stream for another, and copies. This program has no CUDA part of torch, so it can pass CUDA
// tensors on but cannot compute with them.
#ifndef PENSTOCK_LIBTORCH_TESTS_SIMULATED_GUARD_HPP
#define PENSTOCK_LIBTORCH_TESTS_SIMULATED_GUARD_HPP

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <vector>

namespace penstock::torch::testing {

// A stream of cuda:0 that keeps no order with other streams.
c10::Stream new_stream();
// The handle of a stream, which c10::Stream's headers do not give; null for the default stream.
void* handle_of(const c10::Stream& stream);

// Makes `stream` the current stream of cuda:0 in this scope.
class OnStream {
 public:
  explicit OnStream(const c10::Stream& stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  c10::Stream before_;
};

// A tensor of cuda:0, in memory of its own that is never freed.
at::Tensor on_device(const std::vector<std::int64_t>& shape);
// Queues a copy of `values` into `tensor` on the current stream. The device carries the copy out as
// late as it can.
void write(const at::Tensor& tensor, const at::Tensor& values);
// The values that work on the current stream sees. Waits for the stream.
at::Tensor read(const at::Tensor& tensor);

// The streams for which tensors were recorded with torch's allocator since the last call, in order.
std::vector<c10::Stream> recorded();

}  // namespace penstock::torch::testing

#endif  // PENSTOCK_LIBTORCH_TESTS_SIMULATED_GUARD_HPP
