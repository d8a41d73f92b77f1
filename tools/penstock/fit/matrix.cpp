#include "tools/penstock/fit/matrix.hpp"

#include "core/fit/bound_scheme.hpp"
#include "core/fit/offers.hpp"
#include "core/fit/resolve.hpp"
#include "core/plan/route.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

namespace penstock {

namespace {

constexpr uint32_t kWorld = 4;
constexpr uint32_t kAbleFrontend =
    PENSTOCK_SET_REPORTS_OUTCOME | PENSTOCK_SET_DEFERRED_UPDATE | PENSTOCK_SET_PREVIOUS_UPDATE;
// The size of the smallest sample, and its growth if rules exempt that size.
constexpr uint64_t kRows = 64, kColumns = 32, kGrowth = 32, kMostGrowth = uint64_t{1} << 20;

// A sample with `n_dims` dimensions. Its number of entries is in `elements` and about `growth`
// times the smallest sample's.
DeclaredGradient sample_within(uint64_t n_dims, const Range& elements, uint64_t growth,
                               uint32_t dtype) {
  uint64_t rows = kRows, columns = growth * (n_dims > 1 ? kColumns : 1);
  if (rows * columns < elements.minimum) columns = (elements.minimum + rows - 1) / rows;
  if (rows * columns > elements.maximum) rows = elements.maximum, columns = 1;
  std::vector<int64_t> shape(std::max<uint64_t>(n_dims, 1), 1);
  shape.front() = static_cast<int64_t>(n_dims > 1 ? rows : rows * columns);
  if (n_dims > 1) shape.back() = static_cast<int64_t>(columns);
  return {n_dims > 1 ? "a matrix" : "a vector", 0, std::move(shape), dtype};
}

// True if a rule before this one, which matches without names, takes the gradient.
bool is_taken_before(const Scheme& scheme, size_t rule, const DeclaredGradient& gradient) {
  for (size_t i = 0; i < scheme.rules.size() && i + 1 != rule; ++i) {
    const Match& match = scheme.rules[i].match;
    if (match.names.empty() && match.holds(gradient.facts())) return true;
  }
  return false;
}

// The smallest sample that no earlier rule takes.
std::optional<DeclaredGradient> sample_of(const Scheme& scheme, size_t rule, const Match& match,
                                          uint64_t n_dims) {
  const Range elements = match.elements.value_or(Range{});
  const uint32_t dtype = match.dtype.value_or(PENSTOCK_FLOAT32);
  for (uint64_t growth = 1; growth <= kMostGrowth; growth *= kGrowth) {
    DeclaredGradient gradient = sample_within(n_dims, elements, growth, dtype);
    if (!is_taken_before(scheme, rule, gradient)) return gradient;
  }
  return std::nullopt;
}

// The samples of a rule: a matrix and a vector, if the rule matches them; otherwise a sample with
// the rule's least number of dimensions.
std::vector<DeclaredGradient> samples_for(const Scheme& scheme, size_t rule) {
  constexpr uint64_t kMostDims = 16;
  const Match match = rule == 0 ? Match{} : scheme.rules[rule - 1].match;
  const Range dims = match.dims.value_or(Range{});
  std::vector<uint64_t> wanted;
  for (const uint64_t n_dims : {2, 1})
    if (dims.holds(n_dims)) wanted.push_back(n_dims);
  if (wanted.empty() && dims.minimum > 2 && dims.minimum <= kMostDims)
    wanted.push_back(dims.minimum);
  std::vector<DeclaredGradient> samples;
  for (const uint64_t n_dims : wanted)
    if (auto gradient = sample_of(scheme, rule, match, n_dims))
      samples.push_back(std::move(*gradient));
  return samples;
}

// Binds the samples of each rule, and of [scheme] for gradients that match no rule. Describes the
// result in `input`. The samples end with this call; only facts about them remain.
Result<std::shared_ptr<const BoundScheme>> fit_samples(const Scheme& scheme, Registry& registry,
                                                       FitInput& input) {
  std::deque<DeclaredGradient> samples;
  std::vector<ChosenGradient> chosen;
  for (size_t rule = 0; rule <= scheme.rules.size(); ++rule)
    for (DeclaredGradient& gradient : samples_for(scheme, rule)) {
      samples.push_back(std::move(gradient));
      chosen.push_back({&samples.back(), scheme.choice_of(rule)});
    }
  PENSTOCK_ASSIGN(const auto bound_scheme,
                  BoundScheme::make(scheme, std::move(chosen), registry, {kWorld}));
  bound_scheme->describe(input);
  return bound_scheme;
}

// A transport without limits, for combinations whose transport does not matter.
CollectiveFacts able_transport() {
  return {"mpi",
          PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_SAME_BITS |
              PENSTOCK_COLLECTIVE_RANK_ORDER,
          ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};
}

Result<CollectiveFacts> facts_of_collective(const Scheme& scheme, const std::string& name,
                                            Registry& registry) {
  const InstanceConfig* config = scheme.find(Kind::collective, name);
  if (config != nullptr && config->plugin == kBorrowedCollective) {
    CollectiveFacts borrowed = able_transport();
    borrowed.name = name;
    return borrowed;
  }
  PENSTOCK_ASSIGN(const auto instance, make_instance<penstock_collective>(scheme, name, registry));
  return collective_facts(instance->name(), instance->traits());
}

Result<FitAdvice> check_stage(const Scheme& scheme, const RuntimeConfig& runtime,
                              Registry& registry) {
  FitInput input;
  input.frontend = kAbleFrontend;
  input.deterministic = runtime.deterministic;
  PENSTOCK_ASSIGN(input.collective, facts_of_collective(scheme, scheme.collective, registry));
  if (!scheme.transport.empty()) {
    PENSTOCK_ASSIGN(input.transport, facts_of_collective(scheme, scheme.transport, registry));
  }
  for (const auto& [level, name] : {std::pair(PENSTOCK_LEVEL_LOCAL, scheme.local_transport),
                                    std::pair(PENSTOCK_LEVEL_CROSS, scheme.cross_transport)})
    if (!name.empty()) {
      PENSTOCK_ASSIGN(input.of_level[level], facts_of_collective(scheme, name, registry));
    }
  if (!scheme.device_transport.empty()) {
    PENSTOCK_ASSIGN(input.between_devices,
                    facts_of_collective(scheme, scheme.device_transport, registry));
  }
  PENSTOCK_TRY(fit_samples(scheme, registry, input).status());
  const RegistryOffers offers(registry);
  input.offers = &offers;
  return check_fit(input);
}

std::string place_of(const Config& config, const Scheme& scheme) {
  for (const char* key :
       {"compressor", "collective", "scheduler", "memory", "route", "owner_memory", "apply"})
    if (const auto where = scheme.where.find(key); where != scheme.where.end())
      return where->second.text();
  return config.origin();
}

}  // namespace

Result<FitAdvice> check_fit_of_config(const Config& config, Registry& registry) {
  PENSTOCK_TRY(check_config(config, registry));
  FitAdvice all;
  for (const uint64_t stage : config.stages()) {
    const Scheme scheme = config.at_step(stage);
    const Result<FitAdvice> advice = check_stage(scheme, config.runtime(), registry);
    if (!advice.ok()) {
      const Status status =
          stage == 0 ? advice.status()
                     : advice.status().with_context(fmt::format("from step {} on", stage));
      return status.with_context(place_of(config, scheme));
    }
    for (const std::string& warning : advice.value().warnings)
      if (std::find(all.warnings.begin(), all.warnings.end(), warning) == all.warnings.end())
        all.warnings.push_back(warning);
  }
  return all;
}

// ---- penstock plugins matrix ----

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::poor:
      return "poor";
    default:
      return "no";
  }
}

