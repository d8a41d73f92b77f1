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

Json premises_json(const Predicted& predicted) {
  const ModelProfile& profile = *predicted.profile;
  const Cluster& cluster = predicted.cluster;
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
          {"costs", predicted.costs}};
}

Json json_of(const Predicted& predicted, const Sweep& sweep) {
  Json points = Json::array(), crossovers = Json::array();
  for (const SweepPoint& point : sweep.points) {
    Json steps = Json::object();
    for (size_t i = 0; i < point.step_us.size(); ++i)
      if (!predicted.outcomes[i].open) steps[predicted.name(i)] = point.step_us[i] / 1000;
    points.push_back({{"at", point.at}, {"best", predicted.name(point.best)}, {"step_ms", steps}});
  }
  for (const Crossover& crossover : sweep.crossovers)
    crossovers.push_back({{"at", crossover.at},
                          {"from", predicted.name(crossover.from)},
                          {"to", predicted.name(crossover.to)}});
  return {{"over", sweep.range.name()}, {"points", points}, {"crossovers", crossovers}};
}

std::string premises_text(const Predicted& predicted) {
  std::string text;
  for (const auto& [name, sentence] : premises(predicted))
    text += fmt::format("{:<9}{}\n", name, sentence);
  return text;
}

std::string sweep_text(const Predicted& predicted, const Sweep& sweep) {
  Table table({sweep.range.what == SweptFor::ranks ? "RANKS" : "LINK", "BEST", "STEP", "DENSE STEP",
               "AGAINST DENSE"});
  for (const SweepPoint& point : sweep.points)
    table.add({place_text(sweep.range.what, point.at), predicted.name(point.best),
               time_text(point.step_us[point.best]), time_text(point.step_us.front()),
               times_text(Predicted::ratio(point.step_us.front(), point.step_us[point.best]))});
  return table.text() + "\n" + verdict(predicted, sweep);
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

std::vector<std::pair<std::string, std::string>> premises(const Predicted& predicted) {
  const ModelProfile& profile = *predicted.profile;
  std::vector<std::pair<std::string, std::string>> lines{
      {"model", fmt::format("{}: {} gradients, {} parameters, {}; forward {}, backward {}",
                            profile.name, profile.gradients.size(), grouped(profile.parameters()),
                            bytes_text(4.0 * double(profile.parameters())),
                            time_text(profile.whole_forward_us), time_text(profile.backward_us))},
      {"from", profile.about},
      {"cluster", cluster_text(predicted.cluster)},
      {"costs", "of encoding and decoding: " + predicted.costs}};
  std::set<std::string> missing;
  for (const Prediction& outcome : predicted.outcomes)
    missing.insert(outcome.without_cost.begin(), outcome.without_cost.end());
  if (!missing.empty())
    lines.push_back({"free", fmt::format("{} counted as costing nothing: no table has their times; "
                                         "--measure measures them here",
                                         fmt::join(missing, ", "))});
  return lines;
}

std::string verdict(const Predicted& predicted) {
  const auto as_fast = [&](size_t scheme) {
    return fmt::format("{:.2f} times as fast as dense",
                       predicted.against_dense(predicted.outcomes[scheme]));
  };
  if (predicted.outcomes[predicted.best].compresses)
    return fmt::format("Best is {}: {} {}.", predicted.name(predicted.best),
                       as_fast(predicted.best), kPerStep);
  std::string text = fmt::format("Do not compress: best is {}", predicted.name(predicted.best));
  if (predicted.best != 0) text += fmt::format(", {}", as_fast(predicted.best));
  const size_t compressed = fastest(predicted.outcomes, true);
  if (compressed != predicted.outcomes.size())
    text += fmt::format("; {}, {}, does not save {:g} % of its step", predicted.name(compressed),
                        as_fast(compressed), 100 * predicted.worth);
  return text + fmt::format(" ({}).", kPerStep);
}

std::string best_over(const Predicted& predicted, const Sweep& sweep) {
  const auto called = [&](size_t scheme) {
    return predicted.name(scheme) +
           (predicted.outcomes[scheme].compresses ? "" : " (do not compress)");
  };
  std::string text = called(sweep.points.front().best);
  for (const Crossover& crossover : sweep.crossovers)
    text += fmt::format("; from {} on {}", place_text(sweep.range.what, crossover.at),
                        called(crossover.to));
  return text;
}

std::string verdict(const Predicted& predicted, const Sweep& sweep) {
  return fmt::format("Over {}, {}: {}.", sweep.range.name(), kPerStep, best_over(predicted, sweep));
}

std::string text_of(const Predicted& predicted) {
  std::string text = premises_text(predicted);
  Table table({"SCHEME", "STEP", "AGAINST DENSE", "WAITS", "ENCODES", "EXCHANGES", "DECODES",
               "SENT PER RANK", "BUCKETS"});
  for (const size_t i : predicted.by_speed()) {
    const Prediction& outcome = predicted.outcomes[i];
    if (outcome.open) {
      table.add({predicted.name(i), "depends on values"});
      continue;
    }
    table.add({predicted.name(i), time_text(outcome.step_us),
               times_text(predicted.against_dense(outcome)), time_text(outcome.exposed_us),
               time_text(outcome.encode_us), time_text(outcome.exchange_us),
               time_text(outcome.decode_us), bytes_text(outcome.bytes),
               fmt::format("{}", outcome.timeline.buckets.size())});
  }
  text += "\n" + table.text() + "\n\n" + verdict(predicted);
  for (const Sweep& sweep : predicted.sweeps) text += "\n\n" + sweep_text(predicted, sweep);
  return text;
}

Json json_of(const Predicted& predicted) {
  Json schemes = Json::array(), sweeps = Json::array();
  for (size_t i = 0; i < predicted.outcomes.size(); ++i) {
    const Prediction& outcome = predicted.outcomes[i];
    const auto known = [&](double value) { return outcome.open ? Json(nullptr) : Json(value); };
    schemes.push_back({{"name", predicted.name(i)},
                       {"compresses", outcome.compresses},
                       {"depends_on_values", outcome.open},
                       {"step_ms", known(outcome.step_us / 1000)},
                       {"against_dense", known(predicted.against_dense(outcome))},
                       {"exposed_ms", known(outcome.exposed_us / 1000)},
                       {"encode_ms", known(outcome.encode_us / 1000)},
                       {"exchange_ms", known(outcome.exchange_us / 1000)},
                       {"decode_ms", known(outcome.decode_us / 1000)},
                       {"sent_bytes", known(outcome.bytes)},
                       {"buckets", outcome.timeline.buckets.size()},
                       {"without_cost", outcome.without_cost},
                       {"explanation", outcome.explanation}});
  }
  for (const Sweep& sweep : predicted.sweeps) sweeps.push_back(json_of(predicted, sweep));
  Json json = premises_json(predicted);
  json["schemes"] = schemes;
  json["best"] = {{"scheme", predicted.name(predicted.best)},
                  {"compress", predicted.outcomes[predicted.best].compresses},
                  {"against_dense", predicted.against_dense(predicted.outcomes[predicted.best])},
                  {"worth", predicted.worth}};
  json["sweeps"] = sweeps;
  return json;
}

std::string text_of(const Predicted& predicted, const Programs& programs) {
  const SchemeFile& file = predicted.schemes->back();
  const Scheme& scheme = file.scheme;
  std::string collective = scheme.collective;
  if (!scheme.transport.empty()) collective += " over " + scheme.transport;
  return fmt::format(
      "{}scheme   {}: compressor {}, memory {}, collective {}, scheduler {}\n"
      "plan     {}\n\n{}",
      premises_text(predicted), file.name, scheme.compressor, scheme.memory, collective,
      scheme.scheduler, fmt::join(predicted.outcomes.front().explanation, "; "), programs.text());
}

Json json_of(const Predicted& predicted, const Programs& programs) {
  Json json = premises_json(predicted);
  json["scheme"] = predicted.schemes->back().name;
  json["explanation"] = predicted.outcomes.front().explanation;
  json["buckets"] = programs.json();
  return json;
}

}  // namespace penstock::command
