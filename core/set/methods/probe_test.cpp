// A probe calls plugins exactly as a step does. The test records and compares the calls. On every
// route the programs of a probe and of a step are equal, except for the stages with other ranks.

#include "core/bucket/compiled_plan.hpp"
#include "core/config/load.hpp"
#include "core/plan/planner.hpp"
#include "core/set/testing.hpp"

#include <penstock/fold.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace penstock::probe_test {
namespace {

using testing::make_set;
using testing::with_ranks;

// ---- Plugins that note their calls ----

struct Notes {
  std::mutex mutex;
  std::vector<std::string> calls;
  void add(std::string call) {
    const std::lock_guard lock(mutex);
    calls.push_back(std::move(call));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(calls, {});
  }
};
Notes notes;

std::string text_of(const penstock_step* step, const penstock_item* const* items, uint64_t n) {
  std::string text = fmt::format("of {} ranks, scale {}", step->world, step->result_scale);
  for (uint64_t i = 0; i < n; ++i) {
    const penstock_item& item = *items[i];
    text += fmt::format("; {} from {}, {} elements, flags {:#x}, {} states, in place: {}, {}",
                        view(item.name), item.first, item.numel, item.flags, item.n_states,
                        item.work.data == item.grad.data, item.out.data == item.grad.data);
  }
  return text;
}

// The real table of each kind, for a scheme that names one plugin of each kind.
const penstock_compressor* compressor = nullptr;
const penstock_memory* memory = nullptr;
const penstock_fold_encoder* folder = nullptr;

penstock_status* encode_folded(void* self, const penstock_exec* exec, const penstock_step* step,
                               uint32_t round, const penstock_item* const* items, uint64_t n,
                               penstock_payload* const* payloads,
                               const penstock_fold* const* folds) {
  std::string text = fmt::format("fold {} {}", round, text_of(step, items, n));
  for (uint64_t i = 0; i < n; ++i)
    text += folds[i] == nullptr
                ? std::string("; unfolded")
                : fmt::format("; form {}, beta {}, two generations: {}", folds[i]->form,
                              folds[i]->beta, folds[i]->work_before != nullptr);
  notes.add(text);
  return folder->encode(self, exec, step, round, items, n, payloads, folds);
}

penstock_compressor noting(const penstock_compressor& real) {
  compressor = &real;
  penstock_compressor table = real;
  table.encode = [](void* self, const penstock_exec* exec, const penstock_step* step,
                    uint32_t round, const penstock_item* const* items, uint64_t n,
                    penstock_payload* const* payloads) {
    notes.add(fmt::format("encode {} {}", round, text_of(step, items, n)));
    return compressor->encode(self, exec, step, round, items, n, payloads);
  };
  table.decode = [](void* self, const penstock_exec* exec, const penstock_step* step,
                    uint32_t round, const penstock_item* const* items, uint64_t n,
                    const penstock_payload* const* payloads, uint64_t n_ranks, uint32_t flags) {
    std::string text = fmt::format("decode {} {}; {} payloads of each, flags {:#x}:", round,
                                   text_of(step, items, n), n_ranks, flags);
    for (uint64_t i = 0; i < n * n_ranks; ++i)
      text += fmt::format(" kind {} of {} sections,", payloads[i]->kind, payloads[i]->n_sections);
    notes.add(text);
    return compressor->decode(self, exec, step, round, items, n, payloads, n_ranks, flags);
  };
  if (real.extension != nullptr)
    table.extension = [](void* self, penstock_str id) -> const void* {
      const void* real = compressor->extension(self, id);
      if (real == nullptr || !view(id).starts_with("penstock.fold/")) return real;
      static penstock_fold_encoder noting;
      folder = static_cast<const penstock_fold_encoder*>(real);
      noting = *folder;
      noting.encode = encode_folded;
      return &noting;
    };
  return table;
}

penstock_memory noting(const penstock_memory& real) {
  memory = &real;
  penstock_memory table = real;
  if (real.measure != nullptr)
    table.measure = [](void* self, const penstock_exec* exec, const penstock_step* step,
                       const penstock_item* const* items, uint64_t n, float* scalars) {
      notes.add("measure " + text_of(step, items, n));
      return memory->measure(self, exec, step, items, n, scalars);
    };
  table.compensate = [](void* self, const penstock_exec* exec, const penstock_step* step,
                        const penstock_item* const* items, uint64_t n, const float* summed) {
    notes.add(fmt::format("compensate {}; sums: {}", text_of(step, items, n), summed != nullptr));
    return memory->compensate(self, exec, step, items, n, summed);
  };
  if (real.record != nullptr)
    table.record = [](void* self, const penstock_exec* exec, const penstock_step* step,
                      const penstock_item* const* items, uint64_t n,
                      const penstock_payload* const* taken) {
      notes.add("record " + text_of(step, items, n));
      return memory->record(self, exec, step, items, n, taken);
    };
  if (real.finish != nullptr)
    table.finish = [](void* self, const penstock_exec* exec, const penstock_step* step,
                      const penstock_item* const* items, uint64_t n) {
      notes.add("finish " + text_of(step, items, n));
      return memory->finish(self, exec, step, items, n);
    };
  return table;
}

// From now on instances that the registry makes of this plugin record their calls.
template <typename Table>
void note_calls_of(Registry& registry, Kind kind, const std::string& name) {
  static Table table;
  const auto plugin = registry.load(kind, name);
  ASSERT_OK(plugin.status());
  table = noting(*plugin.value()->as<Table>());
  const_cast<Plugin&>(*plugin.value()).table = &table;
}

// ---- Calls ----

struct Method {
  std::string name, compressor, memory;
  std::string tables = "", runtime = "";  // tables of the scheme, keys of [runtime]
  uint32_t set_flags = 0;
};

class ProbedCalls : public ::testing::TestWithParam<Method> {};

TEST_P(ProbedCalls, AreThoseOfAStep) {
  const Method& method = GetParam();
  const std::string scheme = testing::scheme_text(
      fmt::format("compressor = \"{}\"\nmemory = \"{}\"\nscheduler = \"witness\"",
                  method.compressor, method.memory),
      method.runtime + testing::test_plugins({"patient_witness", "shared_scale"}) + method.tables);
  std::vector<std::string> probed;
  std::vector<std::string> first_step;
  with_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
    if (rank == 0) {
      Registry& registry = runtime.services().registry;
      note_calls_of<penstock_compressor>(registry, Kind::compressor, method.compressor);
      note_calls_of<penstock_memory>(registry, Kind::memory, method.memory);
    }
    auto set = make_set(runtime, {{"weight", {48, 64}}}, method.set_flags);
    ASSERT_OK(set.status());
    if (rank == 0) probed = notes.take();
    std::vector<std::vector<float>> gradients{std::vector<float>(48 * 64)};
    for (size_t i = 0; i < gradients[0].size(); ++i) gradients[0][i] = std::sin(float(i));
    ASSERT_OK(testing::run_step(*set.value(), gradients));
    if (rank == 0) first_step = notes.take();
  });
  // The probe repeats its trial several times.
  ASSERT_FALSE(first_step.empty());
  ASSERT_GT(probed.size(), first_step.size());
  ASSERT_EQ(probed.size() % first_step.size(), 0u);
  for (size_t i = 0; i < probed.size(); ++i)
    EXPECT_EQ(probed[i], first_step[i % first_step.size()]) << "call " << i << " of the probe";
}

