// Devices and streams of torch.

#include "devices.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace penstock::torch {
namespace {

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream default_stream(const at::Device& device) {
  return c10::Stream(c10::Stream::DEFAULT, device);
}

void run_after(std::optional<c10::Event>& event, const c10::Stream& later,
               const c10::Stream& earlier) {
  if (!event) event.emplace(earlier.device_type());
  event->record(earlier);
  event->block(later);
}

}  // namespace

std::optional<Place> place_of(const at::Device& device) {
  if (device.is_cpu()) return Place{};
  if (device.is_cuda()) return Place{PENSTOCK_DEVICE_CUDA, device.index()};
  return std::nullopt;
}

void StreamRelay::default_after_current(const at::Device& device) {
  const c10::Stream current = current_stream(device);
  if (current != default_stream(device)) run_after(event_, default_stream(device), current);
}

void StreamRelay::current_after_default(const at::Tensor& tensor) {
  const c10::Stream current = current_stream(tensor.device());
  if (current != default_stream(tensor.device()))
    run_after(event_, current, default_stream(tensor.device()));
  tensor.record_stream(current);
}

}  // namespace penstock::torch
