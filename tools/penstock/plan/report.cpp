#include "tools/penstock/plan/report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace penstock::command {

namespace {

std::string plural(uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Writes a number in groups of digits: "25 557 032".
std::string grouped(uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ' ');
  return text;
}

std::string times_text(double ratio) {
  return fmt::format("{:.2f} x", ratio);
}

std::string cluster_text(const Cluster& cluster) {
  std::string text = fmt::format(
      "{} with {} each, {} and {:g} us a message between hosts", plural(cluster.hosts, "host"),
      plural(cluster.ranks_per_host, "rank"), rate_text(cluster.link_bits), cluster.latency_us);
  if (cluster.ranks_per_host > 1)
    text += fmt::format(", {} and {:g} us within", rate_text(cluster.local_bits),
                        cluster.local_latency_us);
  if (cluster.straggler != 1)
    text += fmt::format("; one rank takes {:g} times as long", cluster.straggler);
  if (cluster.jitter != 0)
    text += fmt::format("; times vary by {:g} % (seed {})", 100 * cluster.jitter, cluster.seed);
  return text;
}

Json premises_json(const Predicted& told) {
  const ModelProfile& profile = *told.profile;
  const Cluster& cluster = told.cluster;
  return {{"model",
           {{"name", profile.name},
            {"about", profile.about},
            {"gradients", profile.gradients.size()},
            {"parameters", profile.parameters()},
            {"forward_ms", profile.whole_forward_us / 1000},
            {"backward_ms", profile.backward_us / 1000}}},
          {"cluster",
           {{"hosts", cluster.hosts},
            {"ranks_per_host", cluster.ranks_per_host},
            {"link_bits_per_s", cluster.link_bits},
            {"local_bits_per_s", cluster.local_bits},
            {"latency_us", cluster.latency_us},
            {"local_latency_us", cluster.local_latency_us},
            {"headers", cluster.headers},
            {"straggler", cluster.straggler},
            {"jitter", cluster.jitter},
            {"seed", cluster.seed}}},
          {"costs", told.costs}};
}

Json json_of(const Predicted& told, const Sweep& sweep) {
  Json points = Json::array(), crossovers = Json::array();
  for (const SweepPoint& point : sweep.points) {
    Json steps = Json::object();
    for (size_t i = 0; i < point.step_us.size(); ++i)
      if (!told.outcomes[i].open) steps[told.name(i)] = point.step_us[i] / 1000;
    points.push_back({{"at", point.at}, {"best", told.name(point.best)}, {"step_ms", steps}});
  }
  for (const Crossover& crossover : sweep.crossovers)
    crossovers.push_back({{"at", crossover.at},
                          {"from", told.name(crossover.from)},
                          {"to", told.name(crossover.to)}});
  return {{"over", sweep.range.name()}, {"points", points}, {"crossovers", crossovers}};
}

std::string premises_text(const Predicted& told) {
  std::string text;
  for (const auto& [name, sentence] : premises(told))
    text += fmt::format("{:<9}{}\n", name, sentence);
  return text;
}

std::string sweep_text(const Predicted& told, const Sweep& sweep) {
  Table table({sweep.range.what == SweptFor::ranks ? "RANKS" : "LINK", "BEST", "STEP", "DENSE STEP",
               "AGAINST DENSE"});
  for (const SweepPoint& point : sweep.points)
    table.add({place_text(sweep.range.what, point.at), told.name(point.best),
               time_text(point.step_us[point.best]), time_text(point.step_us.front()),
               times_text(Predicted::ratio(point.step_us.front(), point.step_us[point.best]))});
  return table.text() + "\n" + verdict(told, sweep);
}

}  // namespace

std::string time_text(double us) {
  if (us >= 1e8) return fmt::format("{:.0f} s", us / 1e6);
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  return us >= 1e5 ? fmt::format("{:.0f} ms", us / 1000) : fmt::format("{:.3g} ms", us / 1000);
}

std::vector<size_t> Predicted::by_speed() const {
  std::vector<size_t> order(outcomes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (outcomes[a].open != outcomes[b].open) return outcomes[b].open;
    return outcomes[a].step_us < outcomes[b].step_us;
  });
  return order;
}

std::vector<std::pair<std::string, std::string>> premises(const Predicted& told) {
  const ModelProfile& profile = *told.profile;
  std::vector<std::pair<std::string, std::string>> lines{
      {"model", fmt::format("{}: {} gradients, {} parameters, {}; forward {}, backward {}",
                            profile.name, profile.gradients.size(), grouped(profile.parameters()),
                            bytes_text(4.0 * double(profile.parameters())),
                            time_text(profile.whole_forward_us), time_text(profile.backward_us))},
      {"from", profile.about},
      {"cluster", cluster_text(told.cluster)},
      {"costs", "of encoding and decoding: " + told.costs}};
  std::set<std::string> missing;
  for (const Prediction& outcome : told.outcomes)
    missing.insert(outcome.without_cost.begin(), outcome.without_cost.end());
  if (!missing.empty())
    lines.push_back({"free", fmt::format("{} counted as costing nothing: no table has their times; "
                                         "--measure measures them here",
                                         fmt::join(missing, ", "))});
  return lines;
}

