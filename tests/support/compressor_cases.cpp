// See compressor_cases.hpp.
#include <algorithm>
#include <support/compressor_cases.hpp>
#include <support/long.hpp>
#include <support/workers.hpp>

namespace penstock::test {
namespace {

std::optional<LoadedPlugin> memory_of(const Comparison& comparison) {
  if (!comparison.keeps) return {};
  return load_plugin("memory", "residual");
}

std::vector<uint64_t> numels_of(const CompressorRig& rig) {
  std::vector<uint64_t> numels;
  for (uint64_t i = 0; i < rig.n_items(); ++i) numels.push_back(rig.numel(i));
  return numels;
}

std::vector<float> runs(uint64_t n, uint64_t) {
  std::vector<float> values(n);
  for (uint64_t e = 0; e < n; ++e) {
    const uint64_t kind = e / 5003 % 3;
    if (kind == 0) values[e] = -0.75f;
    if (kind == 1) values[e] = e % 2 == 0 ? 0.5f : -0.25f;
  }
  return values;
}

// The states of the item's memory. A gradient that is sent whole may have none.
Tensors states_of(CompressorRig& rig, uint32_t rank, uint64_t item) {
  const penstock_item& view = *rig.memory_item(rank, item);
  Tensors all;
  for (uint64_t s = 0; s < view.n_states; ++s) {
    const auto* values = static_cast<const float*>(view.states[s]->data);
    all.emplace_back(values, values + view.states[s]->numel);
  }
  return all;
}

// Subtracts the sent values from `work` and adds them to `total`.
void move(const std::vector<float>& sent, std::vector<float>& work, std::vector<float>& total) {
  ASSERT_EQ(sent.size(), work.size());
  for (uint64_t e = 0; e < sent.size(); ++e) {
    total[e] += sent[e];
    work[e] -= sent[e];
  }
}

}  // namespace

SentOracle each_element(const std::function<float(float)>& sent) {
  return [sent](const std::vector<float>& work, const Sender&) {
    std::vector<float> all(work.size());
    std::transform(work.begin(), work.end(), all.begin(), sent);
    return all;
  };
}

std::vector<Shape> vectors(const std::vector<uint64_t>& numels) {
  std::vector<Shape> shapes;
  for (const uint64_t n : numels) shapes.push_back({static_cast<int64_t>(n)});
  return shapes;
}

std::vector<Shape> awkward_vectors() {
  return vectors(awkward_sizes());
}

void expect_equals(const Comparison& comparison, const SentOracle& oracle,
                   const Distribution& distribution) {
  CompressorRig rig(comparison.rig, comparison.shapes, comparison.plugin, comparison.options,
                    memory_of(comparison));
  const std::vector<uint64_t> numels = numels_of(rig);
  RankTensors kept(rig.ranks());
  for (Tensors& of_rank : kept)
    for (const uint64_t numel : numels) of_rank.emplace_back(numel);
  for (uint64_t step = 0; step < comparison.steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, rig.ranks(), numels, step);
    RankTensors sent(rig.ranks());
    Tensors expected;
    for (uint64_t i = 0; i < numels.size(); ++i) {
      std::vector<float>& total = expected.emplace_back(numels[i]);
      for (uint32_t r = 0; r < rig.ranks(); ++r) {
        std::vector<float>& work = kept[r][i];
        if (!comparison.keeps) std::fill(work.begin(), work.end(), 0.0f);
        for (uint64_t e = 0; e < numels[i]; ++e) work[e] += gradients[r][i][e];
        sent[r].push_back(oracle(work, {comparison.rig.seed, i, step, r}));
        move(sent[r][i], work, total);
      }
      for (float& value : total) value /= static_cast<float>(rig.ranks());
    }
    const Tensors mean = rig.step(gradients);
    for (uint64_t i = 0; i < numels.size(); ++i) {
      const std::string where = distribution.name + ", step " + std::to_string(step) + ", item " +
                                std::to_string(i) + " of " + std::to_string(numels[i]);
      for (uint32_t r = 0; r < rig.ranks(); ++r) {
        ASSERT_EQ(rig.sent(r, i), sent[r][i]) << where << ", sent by rank " << r;
        if (!comparison.keeps) continue;
        ASSERT_EQ(rig.work(r, i), kept[r][i]) << where << ", kept by rank " << r;
      }
      ASSERT_EQ(mean[i], expected[i]) << where;
    }
  }
}