INSTANTIATE_TEST_SUITE_P(
    Probe, ProbedCalls,
    ::testing::Values(Method{"dense", "none", "none"},
                      Method{"pairs", "topk", "residual", "[compressor.topk]\ndensity = 0.1\n"},
                      Method{"two_rounds", "powersgd", "residual"},
                      Method{"two_gathered_rounds", "shared-scale", "residual"},
                      Method{"codes", "qsgd", "none"}, Method{"votes", "signsgd", "none"},
                      Method{"phases", "acpsgd", "residual"}, Method{"records", "dgc", "dgc"},
                      Method{"measures", "topk", "dgc",
                             "[memory.dgc]\nclipping = \"norm_global\"\n"},
                      Method{"shifts", "topk", "ef21"},
                      Method{"no_generations", "topk", "residual", "", "forget = false\n"},
                      Method{"strict", "topk", "residual", "", "nonfinite = \"strict\"\n"},
                      Method{"sums", "topk", "residual", "", "", PENSTOCK_SET_SUM}),
    [](const auto& info) { return info.param.name; });

// ---- Programs ----

std::vector<std::string> names_of(const BucketRun& bucket) {
  std::vector<std::string> names;
  for (const auto& stage : bucket.program) names.emplace_back(stage->name());
  return names;
}

