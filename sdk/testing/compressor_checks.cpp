// The rules of every compressor; see checks.hpp.
#include <penstock/views.hpp>

#include <algorithm>
#include <limits>
#include <testing/checks.hpp>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

const Distribution kInputs[] = {
    {"heavy-tailed", heavy_tailed}, {"zeros", zeros}, {"one spike", small_spike}};

// The reason why the rig cannot simulate steps with this compressor; empty if it can.
std::string not_simulated(const LoadedPlugin& plugin, const OptionSettings& options, bool keep) {
  const penstock_compressor_traits traits = CompressorInstance(plugin, options).describe();
  if ((traits.device_types & (1u << PENSTOCK_DEVICE_CPU)) == 0)
    return "it does not work on the CPU";
  if ((traits.dtypes & PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32)) == 0)
    return "it does not take float32";
  if (!keep && (traits.flags & PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS) != 0)
    return "it works only if a memory keeps the values that were not sent";
  return "";
}

RigSettings strict(uint32_t ranks, bool keep) {
  return {.ranks = ranks,
          .check_mass = keep,
          .mass_tolerance = kAsTypesRound,
          .check_sums = true,
          .keep = keep};
}

RankTensors gradients_of(const CompressorRig& rig, const Distribution& input) {
  std::vector<uint64_t> numels;
  for (uint64_t i = 0; i < rig.n_items(); ++i) numels.push_back(rig.numel(i));
  return draw_gradients(input.draw, rig.ranks(), numels, rig.steps());
}

// `steps` with every awkward shape, on one and on two ranks.
Check::Found for_all_shapes(const LoadedPlugin& plugin, const OptionSettings& options, bool keep,
                            void (*steps)(CompressorRig&)) {
  const std::string reason = not_simulated(plugin, options, keep);
  if (!reason.empty()) return {true, reason};
  for (const Shape& shape : awkward_shapes())
    for (const uint32_t ranks : {1u, 2u}) {
      CompressorRig rig(strict(ranks, keep), {shape}, plugin, options);
      steps(rig);
    }
  return {};
}

// Makes two steps per phase with each input; states continue from step to step.
void all_inputs(CompressorRig& rig) {
  for (const Distribution& input : kInputs)
    for (uint32_t i = 0; i < 2 * rig.period(); ++i) rig.step(gradients_of(rig, input));
}

Check::Found plan(const LoadedPlugin& plugin, const OptionSettings& options) {
  const Check::Found kept = for_all_shapes(plugin, options, true, [](CompressorRig&) {});
  if (!kept.skipped) for_all_shapes(plugin, options, false, [](CompressorRig&) {});
  return kept;
}

Check::Found round_trip(const LoadedPlugin& plugin, const OptionSettings& options) {
  return for_all_shapes(plugin, options, false, all_inputs);
}

Check::Found take_out(const LoadedPlugin& plugin, const OptionSettings& options) {
  return for_all_shapes(plugin, options, true, all_inputs);
}

Check::Found bucket(const LoadedPlugin& plugin, const OptionSettings& options) {
  const std::string reason = not_simulated(plugin, options, true);
  if (!reason.empty()) return {true, reason};
  CompressorRig rig(strict(2, true), {{7}, {33, 65}, {0}, {1000}, {33, 65}}, plugin, options);
  all_inputs(rig);
  return {};
}

