#include "tools/penstock/plan/programs.hpp"

#include "core/fit/rules.hpp"

#include <fmt/ranges.h>

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace penstock::command {

namespace {

// A composite without functions, so it needs nothing at plan time. Its needs would not change any
// program.
constexpr penstock_collective kUnasked{};

// Limits this process to the free memory of this machine while the object exists, so that a model
// that is too large ends in an error message. Buckets take as much memory as in a run.
class FreeMemoryAlone {
 public:
  FreeMemoryAlone() {
    (void)getrlimit(RLIMIT_DATA, &before_);
    rlimit now = before_;
    now.rlim_cur = std::min<rlim_t>(before_.rlim_cur, available());
    (void)setrlimit(RLIMIT_DATA, &now);
  }
  ~FreeMemoryAlone() { (void)setrlimit(RLIMIT_DATA, &before_); }
  FreeMemoryAlone(const FreeMemoryAlone&) = delete;
  FreeMemoryAlone& operator=(const FreeMemoryAlone&) = delete;

 private:
  static rlim_t available() {
    std::ifstream file("/proc/meminfo");
    for (std::string name; file >> name;)
      if (rlim_t kib = 0; name == "MemAvailable:" && file >> kib) return kib << 10;
    return RLIM_INFINITY;
  }
  rlimit before_{};
};

std::string_view wait_name(Stage::Wait wait) {
  switch (wait) {
    case Stage::Wait::messages:
      return "messages";
    case Stage::Wait::device:
      return "its device";
    case Stage::Wait::next_forward:
      return "the next forward";
    case Stage::Wait::yield:
      return "its turn";
    default:
      return "";
  }
}

std::string_view part_name(Stage::Part part) {
  switch (part) {
    case Stage::Part::encode:
      return "encode";
    case Stage::Part::exchange:
      return "exchange";
    case Stage::Part::decode:
      return "decode";
    default:
      return "";
  }
}

std::string stages_text(const Program& program) {
  Table table({"STAGE", "WAITS FOR", "COUNTS AS"});
  for (const auto& stage : program)
    table.add({std::string(stage->name()), std::string(wait_name(stage->wait())),
               std::string(part_name(stage->part()))});
  return table.text();
}

// Writes ascending numbers as ranges: "0 to 4, 7".
std::string ranges_text(const std::vector<uint32_t>& numbers) {
  std::vector<std::string> ranges;
  for (size_t first = 0, last = 0; first < numbers.size(); first = last + 1) {
    last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    ranges.push_back(first == last ? fmt::format("{}", numbers[first])
                                   : fmt::format("{} to {}", numbers[first], numbers[last]));
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

}  // namespace

Programs::Programs(const SchemeFile& file, const ModelProfile& profile, const Cluster& cluster) {
  std::vector<uint32_t> hosts;
  for (uint32_t rank = 0; rank < cluster.ranks(); ++rank)
    hosts.push_back(rank / cluster.ranks_per_host);
  context_.name = file.name;
  context_.take_group(Group::joined(0, hosts).value());
  for (const uint32_t level : {PENSTOCK_LEVEL_WORLD, PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS}) {
    LevelLinks& links = context_.at(level);
    Channel& transport = transports_[level - PENSTOCK_LEVEL_WORLD];
    transport.members = links.group;
    transport.group = transport.members.view(0);
    links.transport.channel = &transport;
    if (file.scheme.transport.empty() || level == PENSTOCK_LEVEL_LOCAL) continue;
    Channel& composite = composites_[level - PENSTOCK_LEVEL_WORLD];
    composite.table = &kUnasked;
    links.composite.channel = &composite;
  }
  context_.composite_name = context_.composite_id = file.scheme.collective;
  context_.transport_name = file.scheme.transport;
  context_.forgets = file.runtime.forget;
  context_.nonfinite_is_strict = file.runtime.nonfinite == Nonfinite::strict;
  context_.step.struct_size = sizeof context_.step;
  context_.step.world = context_.world;
  for (const DeclaredGradient& gradient : profile.gradients)
    gradients_.push_back(std::make_unique<Gradient>(gradient));
}

Result<std::unique_ptr<Programs>> Programs::make(const SchemeFile& file,
                                                 const ModelProfile& profile,
                                                 const Cluster& cluster, const Rehearsal& rehearsal,
                                                 Plan plan) {
  FitInput input;
  input.arena_limit_bytes = file.runtime.arena_limit_mb << 20;
  rehearsal.bound_scheme()->describe(input);
  PENSTOCK_TRY(check_size(input));
  std::unique_ptr<Programs> made(new Programs(file, profile, cluster));
  const FreeMemoryAlone limit;
  auto compiled = CompiledPlan::make(made->context_, rehearsal.bound_scheme(), std::move(plan),
                                     made->gradients_, nullptr);
  if (compiled.status().code() == Code::out_of_memory)
    return out_of_memory(
        "{}; they take as much here as on a rank: name a smaller model, or run this where more "
        "memory is free",
        compiled.status().message());
  PENSTOCK_TRY(compiled.status());
  made->compiled_ = std::move(compiled.value());
  return made;
}

std::string Programs::text() const {
  std::string text;
  for (uint32_t phase = 0; phase < compiled_->period(); ++phase) {
    std::map<std::pair<uint32_t, std::string>, std::vector<uint32_t>> users;  // by route, stages
    for (const auto& bucket : compiled_->phases()[phase])
      users[{bucket->plan.route, stages_text(bucket->program)}].push_back(bucket->number);
    for (const auto& [program, numbers] : users)
      text += fmt::format("{}phase {}, {} {}, route {}:\n{}", text.empty() ? "" : "\n\n", phase,
                          numbers.size() == 1 ? "bucket" : "buckets", ranges_text(numbers),
                          route_name(program.first), program.second);
  }
  return text;
}

Json Programs::json() const {
  Json buckets = Json::array();
  for (uint32_t phase = 0; phase < compiled_->period(); ++phase)
    for (const auto& bucket : compiled_->phases()[phase]) {
      Json gradients = Json::array(), program = Json::array();
      for (const PieceRun& piece : bucket->pieces) gradients.push_back(piece.gradient->name);
      for (const auto& stage : bucket->program) program.push_back(stage->name());
      buckets.push_back({{"phase", phase},
                         {"number", bucket->number},
                         {"route", route_name(bucket->plan.route)},
                         {"gradients", gradients},
                         {"program", program}});
    }
  return buckets;
}

}  // namespace penstock::command
