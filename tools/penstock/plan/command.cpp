// penstock plan: predicts the fastest scheme for a model on a cluster, and needs neither.
#include "tools/penstock/commands.hpp"
#include "tools/penstock/plan/measure.hpp"
#include "tools/penstock/plan/programs.hpp"
#include "tools/penstock/plan/record.hpp"
#include "tools/penstock/plan/report.hpp"
#include "tools/penstock/plan/tables.hpp"
#include "tools/penstock/plan/timeline.hpp"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <memory>

namespace penstock::command {

namespace {

struct PlanOptions {
  std::string model = "resnet50";
  std::vector<std::string> schemes, plugin_path, sweeps;
  Cluster cluster;
  std::string link = "1gbit", local = "100gbit";
  double forward_ms = -1, backward_ms = -1, worth = 0.05;
  std::string costs, save_costs, html, trace, record, program;
  bool measure = false, json = false;
};

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.fail()) return failed_precondition("{}: cannot be written; check its folder", path);
  return {};
}

Result<ModelProfile> profile_of(const PlanOptions& options) {
  PENSTOCK_ASSIGN(ModelProfile profile, load_profile(options.model));
  const auto factor = [](double wanted_ms, double us, const char* what) -> Result<double> {
    if (wanted_ms < 0) return 1.0;
    if (us > 0) return wanted_ms * 1000 / us;
    return failed_precondition(
        "the profile's {} takes no time, so it cannot be made {} ms; "
        "give it one in the profile",
        what, wanted_ms);
  };
  PENSTOCK_ASSIGN(const double forward,
                  factor(options.forward_ms, profile.whole_forward_us, "forward"));
  PENSTOCK_ASSIGN(const double backward,
                  factor(options.backward_ms, profile.backward_us, "backward"));
  profile.scale(forward, backward);
  return profile;
}

Result<CostTable> costs_of(const PlanOptions& options, const std::vector<SchemeFile>& schemes) {
  if (!options.measure) return load_costs(options.costs);
  PENSTOCK_ASSIGN(CostTable costs, measure_costs(schemes));
  if (!options.save_costs.empty()) PENSTOCK_TRY(write_file(options.save_costs, costs.text()));
  return costs;
}

Status check_size(const Cluster& cluster) {
  constexpr uint64_t kMostRanks = 65536;
  const uint64_t ranks = uint64_t{cluster.hosts} * cluster.ranks_per_host;
  if (ranks <= kMostRanks) return {};
  return invalid_argument("{} hosts of {} ranks are {} ranks, expected at most {}", cluster.hosts,
                          cluster.ranks_per_host, ranks, kMostRanks);
}

Status tell_programs(const PlanOptions& options, const ModelProfile& profile) {
  PENSTOCK_ASSIGN(const std::vector<SchemeFile> schemes,
                  open_schemes({options.program}, options.plugin_path));
  if (schemes.size() != 2)
    return invalid_argument("--program {}: it holds {} schemes, expected the file of one",
                            options.program, schemes.size() - 1);
  const SchemeFile& file = schemes.back();
  PENSTOCK_ASSIGN(const CostTable costs, costs_of(options, schemes));
  const Cluster& cluster = options.cluster;
  PENSTOCK_ASSIGN(const Rehearsal rehearsal, Rehearsal::make(file, profile, cluster));
  PENSTOCK_ASSIGN(Prediction outcome, rehearsal.run(cluster, costs, ready_times(profile, cluster)));
  auto programs = Programs::make(file, profile, cluster, rehearsal, outcome.plan);
  PENSTOCK_TRY(programs.status().with_context(file.name));
  Predicted predicted{&profile, &schemes, cluster, costs.about, {}, 0, 0, {}};
  predicted.outcomes.push_back(std::move(outcome));
  if (options.json)
    print_json(json_of(predicted, *programs.value()));
  else
    print(text_of(predicted, *programs.value()));
  return {};
}