// Divides by powers of two, for which division and multiplication by the inverse give equal bits.
// The rig checks sums and mass in the other checks.
Check::Found mean_by_decode(const LoadedPlugin& plugin, const OptionSettings& options) {
  const std::string reason = not_simulated(plugin, options, true);
  if (!reason.empty()) return {true, reason};
  const auto flags = CompressorInstance(plugin, options).describe().flags;
  if ((flags & PENSTOCK_COMPRESSOR_SCALES_RESULT) == 0)
    return {true, "it leaves dividing to the host"};
  for (const uint64_t slice : {uint64_t{0}, uint64_t{1}})
    for (const uint32_t ranks : {1u, 2u, 4u}) {
      const RigSettings by_host{.ranks = ranks, .ranks_per_slice = slice, .keep = true};
      RigSettings by_decode = by_host;
      by_decode.mean_by_decode = true;
      const std::vector<Shape> shapes{{7}, {33, 65}, {0}, {5000}};
      CompressorRig expected(by_host, shapes, plugin, options);
      CompressorRig found(by_decode, shapes, plugin, options);
      for (const Distribution& input : kInputs)
        for (uint32_t i = 0; i < 2 * expected.period(); ++i)
          promise(expected.step(gradients_of(expected, input)) ==
                      found.step(gradients_of(found, input)),
                  "with result_scale 1/", ranks, " and ", input.name,
                  " values decode leaves something else than its sums times that");
    }
  return {};
}

// A step whose results are discarded has no effect, because all data that live between steps are in
// the states: the next step has the bits that it would have had without it.
Check::Found forgotten_steps(const LoadedPlugin& plugin, const OptionSettings& options) {
  const std::string reason = not_simulated(plugin, options, true);
  if (!reason.empty()) return {true, reason};
  const std::vector<Shape> shapes{{7}, {33, 65}, {0}, {1000}};
  CompressorRig plain(strict(2, true), shapes, plugin, options);
  CompressorRig forgets(strict(2, true), shapes, plugin, options);
  for (const Distribution& input : kInputs)
    for (uint32_t i = 0; i < 2 * plain.period(); ++i) {
      for (const Distribution& thrown : kInputs)
        forgets.step(gradients_of(forgets, thrown), {.forgotten = true});
      promise(plain.step(gradients_of(plain, input)) == forgets.step(gradients_of(forgets, input)),
              "forgotten steps before step ", plain.steps() - 1, " change what it decodes to with ",
              input.name, " values");
    }
  return {};
}

// Compares the outcome of a step: results, payloads, and every state of compressor and memory.
void promise_equal(CompressorRig& plain, const Tensors& expected, CompressorRig& folded,
                   const Tensors& found, const std::string& when) {
  const auto same = [](const penstock_item& a, const penstock_item& b) {
    for (uint64_t s = 0; s < a.n_states; ++s) {
      const penstock_tensor &ours = *a.states[s], &theirs = *b.states[s];
      if (!same_bytes(ours.data, theirs.data, ours.numel * sdk::dtype_bytes(ours.dtype)))
        return false;
    }
    return true;
  };
  for (uint64_t i = 0; i < plain.n_items(); ++i)
    for (uint32_t r = 0; r < plain.ranks(); ++r) {
      promise(plain.sent_count(r, i) == folded.sent_count(r, i), "encode sends ",
              plain.sent_count(r, i), " entries of a gradient after compensate, ",
              folded.sent_count(r, i),
              " where it folds (fold.h): does it look at work before the "
              "fold is done? ",
              when);
      const bool is_equal =
          same_bytes(expected[i].data(), found[i].data(), expected[i].size() * sizeof(float)) &&
          same(*plain.compressor_item(r, i), *folded.compressor_item(r, i)) &&
          same(*plain.memory_item(r, i), *folded.memory_item(r, i));
      promise(is_equal,
              "encode after compensate and the folded encode (fold.h) differ in a bit: ", when);
    }
}