std::string verdict(const Predicted& told) {
  const auto as_fast = [&](size_t scheme) {
    return fmt::format("{:.2f} times as fast as dense", told.against_dense(told.outcomes[scheme]));
  };
  if (told.outcomes[told.best].compresses)
    return fmt::format("Best is {}: {} {}.", told.name(told.best), as_fast(told.best), kPerStep);
  std::string text = fmt::format("Do not compress: best is {}", told.name(told.best));
  if (told.best != 0) text += fmt::format(", {}", as_fast(told.best));
  const size_t compressed = fastest(told.outcomes, true);
  if (compressed != told.outcomes.size())
    text += fmt::format("; {}, {}, does not save {:g} % of its step", told.name(compressed),
                        as_fast(compressed), 100 * told.worth);
  return text + fmt::format(" ({}).", kPerStep);
}

std::string best_over(const Predicted& told, const Sweep& sweep) {
  const auto called = [&](size_t scheme) {
    return told.name(scheme) + (told.outcomes[scheme].compresses ? "" : " (do not compress)");
  };
  std::string text = called(sweep.points.front().best);
  for (const Crossover& crossover : sweep.crossovers)
    text += fmt::format("; from {} on {}", place_text(sweep.range.what, crossover.at),
                        called(crossover.to));
  return text;
}

std::string verdict(const Predicted& told, const Sweep& sweep) {
  return fmt::format("Over {}, {}: {}.", sweep.range.name(), kPerStep, best_over(told, sweep));
}

std::string text_of(const Predicted& told) {
  std::string text = premises_text(told);
  Table table({"SCHEME", "STEP", "AGAINST DENSE", "WAITS", "ENCODES", "EXCHANGES", "DECODES",
               "SENT PER RANK", "BUCKETS"});
  for (const size_t i : told.by_speed()) {
    const Prediction& outcome = told.outcomes[i];
    if (outcome.open) {
      table.add({told.name(i), "depends on values"});
      continue;
    }
    table.add({told.name(i), time_text(outcome.step_us), times_text(told.against_dense(outcome)),
               time_text(outcome.exposed_us), time_text(outcome.encode_us),
               time_text(outcome.exchange_us), time_text(outcome.decode_us),
               bytes_text(outcome.bytes), fmt::format("{}", outcome.timeline.buckets.size())});
  }
  text += "\n" + table.text() + "\n\n" + verdict(told);
  for (const Sweep& sweep : told.sweeps) text += "\n\n" + sweep_text(told, sweep);
  return text;
}

Json json_of(const Predicted& told) {
  Json schemes = Json::array(), sweeps = Json::array();
  for (size_t i = 0; i < told.outcomes.size(); ++i) {
    const Prediction& outcome = told.outcomes[i];
    const auto known = [&](double value) { return outcome.open ? Json(nullptr) : Json(value); };
    schemes.push_back({{"name", told.name(i)},
                       {"compresses", outcome.compresses},
                       {"depends_on_values", outcome.open},
                       {"step_ms", known(outcome.step_us / 1000)},
                       {"against_dense", known(told.against_dense(outcome))},
                       {"exposed_ms", known(outcome.exposed_us / 1000)},
                       {"encode_ms", known(outcome.encode_us / 1000)},
                       {"exchange_ms", known(outcome.exchange_us / 1000)},
                       {"decode_ms", known(outcome.decode_us / 1000)},
                       {"sent_bytes", known(outcome.bytes)},
                       {"buckets", outcome.timeline.buckets.size()},
                       {"without_cost", outcome.without_cost},
                       {"explanation", outcome.explanation}});
  }
  for (const Sweep& sweep : told.sweeps) sweeps.push_back(json_of(told, sweep));
  Json json = premises_json(told);
  json["schemes"] = schemes;
  json["best"] = {{"scheme", told.name(told.best)},
                  {"compress", told.outcomes[told.best].compresses},
                  {"against_dense", told.against_dense(told.outcomes[told.best])},
                  {"worth", told.worth}};
  json["sweeps"] = sweeps;
  return json;
}

std::string text_of(const Predicted& told, const Programs& programs) {
  const SchemeFile& file = told.schemes->back();
  const Scheme& scheme = file.scheme;
  std::string collective = scheme.collective;
  if (!scheme.transport.empty()) collective += " over " + scheme.transport;
  return fmt::format(
      "{}scheme   {}: compressor {}, memory {}, collective {}, scheduler {}\n"
      "plan     {}\n\n{}",
      premises_text(told), file.name, scheme.compressor, scheme.memory, collective,
      scheme.scheduler, fmt::join(told.outcomes.front().explanation, "; "), programs.text());
}

Json json_of(const Predicted& told, const Programs& programs) {
  Json json = premises_json(told);
  json["scheme"] = told.schemes->back().name;
  json["explanation"] = told.outcomes.front().explanation;
  json["buckets"] = programs.json();
  return json;
}

}  // namespace penstock::command
