// The resources on which a kernel runs: an instruction set, and the threads that share its work.
// Neither changes a bit of the results.
#pragma once

#include <kernels/code_path.hpp>

#include <penstock/workers.h>

#include <algorithm>
#include <cstdint>

namespace penstock::kernels {

// A view of the host's workers. If there is no table of workers, the calling thread does all work.
class Workers {
 public:
  constexpr Workers() = default;
  explicit constexpr Workers(const penstock_workers* table) : table_(table) {}

  // [any] At least 1.
  uint32_t count() const noexcept {
    return table_ == nullptr ? 1 : std::max(1u, table_->count(table_->context));
  }

  // [step] Cuts n into at most `most` ranges of about equal length, each but the last a multiple of
  // `grain`, and calls body(part, begin, end) for each, several at a time; part < most.
  template <typename Body>
  void for_ranges(uint64_t n, uint64_t grain, uint32_t most, const Body& body) const noexcept {
    const uint64_t grains = (n + grain - 1) / grain;
    const uint64_t parts = std::min<uint64_t>(most, grains);
    if (parts <= 1 || table_ == nullptr) return body(0u, uint64_t{0}, n);
    struct Call {
      const Body& body;
      uint64_t n, grain, grains, parts;
    } call{body, n, grain, grains, parts};
    table_->run(
        table_->context, static_cast<uint32_t>(parts),
        [](void* context, uint32_t part) {
          const Call& of = *static_cast<const Call*>(context);
          const uint64_t begin = part * of.grains / of.parts * of.grain;
          const uint64_t end = (part + 1) * of.grains / of.parts * of.grain;
          of.body(part, begin, std::min(end, of.n));
        },
        &call);
  }

  // The largest number of shares into which for_rows cuts rows of `width` elements: one for each
  // thread, and at least kFewestElements for each share, because waking a thread takes longer than
  // the work on fewer elements.
  uint32_t shares(uint64_t rows, uint64_t width) const noexcept {
    constexpr uint64_t kFewestElements = 1 << 16;
    const uint64_t fewest = kFewestElements / std::max<uint64_t>(width, 1) + 1;
    return static_cast<uint32_t>(std::clamp<uint64_t>(rows / fewest, 1, count()));
  }

  // Like for_ranges over rows, with at most shares() ranges of about equal length; their ends are
  // multiples of `grain`.
  template <typename Body>
  void for_rows(uint64_t rows, uint64_t width, uint64_t grain, const Body& body,
                uint64_t most = UINT32_MAX) const noexcept {
    const auto parts = static_cast<uint32_t>(std::min<uint64_t>(most, shares(rows, width)));
    for_ranges(rows, grain, parts, body);
  }

 private:
  const penstock_workers* table_ = nullptr;
};

struct Execution {
  Execution(CodePath on, Workers with = {}) noexcept  // NOLINT: on purpose
      : path(on), workers(with) {}
  CodePath path;
  Workers workers;
};

}  // namespace penstock::kernels
