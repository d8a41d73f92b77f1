// The rules of every memory; see checks.hpp. No value is lost and none is invented: the kept values
// are the compressed values minus the sent values.
#include <cmath>
#include <functional>
#include <testing/checks.hpp>
#include <testing/data.hpp>
#include <testing/memory_rig.hpp>

namespace penstock::test {
namespace {

using Steps = std::function<void(MemoryRig&)>;
constexpr std::vector<float> (*kInputs[])(uint64_t n, uint64_t seed) = {heavy_tailed, zeros,
                                                                        small_spike};

void for_all_shapes(const LoadedPlugin& plugin, const OptionSettings& options, bool lossless,
                    const Steps& steps) {
  for (const Shape& shape : awkward_shapes()) {
    MemoryRig rig(plugin, options, shape, lossless);
    try {
      steps(rig);
    } catch (const BrokenPromise& broken) {
      throw BrokenPromise(text_of(shape) + " floats: " + broken.what());
    }
  }
}

Check::Found plan(const LoadedPlugin& plugin, const OptionSettings& options) {
  for_all_shapes(plugin, options, false, [](MemoryRig&) {});
  for_all_shapes(plugin, options, true, [](MemoryRig&) {});
  return {};
}

// Makes six steps with each input, of three kinds in turn: all taken values are sent; the bucket is
// void; some taken entries are refused. At the end all kept values are drained.
template <typename Sent>
void steps_of_every_kind(MemoryRig& rig, Sent&& promise_sent) {
  uint64_t index = 0;
  for (const auto input : kInputs)
    for (int i = 0; i < 6; ++i, ++index) {
      rig.compensate(index, input(rig.numel(), index), 1);
      rig.take(index % 2 == 1);
      const bool is_void = index % 3 == 1;
      if (is_void) {
        rig.give_back();
      } else {
        if (index % 3 == 2) rig.refuse();
        rig.record();
      }
      promise_sent(is_void);
      if (!is_void) rig.finish();
      rig.promise_kept();
    }
  rig.drain();
}

void conserve(MemoryRig& rig) {
  steps_of_every_kind(rig, [](bool) {});
}

// A shift changes by the sent values.
void shift(MemoryRig& rig) {
  steps_of_every_kind(rig, [&](bool is_void) {
    rig.promise_shift(is_void);
    rig.promise_finite();
  });
}

// A memory declares its rule; a memory from before ABI 0.4 shows its rule in its first step with a
// gradient that is large enough.
Check::Found conservation(const LoadedPlugin& plugin, const OptionSettings& options) {
  MemoryRig probe(plugin, options, {1000}, false);
  probe.compensate(0, heavy_tailed(1000, 0), 1);
  probe.take(false);
  probe.record();
  const bool found = probe.found_shift();
  promise(
      found || !probe.says_it_shifts(),
      "its need says SHIFTS, but record moved no state of the gradient's size by what was sent");
  if (!found) {
    for_all_shapes(plugin, options, false, conserve);
    return {};
  }
  for_all_shapes(plugin, options, false, [&](MemoryRig& rig) {
    rig.take_shift(probe);
    shift(rig);
  });
  return {false, "it keeps a shift, which moves by what was sent"};
}

// The compressed values are in true units, for any loss scale.
Check::Found loss_scale(const LoadedPlugin& plugin, const OptionSettings& options) {
  constexpr double kScale = 1024;  // a power of two: scaling rounds nothing
  for (const Shape& shape : awkward_shapes()) {
    MemoryRig plain(plugin, options, shape, false), scaled(plugin, options, shape, false);
    for (uint64_t index = 0; index < 3; ++index) {
      for (const auto& [rig, scale] : {std::pair(&plain, 1.0), {&scaled, kScale}}) {
        rig->compensate(index, heavy_tailed(rig->numel(), index), scale);
        rig->take(false);
        rig->record();
      }
      const double unit = plain.works_on_gradient() ? kScale : 1;
      const auto &a = plain.compressed(), &b = scaled.compressed();
      for (uint64_t e = 0; e < a.size(); ++e)
        if (!(std::abs(a[e] * unit - b[e]) <= 1e-5 * std::abs(a[e] * unit) + 1e-6))
          promise(false, "with a loss scale of ", kScale, " work[", e, "] is ", b[e], ", without ",
                  a[e], " (", text_of(shape), " floats)");
    }
  }
  return {};
}

Check::Found lossless(const LoadedPlugin& plugin, const OptionSettings& options) {
  for_all_shapes(plugin, options, true, [](MemoryRig& rig) {
    for (uint64_t index = 0; index < 4; ++index) {
      rig.compensate(index, heavy_tailed(rig.numel(), index), 1);
      rig.finish();
      rig.promise_finite();
    }
  });
  return {};
}

// A discarded step has no effect, because all data that live between steps are in the states: the
// next step compresses values with the bits that they would have had without it.
Check::Found forgotten_steps(const LoadedPlugin& plugin, const OptionSettings& options) {
  for (const bool lossless : {false, true})
    for (const Shape& shape : awkward_shapes()) {
      MemoryRig plain(plugin, options, shape, lossless), forgets(plugin, options, shape, lossless);
      const auto step = [&](MemoryRig& rig, uint64_t index, uint64_t seed) {
        rig.compensate(index, heavy_tailed(rig.numel(), seed), 1);
        if (!lossless) {
          rig.take(index % 2 == 1);
          rig.record();
        }
        rig.finish();
      };
      for (uint64_t index = 0; index < 4; ++index) {
        for (uint64_t thrown = 0; thrown < index % 3; ++thrown) {
          step(forgets, index, 100 + 10 * index + thrown);
          forgets.forget();
        }
        step(plain, index, index);
        step(forgets, index, index);
        promise(plain.compressed() == forgets.compressed() && plain.out() == forgets.out(),
                "a forgotten step before step ", index,
                " changes what is compressed in it, or its result (", text_of(shape), " floats)");
      }
    }
  return {};
}

Check::Found faulty_payloads(const LoadedPlugin& plugin, const OptionSettings& options) {
  for_all_shapes(plugin, options, false, [](MemoryRig& rig) {
    rig.compensate(0, heavy_tailed(rig.numel(), 0), 1);
    rig.take(false);
    rig.faulty_give_back();
  });
  return {};
}

}  // namespace

std::vector<Check> memory_checks() {
  return {{"plan", plan},
          {"conservation", conservation},
          {"loss scale", loss_scale},
          {"lossless compressors", lossless},
          {"forgotten steps", forgotten_steps},
          {"faulty payloads", faulty_payloads}};
}

}  // namespace penstock::test