// A folded encode is compensate and encode in one sweep; both variants must give equal bits.
Check::Found folding(const LoadedPlugin& plugin, const OptionSettings& options) {
  const std::string reason = not_simulated(plugin, options, true);
  if (!reason.empty()) return {true, reason};
  const CompressorInstance instance(plugin, options);
  const uint32_t folds = instance.describe().folds;
  if (folds == 0) return {true, "it folds no memory's sweep into its own"};
  promise(fold_encoder_of(instance, PENSTOCK_FOLD_EXTENSION) != nullptr,
          "its traits name forms that it folds, but it does not answer to ",
          PENSTOCK_FOLD_EXTENSION);
  const std::vector<Shape> shapes{{7}, {33, 65}, {0}, {1}, {5000}};
  for (const uint32_t form :
       {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV})
    for (const bool reads_before : {false, true}) {
      if ((folds >> (form - 1) & 1) == 0) continue;
      if (reads_before && fold_encoder_of(instance, PENSTOCK_FOLD_EXTENSION_2) == nullptr) continue;
      const RigSettings apart{.ranks = 2, .keep = true, .form = form};
      RigSettings together = apart;
      together.fold = true;
      together.fold_reads_before = reads_before;
      CompressorRig plain(apart, shapes, plugin, options);
      CompressorRig folded(together, shapes, plugin, options);
      for (const Distribution& input : kInputs)
        for (uint32_t i = 0; i < std::max(4u, 2 * plain.period()); ++i) {
          const StepSettings how{.grad_scale = i % 2 == 0 ? 1.0 : 1024.0};
          const RankTensors gradients = gradients_of(plain, input);
          const Tensors expected = plain.step(gradients, how);
          promise_equal(plain, expected, folded, folded.step(gradients, how),
                        sdk::text(input.name, " values, form ", form, ", step ", i,
                                  reads_before ? ", what was before elsewhere" : ""));
        }
    }
  return {};
}

Check::Found faulty_payloads(const LoadedPlugin& plugin, const OptionSettings& options) {
  return for_all_shapes(plugin, options, true, [](CompressorRig& rig) {
    for (uint32_t i = 0; i < rig.period(); ++i) rig.faulty_step(gradients_of(rig, kInputs[0]));
  });
}

// An encoder that inspects gives an absent payload where a value is not finite, and nowhere else.
Check::Found inspection(const LoadedPlugin& plugin, const OptionSettings& options) {
  const std::string reason = not_simulated(plugin, options, true);
  if (!reason.empty()) return {true, reason};
  const CompressorInstance instance(plugin, options);
  if (fold_encoder_of(instance, PENSTOCK_FOLD_EXTENSION_3) == nullptr)
    return {true, "it does not inspect what it compensates"};
  const std::vector<Shape> shapes{{7}, {33, 65}, {1}, {20000}};
  const float broken[] = {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity()};
  for (const uint32_t form :
       {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV}) {
    if ((instance.describe().folds >> (form - 1) & 1) == 0) continue;
    const RigSettings settings{
        .ranks = 1, .keep = true, .fold = true, .fold_reads_before = true, .form = form};
    CompressorRig sound(settings, shapes, plugin, options);
    const RankTensors finite = gradients_of(sound, kInputs[0]);
    for (const bool absent : sound.absent_after_encode(finite))
      promise(!absent, "a payload is absent although all values are finite, form ", form);
    for (uint64_t i = 0; i < shapes.size(); ++i)
      for (const float value : broken)
        for (const uint64_t at : {uint64_t{0}, sound.numel(i) - 1}) {
          CompressorRig rig(settings, shapes, plugin, options);
          RankTensors gradients = finite;
          gradients[0][i][at] = value;
          promise(rig.absent_after_encode(gradients)[i], "element ", at, " of gradient ", i, " is ",
                  value, ", and the payload is not absent (", PENSTOCK_FOLD_EXTENSION_3, "), form ",
                  form);
        }
  }
  return {};
}

}  // namespace

std::vector<Check> compressor_checks() {
  return {{"plan", plan},
          {"round trip", round_trip},
          {"take-out", take_out},
          {"several gradients in one call", bucket},
          {"means", mean_by_decode},
          {"forgotten steps", forgotten_steps},
          {"folding", folding},
          {"inspection", inspection},
          {"faulty payloads", faulty_payloads}};
}

void run_checks(const LoadedPlugin& plugin, const OptionSettings& options) {
  const bool is_memory = plugin.record->kind == PENSTOCK_KIND_MEMORY;
  if (!is_memory) (void)plugin.compressor();  // throws for other kinds
  for (const Check& check : is_memory ? memory_checks() : compressor_checks()) {
    try {
      check.run(plugin, options);
    } catch (const std::runtime_error& broken) {
      throw BrokenPromise(check.name + ": " + broken.what());
    }
  }
}

}  // namespace penstock::test
