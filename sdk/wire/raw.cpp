#include <wire/raw.hpp>

#include <kernels/on_code_path.hpp>

#include <cstring>

namespace penstock::wire {
namespace {

template <typename To, typename From>
void convert(const unsigned char* from, unsigned char* to, uint64_t count) {
  for (uint64_t j = 0; j < count; ++j) {
    From source;
    std::memcpy(&source, from + j * sizeof source, sizeof source);
    const auto target = static_cast<To>(source);
    std::memcpy(to + j * sizeof target, &target, sizeof target);
  }
}

// Copies positions to or from the width that they have on the wire, which depends on n.
template <typename To, typename From>
void copy(const void* from, void* to, uint64_t count) {
  if constexpr (sizeof(To) == sizeof(From))
    std::memcpy(to, from, count * sizeof(To));
  else
    convert<To, From>(static_cast<const unsigned char*>(from), static_cast<unsigned char*>(to),
                      count);
}

}  // namespace

template <typename Position>
uint64_t first_fall(std::span<const Position> slice, kernels::CodePath path) noexcept {
  const Position* p = slice.data();
  const uint64_t count = slice.size();
  const bool falls = kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    Position any = 0;
    for (uint64_t j = 1; j < count; ++j) any |= static_cast<Position>(p[j] <= p[j - 1]);
    return any != 0;
  });
  if (!falls) return count;
  uint64_t j = 1;
  while (p[j] > p[j - 1]) ++j;
  return j;
}

template <typename Position>
Fit Raw<Position>::fit(std::span<const Position> positions, uint64_t n,
                       kernels::CodePath) noexcept {
  return {0, positions.size() * raw_position_bytes(n)};
}

template <typename Position>
void Raw<Position>::write(std::span<const Position> positions, uint64_t n, int16_t,
                          unsigned char* body, kernels::CodePath) noexcept {
  if (raw_position_bytes(n) == 4)
    copy<uint32_t, Position>(positions.data(), body, positions.size());
  else
    copy<uint64_t, Position>(positions.data(), body, positions.size());
}

template <typename Position>
std::string Raw<Position>::open(const Section& section, uint64_t n, kernels::CodePath path) {
  const uint64_t width = raw_position_bytes(n);
  if (section.header.parameter != 0 || section.body.size() % width != 0 ||
      section.body.size() / width != section.header.count)
    return sentence("has ", section.body.size(), " bytes with parameter ", section.header.parameter,
                    " for ", section.header.count, " positions of ", width, " bytes");
  next_ = section.body.data();
  n_ = n;
  path_ = path;
  return {};
}

template <typename Position>
std::string Raw<Position>::take(std::span<Position> slice) {
  if (slice.empty()) return {};
  if (raw_position_bytes(n_) == 4)
    copy<Position, uint32_t>(next_, slice.data(), slice.size());
  else
    copy<Position, uint64_t>(next_, slice.data(), slice.size());
  next_ += slice.size() * raw_position_bytes(n_);
  const uint64_t fall = slice[0] < lowest_ ? 0 : first_fall<Position>(slice, path_);
  if (fall < slice.size() || slice.back() >= n_)
    return sentence("has the position ", fall < slice.size() ? slice[fall] : slice.back(),
                    ", expected ascending ones below ", n_);
  lowest_ = uint64_t{slice.back()} + 1;
  return {};
}

template uint64_t first_fall(std::span<const uint32_t>, kernels::CodePath) noexcept;
template uint64_t first_fall(std::span<const uint64_t>, kernels::CodePath) noexcept;
template class Raw<uint32_t>;
template class Raw<uint64_t>;

}  // namespace penstock::wire
