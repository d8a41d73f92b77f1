// torch's interface to the simulated CUDA devices.

#include "simulated_guard.hpp"

#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstring>
#include <utility>

#include "core/device/device_table.h"

namespace penstock::torch::testing {
namespace {

std::vector<void*>& handles() {
  static std::vector<void*> all{nullptr};  // the default stream
  return all;
}

c10::StreamId& current_id() {
  static c10::StreamId id = 0;
  return id;
}

c10::Device cuda() {
  return {c10::kCUDA, 0};
}

c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, cuda(), id);
}

void check(std::int32_t error) {
  ASSERT_EQ(error, 0) << penstock_device.error_text(error);
}

// The guard of one device. All streams of the device belong to this thread.
class SimulatedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return cuda(); }
  c10::Device getDevice() const override { return cuda(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const noexcept override { return stream_of(current_id()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return stream_of(std::exchange(current_id(), stream.id()));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) check(penstock_device.event_create(0, event));
    check(penstock_device.event_record(0, *event, handle_of(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    check(penstock_device.event_wait(0, handle_of(stream), event));
  }
  bool queryEvent(void* event) const override {
    std::uint32_t done = 0;
    check(penstock_device.event_query(0, event, &done));
    return done != 0;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) (void)penstock_device.event_destroy(0, event);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, SimulatedGuard)

std::vector<c10::Stream>& all_recorded() {
  static std::vector<c10::Stream> all;
  return all;
}

void record_stream(at::Tensor&, c10::Stream stream) {
  all_recorded().push_back(stream);
}

// A copy between the host and the device, which waits like torch's copies of pageable memory.
at::Tensor& copy(at::Tensor& target, const at::Tensor& source, bool) {
  if (target.is_cpu())
    target.copy_(read(source));
  else
    write(target, source);
  return target;
}

}  // namespace

static void stand_in_for_kernels(::torch::Library& library) {
  library.impl("record_stream", record_stream);
  library.impl("copy_", copy);
}

c10::Stream new_stream() {
  void* handle = nullptr;
  check(penstock_device.stream_create(0, 0, &handle));
  handles().push_back(handle);
  return stream_of(static_cast<c10::StreamId>(handles().size() - 1));
}

void* handle_of(const c10::Stream& stream) {
  return handles().at(static_cast<std::size_t>(stream.id()));
}

OnStream::OnStream(const c10::Stream& stream)
    : before_(c10::impl::VirtualGuardImpl(c10::kCUDA).exchangeStream(stream)) {}
OnStream::~OnStream() {
  (void)c10::impl::VirtualGuardImpl(c10::kCUDA).exchangeStream(before_);
}

at::Tensor on_device(const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = sizeof(float);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  void* memory = nullptr;
  check(penstock_device.allocate(0, bytes, &memory));
  const auto options = at::TensorOptions().dtype(at::kFloat).device(cuda());
  return at::for_blob(memory, shape).options(options).target_device(cuda()).make_tensor();
}

void write(const at::Tensor& tensor, const at::Tensor& values) {
  const std::uint64_t bytes = values.nbytes();
  void* pinned = nullptr;
  check(penstock_device.host_allocate(0, bytes, &pinned));
  std::memcpy(pinned, values.contiguous().data_ptr(), bytes);
  check(penstock_device.copy_to_device(0, tensor.data_ptr(), pinned, bytes,
                                       handle_of(stream_of(current_id()))));
}

at::Tensor read(const at::Tensor& tensor) {
  void* const stream = handle_of(stream_of(current_id()));
  const std::uint64_t bytes = tensor.nbytes();
  void* pinned = nullptr;
  check(penstock_device.host_allocate(0, bytes, &pinned));
  check(penstock_device.copy_to_host(0, pinned, tensor.data_ptr(), bytes, stream));
  check(penstock_device.stream_wait(0, stream));
  at::Tensor values = at::empty(tensor.sizes(), at::kFloat);
  std::memcpy(values.data_ptr(), pinned, bytes);
  return values;
}

std::vector<c10::Stream> recorded() {
  return std::exchange(all_recorded(), {});
}

}  // namespace penstock::torch::testing

// The macro needs `torch` to be the library's namespace, not penstock::torch.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  penstock::torch::testing::stand_in_for_kernels(library);
}
