#include "core/bucket/on_device/device_place.hpp"

#include "core/bucket/on_device/device.hpp"
#include "core/bucket/on_device/direct.hpp"
#include "core/bucket/wire.hpp"

#include <cstring>

namespace penstock {
namespace {

std::byte* begin_of(const DeviceMemory& memory) {
  return static_cast<std::byte*>(memory.data());
}

Status check_indices(const BucketRun& bucket, const MessageRun& message, uint32_t rank,
                     const ItemRun& item, PayloadStorage& payload) {
  const auto* indices = static_cast<const uint32_t*>(payload.section(0).data);
  const uint64_t count = payload.section(0).count;
  for (uint64_t j = 0; j < count; ++j)
    if (indices[j] >= item.range.numel || (j > 0 && indices[j] <= indices[j - 1]))
      return bad_payload(bucket, message, rank, &item,
                         fmt::format("has index {} at entry {}, expected ascending ones below {}",
                                     indices[j], j, item.range.numel));
  return {};
}

}  // namespace

DevicePlace::DevicePlace(Residents& residents)
    : WorkPlace(exec_on(residents)), residents_(residents) {}

// ---- when buckets are made ----

Result<WorkMemory> DevicePlace::make(uint64_t bytes) const {
  PENSTOCK_ASSIGN(DeviceMemory made, DeviceMemory::make(device(), bytes));
  const auto held = std::make_shared<DeviceMemory>(std::move(made));
  return WorkMemory(bytes, begin_of(*held), begin_of(*held), held);
}

Result<WorkMemory> DevicePlace::make_for(const Link& link, uint64_t bytes) const {
  if (link.is_announced) return make(bytes);
  struct Both {
    PinnedMemory pinned;
    DeviceMemory twin;
  };
  const auto held = std::make_shared<Both>();
  PENSTOCK_ASSIGN(held->pinned, PinnedMemory::make(device(), bytes));
  PENSTOCK_ASSIGN(held->twin, DeviceMemory::make(device(), bytes));
  std::memset(held->pinned.data(), 0, bytes);
  return WorkMemory(bytes, held->pinned.data(), begin_of(held->twin), held);
}

void DevicePlace::place(ItemRun& item) const {
  for (penstock_item* c : {&item.for_compressor, &item.for_memory})
    for (penstock_tensor* tensor : {&c->grad, &c->work, &c->out}) {
      tensor->device_type = PENSTOCK_DEVICE_CUDA;
      tensor->device_id = device().id();
    }
}

Link& DevicePlace::link_of(const Coding& coding, const ItemRun& item, uint32_t round) const {
  return goes_directly(coding, item, round) ? coding.links->direct : coding.links->transport;
}

Link& DevicePlace::link_of_values(LevelLinks& links) const {
  return links.direct;
}

bool DevicePlace::sends_from_here(const Link& link) const {
  return link.is_announced;
}

std::string_view DevicePlace::way(const BucketRun& bucket, const Coding& coding,
                                  const ItemRun& item) const {
  return sends_directly(bucket, coding, item) ? "from device to device" : "";
}

void DevicePlace::point(penstock_section& section, const WorkMemory& memory,
                        std::byte* here) const {
  section.data = memory.twin_of(here);
  section.on_host = memory.is_its_twin() ? nullptr : here;
}

void work_on(SetContext& set, Residents& residents, std::span<Gradient* const> gradients) {
  set.on_device.residents = &residents;
  set.elsewhere = std::make_unique<DevicePlace>(residents);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i]->on_device.side = gradients[i]->on_device.resident = &residents.resident(i);
    gradients[i]->work_place = set.elsewhere.get();
  }
}

// ---- values ----

Status DevicePlace::clear(void* values, uint64_t bytes) const {
  return stream().clear(values, bytes);
}

Status DevicePlace::scale(uint32_t dtype, void* values, uint64_t count, double factor) const {
  return stream().scale(values, count, dtype, static_cast<float>(factor));
}

void DevicePlace::begin_copies(BucketRun& bucket) const {
  part_of(bucket).copies.clear();
}

// The elements must have at most 4 bytes.
void DevicePlace::copy(BucketRun& bucket, const void* source, void* target, uint64_t count,
                       uint64_t element) const {
  part_of(bucket).copies.push_back({source, target, count, uint32_t(element), 0});
}

Status DevicePlace::end_copies(BucketRun& bucket) const {
  return stream().copy_many(part_of(bucket).copies);
}

bool DevicePlace::load(BucketRun& bucket, size_t number) const {
  PieceRun& piece = bucket.pieces[number];
  piece.values = piece.widened ? piece.wide.data() : piece.storage();
  return part_of(bucket).flags[number] == 0;
}

Status DevicePlace::store(BucketRun& bucket, PieceRun& piece) const {
  const uint64_t numel = piece.piece.numel;
  Status status;
  if (bucket.is_void)
    status = stream().fill_nan(piece.values, numel, piece.dtype);
  else if (bucket.only_compensates && bucket.legs.front().kind.is_dense())
    status = clear(piece.values, numel * dtype_bytes(piece.dtype));  // otherwise compensate clears
  if (status.ok() && piece.widened)
    status = stream().narrow(static_cast<const float*>(piece.values), piece.storage(), numel,
                             piece.gradient->dtype);
  if (status.ok()) status = piece.gradient->on_device.resident->end();
  return named(std::move(status), *piece.gradient);
}

bool DevicePlace::take_sum(BucketRun& bucket, Coding&, size_t item) const {
  return part_of(bucket).sums[item] == 0;
}

float* DevicePlace::place_of_scalars(BucketRun& bucket, const MemoryCall& call, float*) const {
  return part_of(bucket).scalars.place(call.scalars_first);
}

// ---- payloads ----

Status DevicePlace::clear(const penstock_section& section, uint64_t bytes) const {
  if (section.on_host == nullptr) return clear(section.data, bytes);
  std::memset(const_cast<void*>(section.on_host), 0, bytes);
  return {};
}

const void* DevicePlace::sent(const MessageRun& message, const penstock_section& section) const {
  return message.send.of_twin(section.data);
}

void DevicePlace::moved(penstock_section& section, std::byte* target) const {
  section.on_host = target;
}

// The sections of the payload can be read where they have arrived, and point to the place where the
// device will find them: in the twin of the message, or, for the payload of this rank, where encode
// has written it.
Status DevicePlace::arrived(BucketRun& bucket, const MessageRun& message, uint32_t round,
                            uint32_t rank, ItemRun& item) const {
  PayloadStorage& payload = item.arrival(round, rank);
  if (payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE)
    PENSTOCK_TRY(check_indices(bucket, message, rank, item, payload));
  const bool is_own = rank == message.group_rank();
  for (size_t s = 0; s < payload.size(); ++s) {
    penstock_section& section = payload.section(s);
    section.on_host = section.data;
    section.data = is_own ? item.own[round].section(s).data : message.receive.twin_of(section.data);
  }
  return {};
}

}  // namespace penstock
