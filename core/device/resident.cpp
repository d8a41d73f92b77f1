#include "core/device/resident.hpp"

namespace penstock {

Status Resident::take(void* storage, void* stream) {
  storage_ = static_cast<std::byte*>(storage);
  is_zero_ = false;
  taken_from_ = stream;
  taken_at_ = ++takes_;
  return written_.record(stream);
}

Status Resident::take_zeros(void* storage) {
  is_zero_ = true;
  if (storage == nullptr && substitute_.data() == nullptr) {
    PENSTOCK_ASSIGN(substitute_, DeviceMemory::make(stream_.device(), bytes_));
  }
  storage_ = static_cast<std::byte*>(storage != nullptr ? storage : substitute_.data());
  taken_from_ = nullptr;
  taken_at_ = storage != nullptr ? ++takes_ : 0;
  return storage != nullptr ? written_.record(nullptr) : Status();
}

Status Resident::begin(uint64_t first_byte, uint64_t bytes) const {
  if (!is_zero_) return {};
  // No other stream orders this after the results of the last step, so this waits for them.
  PENSTOCK_TRY(returned_.hold_back(inspection_.handle()));
  return inspection_.clear(storage_ + first_byte, bytes);
}

Result<std::unique_ptr<Residents>> Residents::make(const Device& device,
                                                   std::span<const uint64_t> bytes) {
  PENSTOCK_ASSIGN(Stream inspection, Stream::make(device, true));
  PENSTOCK_ASSIGN(Stream stream, Stream::make(device, true));
  std::unique_ptr<Residents> made(new Residents(std::move(inspection), std::move(stream)));
  for (const uint64_t of_one : bytes) {
    PENSTOCK_ASSIGN(Event written, Event::make(device));
    PENSTOCK_ASSIGN(Event returned, Event::make(device));
    made->residents_.emplace_back(made->inspection_, made->stream_, made->takes_, of_one,
                                  std::move(written), std::move(returned));
  }
  return made;
}

}  // namespace penstock