const std::vector<Distribution>& large_distributions() {
  static const std::vector<Distribution> both{distributions()[0], {"runs", runs}};
  return both;
}

void expect_large_gradients_equal(Comparison comparison, const SentOracle& oracle) {
  comparison.rig.ranks = 1;
  const bool has_shapes = !comparison.shapes.empty();
  for (const Distribution& distribution : large_distributions()) {
    // Numbers past 2^24 need the length, not the law: the law takes many times longer to draw and
    // to sort than runs, so outside of long runs its vector is shorter.
    const bool is_short = distribution.name != "runs" && !is_long();
    if (!has_shapes) comparison.shapes = vectors({is_short ? kLargeNumel / 8 : kLargeNumel});
    expect_equals(comparison, oracle, distribution);
  }
}

void expect_one_result_wherever_it_runs(const LoadedPlugin& plugin, const OptionSettings& options,
                                        const std::vector<Shape>& shapes) {
  Tensors first, kept;
  ThreadPerTask three(3);
  for (const std::string path : {"portable", "avx2", "avx512", "three threads"}) {
    set_code_path(path);  // the widest path if it cannot run
    set_workers(path == "three threads" ? three.table() : nullptr);
    CompressorRig rig({.ranks = 2}, shapes, plugin, options, load_plugin("memory", "residual"));
    const Tensors mean = rig.step(draw_gradients(heavy_tailed, 2, numels_of(rig), 5));
    Tensors left;
    for (uint64_t i = 0; i < rig.n_items(); ++i) left.push_back(rig.work(1, i));
    if (first.empty()) first = mean, kept = left;
    EXPECT_EQ(mean, first) << path;
    EXPECT_EQ(left, kept) << path;
  }
  set_code_path("");
  set_workers(nullptr);
}

void expect_folding_changes_no_bit(const LoadedPlugin& compressor, const OptionSettings& options,
                                   const std::vector<Shape>& shapes, double mass_tolerance) {
  struct Memory {
    const char* name;
    OptionSettings options;
  };
  const Memory memories[] = {
      {"residual", {{"beta", 0.75}, {"gamma", 1.5}}}, {"dgc", {}}, {"dgc", {{"nesterov", true}}}};
  for (const Memory& memory : memories)
    for (const Distribution& distribution : distributions()) {
      RigSettings settings{.ranks = 2, .check_mass = true, .mass_tolerance = mass_tolerance};
      const LoadedPlugin plugin = load_plugin("memory", memory.name);
      CompressorRig two_sweeps(settings, shapes, compressor, options, plugin, memory.options);
      settings.fold = true;
      CompressorRig one_sweep(settings, shapes, compressor, options, plugin, memory.options);
      const std::vector<uint64_t> numels = numels_of(two_sweeps);
      for (uint64_t step = 0; step < 20; ++step) {
        const RankTensors gradients = draw_gradients(distribution.draw, 2, numels, step);
        StepSettings how;
        if (step % 5 == 2) how.grad_scale = 1024;
        if (step % 7 == 3) how.void_rank = 1;
        if (step % 6 == 4) how.forgotten = true;
        const Tensors expected = two_sweeps.step(gradients, how);
        const Tensors found = one_sweep.step(gradients, how);
        for (uint64_t i = 0; i < numels.size(); ++i) {
          if (!how.void_rank) {
            ASSERT_EQ(found[i], expected[i]) << distribution.name;
          }
          for (uint32_t r = 0; r < 2; ++r)
            ASSERT_EQ(states_of(one_sweep, r, i), states_of(two_sweeps, r, i))
                << distribution.name << ", " << memory.name << ", step " << step;
        }
      }
    }
}

void expect_huge_gradients_are_refused(const LoadedPlugin& plugin) {
  const CompressorInstance instance(plugin.compressor(), *plugin.module);
  penstock_item item{};
  item.struct_size = sizeof item;
  item.name = {"huge", 4};
  item.numel = uint64_t{1} << 32;
  penstock_compressor_need need{};
  need.struct_size = sizeof need;
  const penstock_item* items[] = {&item};
  penstock_compressor_need* needs[] = {&need};
  EXPECT_TRUE(fails_with(instance.table().plan(instance.self(), 0, 2, items, 1, needs),
                         PENSTOCK_INVALID_ARGUMENT, "'huge' has 4294967296 entries"));
}

}  // namespace penstock::test
