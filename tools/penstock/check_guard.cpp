#include "tools/penstock/check_guard.hpp"

#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace penstock::command {

namespace {

constexpr uint64_t kWallBytes = 4096;
constexpr unsigned char kWallByte = 0xA5;

template <typename T>
void reduce_as(uint32_t reduction, void* target, const void* source, uint64_t count) {
  auto* a = static_cast<T*>(target);
  const auto* b = static_cast<const T*>(source);
  for (uint64_t i = 0; i < count; ++i) {
    if (reduction == PENSTOCK_REDUCE_MIN)
      a[i] = std::min(a[i], b[i]);
    else if (reduction == PENSTOCK_REDUCE_MAX)
      a[i] = std::max(a[i], b[i]);
    else if (reduction == PENSTOCK_REDUCE_PRODUCT)
      a[i] = static_cast<T>(a[i] * b[i]);
    else
      a[i] = static_cast<T>(a[i] + b[i]);
  }
}

}  // namespace

GuardedBuffer::GuardedBuffer(uint64_t bytes)
    : storage_(new unsigned char[bytes + 2 * kWallBytes + 64]), bytes_(bytes) {
  const auto start = reinterpret_cast<uintptr_t>(storage_.get()) + kWallBytes;
  data_ = storage_.get() + kWallBytes + (64 - start % 64) % 64;
  std::memset(data_ - kWallBytes, kWallByte, kWallBytes);
  std::memset(data_, 0, bytes);
  std::memset(data_ + bytes, kWallByte, kWallBytes);
}

bool GuardedBuffer::intact() const {
  const auto whole = [](const unsigned char* wall) {
    return std::all_of(wall, wall + kWallBytes, [](unsigned char b) { return b == kWallByte; });
  };
  return whole(data_ - kWallBytes) && whole(data_ + bytes_);
}

void GuardedPayload::plan(const RoundNeed& round, int32_t rank) {
  storage_.shape(round, rank);
  buffers_.clear();
  for (size_t s = 0; s < round.sections.size(); ++s) {
    buffers_.emplace_back(round.sections[s].bytes());
    storage_.section(s).data = buffers_.back().data();
  }
}

void GuardedPayload::receive(const RoundNeed& round, GuardedPayload& sent, int32_t rank) {
  storage_.shape(round, rank);
  storage_.c()->kind = sent.c()->kind;
  buffers_.clear();
  for (size_t s = 0; s < round.sections.size(); ++s) {
    const penstock_section& from = sent.storage_.section(s);
    const uint64_t count = std::min(from.count, from.capacity);
    buffers_.emplace_back(count * dtype_bytes(from.dtype));
    std::memcpy(buffers_.back().data(), from.data, buffers_.back().bytes());
    storage_.section(s).data = buffers_.back().data();
    storage_.section(s).count = count;
  }
}

Status GuardedPayload::check_walls() const {
  for (size_t s = 0; s < buffers_.size(); ++s)
    if (!buffers_[s].intact())
      return internal("wrote beyond the {} bytes of section {} of a payload", buffers_[s].bytes(),
                      s);
  return {};
}

uint64_t Shape::numel() const {
  uint64_t product = 1;
  for (const int64_t size : sizes) product *= static_cast<uint64_t>(size);
  return product;
}

const std::vector<Shape>& awkward_shapes() {
  static const std::vector<Shape> shapes = [] {
    std::vector<Shape> all;
    for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000, 65537})
      all.push_back({std::to_string(n), {n}});
    for (const auto& [rows, cols] : {std::pair(1, 1), {1, 7}, {7, 1}, {33, 65}})
      all.push_back({fmt::format("{}x{}", rows, cols), {rows, cols}});
    return all;
  }();
  return shapes;
}

std::string_view input_name(Input input) {
  return input == Input::zeros ? "zeros" : input == Input::spike ? "one spike" : "heavy-tailed";
}

void fill_input(Input input, uint64_t rank, uint64_t step, uint64_t salt, float* values,
                uint64_t count) {
  std::fill_n(values, count, 0.0f);
  if (input == Input::zeros || count == 0) return;
  std::mt19937_64 random(salt * 1000003 + step * 1009 + rank);
  if (input == Input::spike) {
    values[random() % count] = rank % 2 == 0 ? 1e4f : -1e4f;  // within float16, also twice
    return;
  }
  std::normal_distribution<double> normal;
  for (uint64_t i = 0; i < count; ++i) {  // Student's t with one degree of freedom, cut off
    const double width = std::max(std::abs(normal(random)), 1e-3);
    values[i] = static_cast<float>(std::clamp(normal(random) / width, -1e3, 1e3));
  }
}

Status reduce(uint32_t dtype, uint32_t reduction, void* target, const void* source,
              uint64_t count) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      reduce_as<float>(reduction, target, source, count);
      return {};
    case PENSTOCK_FLOAT64:
      reduce_as<double>(reduction, target, source, count);
      return {};
    case PENSTOCK_FLOAT16:
    case PENSTOCK_BFLOAT16: {
      std::vector<float> a(count), b(count);
      to_float32(dtype, target, a.data(), count);
      to_float32(dtype, source, b.data(), count);
      reduce_as<float>(reduction, a.data(), b.data(), count);
      from_float32(dtype, a.data(), target, count);
      return {};
    }
    case PENSTOCK_INT8:
      reduce_as<int8_t>(reduction, target, source, count);
      return {};
    case PENSTOCK_UINT8:
      reduce_as<uint8_t>(reduction, target, source, count);
      return {};
    case PENSTOCK_INT32:
      reduce_as<int32_t>(reduction, target, source, count);
      return {};
    case PENSTOCK_UINT32:
      reduce_as<uint32_t>(reduction, target, source, count);
      return {};
    case PENSTOCK_INT64:
      reduce_as<int64_t>(reduction, target, source, count);
      return {};
    case PENSTOCK_UINT64:
      reduce_as<uint64_t>(reduction, target, source, count);
      return {};
    default:
      return unimplemented("a summed section of dtype {} cannot be added by this test", dtype);
  }
}

void describe_item(penstock_item& item, const Shape& shape, std::string_view name, uint64_t index) {
  item.struct_size = sizeof item;
  item.name = str(name);
  item.gradient = index;
  item.numel = shape.numel();
  const bool matrix = shape.sizes.size() >= 2 && item.numel > 0;
  item.rows = matrix ? static_cast<uint64_t>(shape.sizes[0]) : item.numel;
  item.cols = matrix ? item.numel / item.rows : 1;
  item.n_dims = shape.sizes.size();
  item.shape = shape.sizes.data();
  item.grad = item.work = item.out = float_tensor(shape, nullptr);
}

penstock_tensor float_tensor(const Shape& shape, void* data) {
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.data = data;
  tensor.shape = shape.sizes.data();
  tensor.n_dims = shape.sizes.size();
  tensor.numel = shape.numel();
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  return tensor;
}

}  // namespace penstock::command