// The program of the first bucket, on rank 0 of two hosts with two ranks each.
std::vector<std::string> program_of(const std::shared_ptr<const BoundScheme>& bound_scheme,
                                    const std::vector<DeclaredGradient>& declared, bool echoes) {
  std::array<Channel, 3> channels;
  SetContext context;
  context.take_group(Group::joined(0, std::vector<uint32_t>{0, 0, 1, 1}).value());
  context.echoes = echoes;
  for (const uint32_t level : {PENSTOCK_LEVEL_WORLD, PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS}) {
    Channel& channel = channels[level - PENSTOCK_LEVEL_WORLD];
    channel.group = context.at(level).group.view(0);
    context.at(level).transport.channel = &channel;
  }
  CompiledPlan::Gradients gradients;
  for (const DeclaredGradient& gradient : declared)
    gradients.push_back(std::make_unique<Gradient>(gradient));
  auto plan =
      make_plan(*bound_scheme->scheduler(), planning::OwnedModel(bound_scheme->model()).model());
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  auto compiled =
      CompiledPlan::make(context, bound_scheme, std::move(plan.value()), gradients, nullptr);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return compiled.ok() ? names_of(*compiled.value()->phase(0).front()) : std::vector<std::string>();
}

TEST(ProbedPrograms, AreThoseOfAStepOnEveryRouteButForWhatMeetsOtherRanks) {
  const std::vector<DeclaredGradient> declared{DeclaredGradient("weight", 0, {48, 64}),
                                               DeclaredGradient("bias", 1, {48})};
  for (const auto& [route, keys, tables] : std::vector<std::array<std::string, 3>>{
           {"flat", "compressor = \"topk\"\nmemory = \"dgc\"\nscheduler = \"fusion\"",
            "[memory.dgc]\nclipping = \"norm_global\"\n"},
           {"split", "compressor = \"none\"\nmemory = \"none\"\nscheduler = \"dear\""},
           {"hierarchical", "compressor = \"powersgd\"\nmemory = \"residual\""},
           {"shard", "compressor = \"efsign\"\nmemory = \"residual\""}}) {
    SCOPED_TRACE(route);
    const std::string scheme = testing::scheme_text(keys + "\nroute = \"" + route + "\"", tables);
    with_ranks(1, scheme, [&](Runtime& runtime, uint32_t) {
      const Services services = runtime.services();
      const Scheme& of_step = services.config.at_step(0);
      auto bound_scheme = BoundScheme::make(
          of_step, choose(of_step, {&declared[0], &declared[1]}), services.registry,
          {.world = 4, .owners_per_host = 2, .forward_waits = true});
      ASSERT_OK(bound_scheme.status());
      std::vector<std::string> step = program_of(bound_scheme.value(), declared, false);
      EXPECT_EQ(std::count(step.begin(), step.end(), "echo"), 0);
      EXPECT_EQ(std::count(step.begin(), step.end(), "ask"), route == "flat" ? 1 : 0);
      std::erase(step, "ask");
      std::replace(step.begin(), step.end(), std::string("exchange"), std::string("echo"));
      EXPECT_EQ(program_of(bound_scheme.value(), declared, true), step);
    });
  }
}

}  // namespace
}  // namespace penstock::probe_test
