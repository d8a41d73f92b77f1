#include "core/fit/offers.hpp"

#include "core/config/defaults.hpp"
#include "core/fit/item.hpp"
#include "core/plugin/instances.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

namespace penstock {

// ---- the available plugins ----

namespace {

constexpr uint32_t kWorld = 4;  // ranks for which a matrix is planned

template <typename Table>
std::vector<std::unique_ptr<Instance<Table>>> instances_of(Registry& registry, CallSlot* calls) {
  constexpr Kind kKind = TableTraits<Table>::kKind;
  std::vector<std::unique_ptr<Instance<Table>>> instances;
  for (const PluginFile& file : registry.files()) {
    if (file.record.kind != kKind || !file.usable.ok()) continue;
    const std::string& name = file.record.name;
    const Result<std::shared_ptr<const Plugin>> plugin = registry.load(kKind, name);
    if (!plugin.ok()) continue;
    const PluginCall noted(calls, kind_name(kKind), name, "create");
    Result<std::unique_ptr<Instance<Table>>> instance =
        Instance<Table>::make({kKind, name, name, {}, {"defaults", 0, 0}}, plugin.value());
    if (instance.ok()) instances.push_back(std::move(instance.value()));
  }
  return instances;
}

Result<ItemNeeds> plan_matrix(CompressorInstance& compressor, MemoryInstance& memory,
                              CallSlot* calls) {
  const DeclaredGradient matrix("a matrix", 0, {64, 32});
  TemplateItem item(matrix, {0, 0, matrix.numel, 0});
  return plan_template(item, compressor, memory, kWorld, true, calls);
}

bool is_lossless(const CompressorFacts& facts) {
  return (facts.need_flags & PENSTOCK_NEED_LOSSLESS) != 0;
}

}  // namespace

std::vector<CompressorFacts> RegistryOffers::compressors() const {
  std::vector<CompressorFacts> facts;
  const auto memories = instances_of<penstock_memory>(registry_, calls_);
  for (const auto& compressor : instances_of<penstock_compressor>(registry_, calls_))
    for (const auto& memory : memories)
      if (auto needs = plan_matrix(*compressor, *memory, calls_); needs.ok()) {
        facts.push_back(needs->compressor_facts);
        break;
      }
  return facts;
}

// Each memory is planned with a lossy compressor, because with a lossless one it keeps nothing.
std::vector<MemoryFacts> RegistryOffers::memories() const {
  std::vector<MemoryFacts> facts;
  const auto compressors = instances_of<penstock_compressor>(registry_, calls_);
  for (const auto& memory : instances_of<penstock_memory>(registry_, calls_))
    for (const auto& compressor : compressors)
      if (auto needs = plan_matrix(*compressor, *memory, calls_);
          needs.ok() && !is_lossless(needs->compressor_facts)) {
        facts.push_back(needs->memory_facts);
        break;
      }
  return facts;
}

std::vector<CollectiveFacts> RegistryOffers::collectives() const {
  std::vector<CollectiveFacts> facts;
  for (const auto& collective : instances_of<penstock_collective>(registry_, calls_))
    facts.push_back(collective_facts(collective->name(), collective->traits()));
  return facts;
}

std::vector<SchedulerFacts> RegistryOffers::schedulers() const {
  std::vector<SchedulerFacts> facts;
  for (const auto& scheduler : instances_of<penstock_scheduler>(registry_, calls_))
    facts.push_back(scheduler_facts(scheduler->name(), scheduler->traits()));
  return facts;
}

// ---- plugins that would work instead ----

namespace {

// The order in which plugins are named: the default first, then plugins with few special traits.
int oddity(const CompressorFacts& facts) {
  if (facts.name == defaults::kCompressor) return -1;
  return static_cast<int>(facts.n_rounds) + facts.same_bits + facts.final_result +
         facts.replicates + std::popcount(facts.traits & ~PENSTOCK_COMPRESSOR_UNBIASED);
}

int oddity(const MemoryFacts& facts) {
  if (facts.name == defaults::kMemory) return -1;
  return facts.owns_momentum + facts.finishes + facts.adds_rest + facts.shifts + facts.same_bits +
         facts.records + facts.works_in_scratch;
}

int oddity(const CollectiveFacts& facts) {
  const auto& usual = defaults::kTransports;
  return static_cast<int>(std::find(usual.begin(), usual.end(), facts.name) - usual.begin());
}

int oddity(const SchedulerFacts& facts) {
  return facts.name == defaults::kScheduler ? -1 : std::popcount(facts.flags);
}

// The number of faults that the rules find. Offers are removed, so that a rule does not search for
// alternatives to an alternative.
size_t faults_of(FitInput input) {
  input.offers = nullptr;
  const Result<FitAdvice> advice = check_fit(input);
  return advice.ok() ? advice.value().warnings.size() : std::numeric_limits<size_t>::max();
}

// The names of the offered plugins with the fewest faults, and fewer than now, after `put` has
// inserted each into the input.
template <typename Facts, typename Put>
std::vector<std::string> better(const FitInput& now, std::vector<Facts> offered, Put put) {
  size_t fewest = faults_of(now);
  std::vector<std::tuple<int, std::string>> found;
  for (const Facts& facts : offered) {
    FitInput trial = now;
    put(trial, facts);
    const size_t faults = faults_of(std::move(trial));
    if (faults > fewest || (faults == fewest && found.empty())) continue;
    if (faults < fewest) found.clear();
    fewest = faults;
    found.emplace_back(oddity(facts), facts.name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [rank, name] : found) names.push_back(std::move(name));
  return names;
}

template <typename Facts>
std::vector<Facts> those_of(std::vector<Facts> offered,
                            const std::function<bool(const Facts&)>& is_meant) {
  if (is_meant != nullptr)
    std::erase_if(offered, [&](const Facts& facts) { return !is_meant(facts); });
  return offered;
}

std::string instead(std::string_view key, const std::vector<std::string>& names,
                    std::string_view kind, std::string_view does) {
  if (names.empty()) return fmt::format("a {} that {}", kind, does);
  return fmt::format("{} = {}", key, alternatives(names));
}

FitInput with_group_alone(const FitInput& input, const FitGroup& group) {
  FitInput alone = input;
  alone.groups = {group};
  return alone;
}

}  // namespace

std::string alternatives(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  if (names.size() == 1) return fmt::format("\"{}\"", names[0]);
  return fmt::format("\"{}\" or \"{}\"", names[0], names[1]);
}

std::string other_compressor(const FitInput& input, const FitGroup& group, std::string_view does,
                             const std::function<bool(const CompressorFacts&)>& is_meant) {
  std::vector<std::string> names;
  if (input.offers != nullptr)
    names = better(
        with_group_alone(input, group), those_of(input.offers->compressors(), is_meant),
        [](FitInput& trial, const CompressorFacts& facts) { trial.groups[0].compressor = facts; });
  return instead("compressor", names, "compressor", does);
}

std::string other_memory(const FitInput& input, const FitGroup& group, std::string_view does,
                         const std::function<bool(const MemoryFacts&)>& is_meant) {
  std::vector<std::string> names;
  if (input.offers != nullptr)
    names =
        better(with_group_alone(input, group), those_of(input.offers->memories(), is_meant),
               [](FitInput& trial, const MemoryFacts& facts) { trial.groups[0].memory = facts; });
  return instead("memory", names, "memory", does);
}

std::string other_collective(const FitInput& input, std::string_view does) {
  std::vector<std::string> names;
  if (input.offers != nullptr)
    names = better(input, input.offers->collectives(),
                   [](FitInput& trial, const CollectiveFacts& facts) { trial.collective = facts; });
  return instead("collective", names, "collective", does);
}

std::string other_collective(const FitInput& input, const FitGroup& group, std::string_view does) {
  FitInput alone = with_group_alone(input, group);
  alone.has_transport = false;
  return other_collective(alone, does);
}

std::string other_device_transport(const FitInput& input, std::string_view does) {
  std::vector<std::string> names;
  if (input.offers != nullptr)
    names = better(
        input, input.offers->collectives(),
        [](FitInput& trial, const CollectiveFacts& facts) { trial.between_devices = facts; });
  return instead("transport.device", names, "transport.device", does);
}

std::string other_scheduler(const FitInput& input, std::string_view does) {
  std::vector<std::string> names;
  FitInput alone = input;
  alone.groups.clear();
  if (input.offers != nullptr)
    names = better(alone, input.offers->schedulers(),
                   [](FitInput& trial, const SchedulerFacts& facts) { trial.scheduler = facts; });
  return instead("scheduler", names, "scheduler", does);
}

}  // namespace penstock
