// Models and plans as JSON; see plan_probe_json.hpp.
#include "plan_probe_json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace penstock::test {
namespace {

using nlohmann::json;

double number_from(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const auto& text = value.get_ref<const std::string&>();
  if (text == "nan") return std::nan("");
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument("'" + text + "' is no number, expected nan, inf or -inf");
}

// An object whose keys must all be read.
class Object {
 public:
  Object(const json& value, const char* what) : value_(value), what_(what) {
    if (!value.is_object()) throw std::invalid_argument(std::string(what) + " is no object");
  }

  template <typename T>
  void read(const char* key, T& field) {
    const json* found = find(key);
    if (found == nullptr) return;
    if constexpr (std::is_same_v<T, double>)
      field = number_from(*found);
    else
      found->get_to(field);
  }

  const json* find(const char* key) {
    const auto place = value_.find(key);
    if (place == value_.end()) return nullptr;
    known_.push_back(key);
    return &*place;
  }

  void expect_all_read() const {
    for (const auto& [key, value] : value_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        throw std::invalid_argument("'" + key + "' is no part of " + what_);
  }

 private:
  const json& value_;
  const char* what_;
  std::vector<std::string> known_;
};

planning::CandidateEntry candidate_from(const json& value) {
  planning::CandidateEntry entry;
  Object object(value, "a candidate");
  object.read("compressor", entry.compressor);
  object.read("phase_bytes", entry.phase_bytes);
  object.read("encode_fixed_us", entry.encode_fixed_us);
  object.read("encode_per_element_us", entry.encode_per_element_us);
  object.read("decode_fixed_us", entry.decode_fixed_us);
  object.read("decode_per_element_us", entry.decode_per_element_us);
  object.read("part_alignment", entry.part_alignment);
  object.read("combine", entry.combine);
  object.read("n_rounds", entry.n_rounds);
  object.expect_all_read();
  return entry;
}

planning::GradientEntry gradient_from(const json& value) {
  planning::GradientEntry entry;
  Object object(value, "a gradient");
  object.read("name", entry.name);
  object.read("shape", entry.shape);
  object.read("bytes", entry.bytes);
  object.read("ready_us", entry.ready_us);
  object.read("forward_us", entry.forward_us);
  object.read("dtype", entry.dtype);
  object.read("given_bucket", entry.given_bucket);
  if (const json* candidates = object.find("candidates"))
    for (const json& candidate : *candidates) entry.candidates.push_back(candidate_from(candidate));
  object.expect_all_read();
  return entry;
}

planning::LinkEntry link_from(const json& value) {
  planning::LinkEntry entry;
  Object object(value, "a link");
  object.read("alpha_us", entry.alpha_us);
  object.read("beta_us_per_byte", entry.beta_us_per_byte);
  object.read("level", entry.level);
  object.expect_all_read();
  return entry;
}

// A planner reads `period` numbers of each list.
void expect_bytes_of_each_phase(const planning::ModelEntries& entries) {
  for (const planning::GradientEntry& gradient : entries.gradients)
    for (const planning::CandidateEntry& candidate : gradient.candidates)
      if (candidate.phase_bytes.size() < entries.period)
        throw std::invalid_argument("candidate '" + candidate.compressor + "' of '" +
                                    gradient.name + "' lacks the bytes of a phase");
}

}  // namespace

planning::ModelEntries model_from(const json& value) {
  planning::ModelEntries entries;
  Object object(value, "a model");
  if (const json* gradients = object.find("gradients"))
    for (const json& gradient : *gradients) entries.gradients.push_back(gradient_from(gradient));
  if (const json* links = object.find("links"))
    for (const json& link : *links) entries.links.push_back(link_from(link));
  object.read("order", entries.order);
  object.read("backward_us", entries.backward_us);
  object.read("forward_us", entries.forward_us);
  object.read("world", entries.world);
  object.read("hosts", entries.hosts);
  object.read("ranks_per_host", entries.ranks_per_host);
  object.read("period", entries.period);
  object.read("route", entries.route);
  object.read("flags", entries.flags);
  object.expect_all_read();
  expect_bytes_of_each_phase(entries);
  return entries;
}

penstock_measurement measurement_from(const json& value) {
  penstock_measurement measurement{};
  measurement.struct_size = sizeof measurement;
  Object object(value, "a measurement");
  object.read("step", measurement.step);
  object.read("n_steps", measurement.n_steps);
  object.read("step_us", measurement.step_us);
  object.read("backward_us", measurement.backward_us);
  object.read("exposed_us", measurement.exposed_us);
  object.expect_all_read();
  return measurement;
}

OptionSettings options_from(const json& value) {
  OptionSettings settings;
  for (const auto& [name, setting] : value.items()) {
    if (setting.is_boolean())
      settings.emplace_back(name, setting.get<bool>());
    else if (setting.is_number_integer())
      settings.emplace_back(name, setting.get<int>());
    else if (setting.is_string())
      settings.emplace_back(name, setting.get_ref<const std::string&>().c_str());
    else
      settings.emplace_back(name, setting.get<double>());
  }
  return settings;
}

json json_of(const planning::Plan& plan) {
  json buckets = json::array();
  for (const planning::Bucket& bucket : plan.buckets) {
    json pieces = json::array();
    for (const planning::Piece& piece : bucket.pieces)
      pieces.push_back({piece.gradient, piece.first, piece.numel, piece.choice});
    buckets.push_back({{"phase", bucket.phase},
                       {"route", bucket.route},
                       {"launch", bucket.launch},
                       {"pieces", std::move(pieces)}});
  }
  return {{"buckets", std::move(buckets)},
          {"messages", plan.messages},
          {"explanation", plan.explanation}};
}

}  // namespace penstock::test
