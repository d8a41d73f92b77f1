// penstock check: what every memory must do. Nothing is lost and nothing is made up: what is kept
// is what was compressed less what was sent.
#include "tools/penstock/check_guard.hpp"
#include "tools/penstock/check_memory_rank.hpp"

#include <cmath>

namespace penstock::command {

namespace {

using Steps = std::function<Status(MemoryRank&)>;

Outcome for_all_shapes(const Subject& subject, bool lossless, const Steps& steps) {
  for (const Shape& shape : awkward_shapes()) {
    doing(fmt::format("plan: {} floats", shape.label));
    auto rank = MemoryRank::make(subject, shape, lossless);
    if (!rank.ok()) return rank.status().with_context(shape.label + " floats");
    if (Status status = steps(**rank); !status.ok())
      return status.with_context(shape.label + " floats");
  }
  return {};
}

Outcome test_plan(const Subject& subject) {
  Outcome outcome = for_all_shapes(subject, false, [](MemoryRank&) { return Status(); });
  return outcome.verdict == Verdict::failed
             ? outcome
             : for_all_shapes(subject, true, [](MemoryRank&) { return Status(); });
}

// Sent and applied, sent and given back, in turn; at the end all that is kept is drained.
Status conserve(MemoryRank& rank) {
  uint64_t index = 0;
  for (const Input input : kInputs)
    for (int i = 0; i < 4; ++i, ++index) {
      PENSTOCK_TRY(rank.compensate(index, input, 1));
      PENSTOCK_TRY(rank.take(index % 3 == 1));
      PENSTOCK_TRY(rank.record());
      if (index % 2 == 1) PENSTOCK_TRY(rank.give_back());
      PENSTOCK_TRY(rank.finish());
      PENSTOCK_TRY(rank.check_kept());
    }
  return rank.drain();
}

// A shift moves by what was sent, and back where that had no effect.
Status shift(MemoryRank& rank) {
  const bool gives_back = rank.has_give_back();
  uint64_t index = 1;
  for (const Input input : kInputs)
    for (int i = 0; i < 4; ++i, ++index) {
      PENSTOCK_TRY(rank.compensate(index, input, 1));
      PENSTOCK_TRY(rank.take(index % 3 == 1));
      PENSTOCK_TRY(rank.record());
      PENSTOCK_TRY(rank.check_shift(false));
      if (gives_back && index % 2 == 1) {
        PENSTOCK_TRY(rank.give_back());
        PENSTOCK_TRY(rank.check_shift(true));
      }
      PENSTOCK_TRY(rank.finish());
      PENSTOCK_TRY(rank.check_finite());
    }
  return rank.drain();
}

// Which law a memory has shows in its first step with a gradient that is large enough.
Outcome test_conservation(const Subject& subject) {
  static const Shape large{"1000", {1000}};
  auto probe = MemoryRank::make(subject, large, false);
  if (!probe.ok()) return probe.status();
  Status status = (*probe)->compensate(0, Input::heavy_tailed, 1);
  if (status.ok()) status = (*probe)->take(false);
  if (status.ok()) status = (*probe)->record();
  if (!status.ok()) return status;
  if (!(*probe)->found_shift()) return for_all_shapes(subject, false, conserve);
  Outcome outcome = for_all_shapes(subject, false, [&](MemoryRank& rank) {
    rank.take_shift(**probe);
    return shift(rank);
  });
  if (outcome.verdict == Verdict::ok)
    outcome.reason = "it keeps a shift, which moves by what was sent";
  return outcome;
}

// What is compressed is in true units, whatever the loss scale.
Outcome test_loss_scale(const Subject& subject) {
  constexpr double kScale = 1024;  // a power of two: scaling rounds nothing
  for (const Shape& shape : awkward_shapes()) {
    auto plain = MemoryRank::make(subject, shape, false);
    auto scaled = MemoryRank::make(subject, shape, false);
    if (!plain.ok()) return plain.status();
    if (!scaled.ok()) return scaled.status();
    for (uint64_t index = 0; index < 3; ++index) {
      for (auto& [rank, scale] : {std::pair(&**plain, 1.0), {&**scaled, kScale}}) {
        Status status = rank->compensate(index, Input::heavy_tailed, scale);
        if (status.ok()) status = rank->take(false);
        if (status.ok()) status = rank->record();
        if (!status.ok()) return status;
      }
      const double unit = (*plain)->works_on_gradient() ? kScale : 1;
      const auto &a = (*plain)->compressed(), &b = (*scaled)->compressed();
      for (size_t e = 0; e < a.size(); ++e)
        if (!(std::abs(a[e] * unit - b[e]) <= 1e-5 * std::abs(a[e] * unit) + 1e-6))
          return internal("with a loss scale of {} work[{}] is {}, without {} ({} floats)", kScale,
                          e, b[e], a[e], shape.label);
    }
  }
  return {};
}

Outcome test_lossless(const Subject& subject) {
  return for_all_shapes(subject, true, [](MemoryRank& rank) -> Status {
    for (uint64_t index = 0; index < 4; ++index) {
      PENSTOCK_TRY(rank.compensate(index, Input::heavy_tailed, 1));
      PENSTOCK_TRY(rank.finish());
      PENSTOCK_TRY(rank.check_finite());
    }
    return {};
  });
}

Outcome test_faulty_payloads(const Subject& subject) {
  return for_all_shapes(subject, false, [](MemoryRank& rank) -> Status {
    PENSTOCK_TRY(rank.compensate(0, Input::heavy_tailed, 1));
    PENSTOCK_TRY(rank.take(false));
    return rank.faulty_give_back();
  });
}

}  // namespace

std::vector<Test> memory_tests() {
  return {{"plan", test_plan},
          {"conservation", test_conservation},
          {"loss scale", test_loss_scale},
          {"lossless compressors", test_lossless},
          {"faulty payloads", test_faulty_payloads}};
}

}  // namespace penstock::command