Status tell(PlanOptions options) {
  PENSTOCK_TRY(check_size(options.cluster));
  PENSTOCK_ASSIGN(const ModelProfile profile, profile_of(options));
  PENSTOCK_ASSIGN(options.cluster.link_bits, bits_per_second(options.link));
  PENSTOCK_ASSIGN(options.cluster.local_bits, bits_per_second(options.local));
  if (!options.program.empty()) return tell_programs(options, profile);
  std::vector<SweepRange> ranges;
  for (const std::string& text : options.sweeps) {
    PENSTOCK_ASSIGN(ranges.emplace_back(), sweep_range(text));
  }
  PENSTOCK_ASSIGN(const std::vector<SchemeFile> schemes,
                  open_schemes(options.schemes, options.plugin_path));
  PENSTOCK_ASSIGN(const CostTable costs, costs_of(options, schemes));

  Study study(schemes, profile, costs, options.worth);
  Predicted predicted{&profile, &schemes, options.cluster, costs.about, {}, 0, options.worth, {}};
  PENSTOCK_ASSIGN(predicted.outcomes, study.at(options.cluster));
  predicted.best = study.best(predicted.outcomes);
  for (const SweepRange& range : ranges) {
    PENSTOCK_ASSIGN(predicted.sweeps.emplace_back(), sweep(study, options.cluster, range));
  }
  if (options.json)
    print_json(json_of(predicted));
  else
    print(text_of(predicted));
  if (!options.html.empty()) PENSTOCK_TRY(write_file(options.html, page_of(predicted)));
  if (options.trace.empty()) return {};
  return write_file(options.trace, chrome_trace(schemes, predicted.outcomes, profile)
                                       .dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status record_and_tell(PlanOptions options, const Invocation& invocation) {
  if (options.record.empty() && invocation.has_dashes)
    return invalid_argument(
        "plan runs a job only to record its model, expected --record FILE before the --");
  if (!options.record.empty()) {
    PENSTOCK_TRY(record_profile(options.record, invocation.after_dashes));
    options.model = options.record;
  }
  return tell(std::move(options));
}

void add_cluster(CLI::App& app, PlanOptions& options) {
  Cluster& cluster = options.cluster;
  app.add_option("--hosts", cluster.hosts, "hosts")
      ->check(whole_from(1, 65536))
      ->capture_default_str();
  app.add_option("--ranks-per-host", cluster.ranks_per_host, "ranks that share a host's link")
      ->check(whole_from(1, 1024))
      ->capture_default_str();
  app.add_option("--link", options.link,
                 "speed of the link between a host and the others, like 2.5gbit")
      ->capture_default_str();
  app.add_option("--local", options.local, "speed of a rank's link within its host")
      ->capture_default_str();
  app.add_option("--latency", cluster.latency_us,
                 "us that a message between hosts takes in addition")
      ->check(number_from(0, 1e6))
      ->capture_default_str();
  app.add_option("--local-latency", cluster.local_latency_us,
                 "us that a message within a host takes in addition")
      ->check(number_from(0, 1e6))
      ->capture_default_str();
  app.add_option(
         "--headers", cluster.headers,
         "headers of packets between hosts, as a share of the bytes that the packets carry; "
         "default: TCP over Ethernet in frames of 1500 bytes")
      ->check(number_from(0, 10))
      ->capture_default_str();
  app.add_option("--straggler", cluster.straggler,
                 "one rank needs this many times as long to compute")
      ->check(number_from(1, 1000))
      ->capture_default_str();
  app.add_option("--jitter", cluster.jitter,
                 "deviation of each gradient's time on each rank, as a share of that time")
      ->check(number_from(0, 10))
      ->capture_default_str();
  app.add_option("--seed", cluster.seed, "seed of the jitter")->capture_default_str();
}

void add_costs(CLI::App& app, PlanOptions& options) {
  const CLI::Validator any_ms = number_from(0, kMostMs);
  app.add_option("--forward-ms", options.forward_ms, "time of forward, not as in the profile")
      ->check(any_ms);
  app.add_option("--backward-ms", options.backward_ms, "time of backward, not as in the profile")
      ->check(any_ms);
  CLI::Option* costs = app.add_option(
      "--costs", options.costs, "a table of the times of methods, instead of Penstock's own table");
  CLI::Option* measure = app.add_flag("--measure", options.measure,
                                      "measure the times of the methods now, on this machine");
  measure->excludes(costs);
  app.add_option("--save-costs", options.save_costs, "write the measured times")->needs(measure);
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* plan = app.add_subcommand(
      "plan", "Predict a step of each scheme for a model on a cluster, without model and cluster");
  plan->footer(fmt::format(
      "Steps only: the number of steps to a loss is not predicted (docs/convergence.md).\n"
      "Models: {}.\nExample: penstock plan --model bert-base --hosts 8 --link 10gbit\n"
      "Example: penstock plan --record mine.csv --hosts 8 --link 10gbit -- penstock run -np 2 -- "
      "python train.py",
      fmt::join(shipped_models(), ", ")));
  CLI::Option* model =
      plan->add_option("--model", options->model, "a model's name or the file of its profile")
          ->type_name("NAME|FILE")
          ->capture_default_str();
  plan->add_option("--record", options->record,
                   "run the job after --, write the profile of its model to this file, and use it")
      ->type_name("FILE")
      ->excludes(model);
  CLI::Option* scheme = plan->add_option("--scheme", options->schemes,
                                         "a TOML file or a folder of TOML files; may be given "
                                         "several times; default: all files of conf/")
                            ->allow_extra_args(false)
                            ->type_name("FILE|DIR");
  add_cluster(*plan, *options);
  add_costs(*plan, *options);
  CLI::Option* sweep =
      plan->add_option("--sweep", options->sweeps,
                       "find the best scheme over a range: bandwidth=10mbit..100gbit, or "
                       "ranks=2..1024; may be repeated")
          ->allow_extra_args(false);
  CLI::Option* worth =
      plan->add_option("--worth", options->worth,
                       "the share of a step that compression must save to be called best")
          ->check(number_from(0, 1))
          ->capture_default_str();
  CLI::Option* html =
      plan->add_option("--html", options->html, "write a page with timelines and sweeps");
  CLI::Option* trace =
      plan->add_option("--trace", options->trace, "write the timelines for Perfetto");
  CLI::Option* program = plan->add_option(
      "--program", options->program,
      "print only the program of a step of this scheme: the stages of every bucket, in order");
  program->type_name("FILE");
  for (CLI::Option* other : {scheme, sweep, worth, html, trace}) program->excludes(other);
  add_plugin_path(*plan, options->plugin_path);
  add_json_flag(*plan, options->json);
  plan->callback([options, &invocation] {
    const Status status = record_and_tell(*options, invocation);
    if (!status.ok()) invocation.status = fail(status.message());
  });
}

}  // namespace penstock::command