namespace {

std::vector<std::string> names_of(Registry& registry, Kind kind) {
  std::vector<std::string> names;
  for (const PluginFile& file : registry.files())
    if (file.record.kind == kind) names.push_back(file.record.name);
  return names;
}

// An input whose parts except compressor and memory have no limits, so that a refusal is due to the
// pair.
FitInput neutral_input() {
  FitInput input;
  input.collective = able_transport();
  input.scheduler = {"fusion", ~uint64_t{0}, 0};
  input.frontend = kAbleFrontend;
  input.world = kWorld;
  return input;
}

void judge(MatrixCell& cell, const Status& made, const FitInput& input) {
  if (!made.ok()) {
    cell.note = made.message();
    return;
  }
  const Result<FitAdvice> advice = check_fit(input);
  if (!advice.ok()) {
    cell.note = advice.status().message();
  } else if (advice.value().warnings.empty()) {
    cell.verdict = Verdict::ok;
  } else {
    cell.verdict = Verdict::poor;
    cell.note = advice.value().warnings.front();
  }
}

// A scheme of two instances with the names of their plugins, without a scheduler.
Scheme scheme_of(const std::string& compressor, const std::string& memory) {
  Scheme scheme;
  for (const auto& [kind, name] :
       {std::pair(Kind::compressor, compressor), std::pair(Kind::memory, memory)})
    scheme.instances[{kind, name}] = {kind, name, name, {}, {"defaults", 0, 0}};
  scheme.compressor = compressor;
  scheme.memory = memory;
  scheme.scheduler.clear();
  return scheme;
}

MatrixCell pair_cell(const std::string& compressor, const std::string& memory, Registry& registry) {
  MatrixCell cell{compressor, memory, Verdict::no, ""};
  FitInput input = neutral_input();
  judge(cell, fit_samples(scheme_of(compressor, memory), registry, input).status(), input);
  return cell;
}

std::string route_title(uint32_t route) {
  return fmt::format("route {}", route_name(route));
}

// The cell of a compressor on a route. On routes with coding owners, the owners use a residual,
// independent of the gradients' memory.
MatrixCell route_cell(const std::string& compressor, const std::string& memory, uint32_t route,
                      Registry& registry) {
  MatrixCell cell{compressor, route_title(route), Verdict::no, ""};
  Scheme scheme = scheme_of(compressor, memory);
  if (encodes_for_owners(route)) {
    scheme.owner_memory = "residual";
    scheme.instances.try_emplace({Kind::memory, "residual"},
                                 InstanceConfig{Kind::memory, "residual", "residual", {}, {}});
  }
  FitInput input = neutral_input();
  input.route = route;
  judge(cell, fit_samples(scheme, registry, input).status(), input);
  return cell;
}

// Adds the cells of a compressor on each route and over each collective, with its best memory.
void add_way_cells(const std::string& compressor, const std::string& memory, Registry& registry,
                   std::vector<MatrixCell>& cells) {
  FitInput groups = neutral_input();
  const Status made = fit_samples(scheme_of(compressor, memory), registry, groups).status();
  for (const planning::Route& of : planning::kRoutes)
    cells.push_back(route_cell(compressor, memory, of.number, registry));
  Scheme scheme;
  for (const std::string& name : names_of(registry, Kind::collective)) {
    MatrixCell& cell = cells.emplace_back(MatrixCell{compressor, name, Verdict::no, ""});
    scheme.instances[{Kind::collective, name}] = {
        Kind::collective, name, name, {}, {"defaults", 0, 0}};
    FitInput input = groups;
    const auto facts = facts_of_collective(scheme, name, registry);
    if (facts.ok()) input.collective = facts.value();
    input.has_transport = (input.collective.flags & PENSTOCK_COLLECTIVE_COMPOSITE) != 0;
    input.transport = able_transport();
    judge(cell, made.ok() ? facts.status() : made, input);
  }
}

void add_scheduler_cells(const std::string& name, Registry& registry,
                         std::vector<MatrixCell>& cells) {
  Scheme scheme;
  scheme.instances[{Kind::scheduler, name}] = {Kind::scheduler, name, name, {}, {"defaults", 0, 0}};
  const auto scheduler = make_instance<penstock_scheduler>(scheme, name, registry);
  for (const planning::Route& of : planning::kRoutes) {
    FitInput input = neutral_input();
    if (scheduler.ok()) input.scheduler = scheduler_facts(name, scheduler.value()->traits());
    input.route = of.number;
    judge(cells.emplace_back(MatrixCell{name, route_title(of.number), Verdict::no, ""}),
          scheduler.status(), input);
  }
}

}  // namespace

std::vector<Matrix> fit_matrices(Registry& registry) {
  Matrix pairs{"compressor", "compressors with memories", {}};
  Matrix ways{"compressor", "compressors with routes and collectives", {}};
  Matrix schedulers{"scheduler", "schedulers with routes", {}};
  const std::vector<std::string> memories = names_of(registry, Kind::memory);
  for (const std::string& compressor : names_of(registry, Kind::compressor)) {
    // The first memory with the best verdict.
    const MatrixCell* best = nullptr;
    const size_t first = pairs.cells.size();
    for (const std::string& memory : memories)
      pairs.cells.push_back(pair_cell(compressor, memory, registry));
    for (size_t i = first; i < pairs.cells.size(); ++i)
      if (best == nullptr || pairs.cells[i].verdict < best->verdict) best = &pairs.cells[i];
    if (best != nullptr) add_way_cells(compressor, best->column, registry, ways.cells);
  }
  for (const std::string& name : names_of(registry, Kind::scheduler))
    add_scheduler_cells(name, registry, schedulers.cells);
  return {std::move(pairs), std::move(ways), std::move(schedulers)};
}

}  // namespace penstock
