// Reads and owns models; see model.hpp.
#include "planning/model.hpp"

#include "planning/cost.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <sstream>

namespace penstock::planning {

namespace {

// A longer period is a mistake, not a method: the longest published period is two.
constexpr uint32_t kMaxPeriod = 4096;

template <typename... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

std::string problem_of_gradient(const penstock_gradient_model* gradient, uint64_t index) {
  if (gradient == nullptr) return sentence("gradient ", index, " of the model is null");
  if (gradient->n_candidates == 0 || gradient->candidates == nullptr)
    return sentence("gradient ", index,
                    " has no candidate, expected at least its configured compressor");
  for (uint64_t i = 0; i < gradient->n_candidates; ++i) {
    const penstock_candidate* candidate = gradient->candidates[i];
    if (candidate == nullptr || candidate->phase_bytes == nullptr)
      return sentence("candidate ", i, " of gradient ", index, " has no bytes per phase");
  }
  return {};
}

bool sends_nothing(const penstock_gradient_model& gradient, uint32_t period) {
  const uint64_t* bytes = gradient.candidates[0]->phase_bytes;
  return std::all_of(bytes, bytes + period, [](uint64_t count) { return count == 0; });
}

}  // namespace

std::string find_problem(const penstock_model& model, uint64_t routes) {
  if (model.route != 0 && (model.route >= 64 || (routes & route_bit(model.route)) == 0))
    return sentence("the scheme asks for route ", model.route,
                    ", which this scheduler does not make; choose another route or scheduler");
  if (model.n_links > 0 && model.links == nullptr) return "the model's links are null";
  for (uint64_t i = 0; i < model.n_links; ++i)
    if (model.links[i] == nullptr) return sentence("link ", i, " of the model is null");
  if (const uint64_t n = n_lines(model); n > 0) {
    if (model.lines == nullptr) return "the model's lines are null";
    for (uint64_t i = 0; i < n; ++i)
      if (model.lines[i] == nullptr) return sentence("line ", i, " of the model is null");
  }
  if (model.n_gradients == 0) return {};
  if (model.period == 0 || model.period > kMaxPeriod)
    return sentence("the model's period is ", model.period, ", expected 1 to ", kMaxPeriod);
  if (model.gradients == nullptr || model.order == nullptr)
    return sentence("the model has ", model.n_gradients, " gradients, but its ",
                    model.order == nullptr ? "order" : "list of gradients", " is null");
  std::vector<bool> seen(model.n_gradients, false);
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    std::string problem = problem_of_gradient(model.gradients[i], i);
    if (!problem.empty()) return problem;
    const uint64_t gradient = model.order[i];
    if (gradient >= model.n_gradients || seen[gradient])
      return sentence("entry ", i, " of the model's order is ", gradient,
                      ", expected each gradient below ", model.n_gradients, " exactly once");
    seen[gradient] = true;
  }
  return {};
}

uint64_t payload_bytes(const penstock_gradient_model& gradient, uint32_t phase) {
  return gradient.candidates[0]->phase_bytes[phase];
}

std::vector<uint64_t> taking_part(const penstock_model& model, uint32_t phase) {
  std::vector<uint64_t> result;
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    const penstock_gradient_model& gradient = *model.gradients[model.order[i]];
    if (payload_bytes(gradient, phase) > 0 || (phase == 0 && sends_nothing(gradient, model.period)))
      result.push_back(model.order[i]);
  }
  return result;
}

std::vector<std::vector<uint64_t>> units(const penstock_model& model, uint32_t phase) {
  return units(model, taking_part(model, phase));
}

std::vector<std::vector<uint64_t>> units(const penstock_model& model,
                                         const std::vector<uint64_t>& gradients) {
  const bool given = (model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0;
  std::map<uint32_t, uint64_t> left;  // given bucket -> members still to come
  if (given)
    for (uint64_t gradient : gradients) ++left[model.gradients[gradient]->given_bucket];

  std::vector<std::vector<uint64_t>> result;
  std::map<uint32_t, std::vector<uint64_t>> open;
  for (uint64_t gradient : gradients) {
    const uint32_t bucket = model.gradients[gradient]->given_bucket;
    if (!given || bucket == PENSTOCK_NO_BUCKET) {
      result.push_back({gradient});
      continue;
    }
    open[bucket].push_back(gradient);
    if (--left[bucket] == 0) result.push_back(std::move(open[bucket]));
  }
  return result;
}

std::vector<double> ready_times(const penstock_model& model,
                                const std::vector<uint64_t>& gradients) {
  std::vector<double> result;
  result.reserve(gradients.size());
  double last = 0;
  for (uint64_t gradient : gradients)
    result.push_back(last = std::max(last, usable(model.gradients[gradient]->ready_us)));
  return result;
}

std::vector<std::vector<uint64_t>> buckets_by_count(const penstock_model& model, uint32_t phase,
                                                    uint64_t count) {
  std::vector<std::vector<uint64_t>> result;
  for (uint64_t gradient : taking_part(model, phase)) {
    if (result.empty() || result.back().size() >= std::max<uint64_t>(count, 1))
      result.emplace_back();
    result.back().push_back(gradient);
  }
  return result;
}

std::vector<std::vector<uint64_t>> runs_of(const std::vector<uint64_t>& gradients,
                                           const std::vector<uint64_t>& counts) {
  std::vector<std::vector<uint64_t>> result;
  auto next = gradients.begin();
  for (uint64_t count : counts) {
    result.emplace_back(next, next + static_cast<ptrdiff_t>(count));
    next += static_cast<ptrdiff_t>(count);
  }
  return result;
}

std::vector<double> ready_by_elements(const penstock_model& model,
                                      const std::vector<uint64_t>& gradients, double backward) {
  double total = 0;
  for (uint64_t gradient : gradients)
    total += static_cast<double>(model.gradients[gradient]->numel);
  std::vector<double> result;
  result.reserve(gradients.size());
  double done = 0;
  for (uint64_t gradient : gradients) {
    done += static_cast<double>(model.gradients[gradient]->numel);
    result.push_back(total > 0 ? backward * (done / total) : 0);
  }
  return result;
}

std::vector<uint64_t> forward_order(const penstock_model& model) {
  std::vector<uint64_t> result(model.order, model.order + model.n_gradients);
  std::reverse(result.begin(), result.end());
  const bool measured = std::all_of(result.begin(), result.end(), [&](uint64_t gradient) {
    const double time = model.gradients[gradient]->forward_us;
    return std::isfinite(time) && time >= 0;
  });
  if (measured)
    std::stable_sort(result.begin(), result.end(), [&](uint64_t a, uint64_t b) {
      return model.gradients[a]->forward_us < model.gradients[b]->forward_us;
    });
  return result;
}

GradientEntry dense_gradient(std::string name, uint64_t numel, double ready_us) {
  GradientEntry entry;
  entry.name = std::move(name);
  entry.shape = {static_cast<int64_t>(numel)};
  entry.bytes = numel * 4;
  entry.candidates.resize(1);
  entry.candidates[0].phase_bytes = {numel * 4};
  entry.ready_us = ready_us;
  return entry;
}

// Uses deques, because pointers into them must stay valid while they grow.
struct OwnedModel::Storage {
  ModelEntries entries;
  std::deque<penstock_candidate> candidates;
  std::deque<std::vector<const penstock_candidate*>> candidate_lists;
  std::deque<penstock_gradient_model> gradients;
  std::vector<const penstock_gradient_model*> gradient_list;
  std::deque<penstock_link> links;
  std::vector<const penstock_link*> link_list, line_list;
  penstock_model model{};

  explicit Storage(ModelEntries given);
  void add(const GradientEntry& entry);
  void add(const LinkEntry& entry, std::vector<const penstock_link*>& list);
};

OwnedModel::Storage::Storage(ModelEntries given) : entries(std::move(given)) {
  for (const GradientEntry& entry : entries.gradients) add(entry);
  for (const LinkEntry& entry : entries.links) add(entry, link_list);
  for (const LinkEntry& entry : entries.lines) add(entry, line_list);
  if (entries.order.empty())
    for (uint64_t i = entries.gradients.size(); i > 0; --i) entries.order.push_back(i - 1);
  model.struct_size = sizeof model;
  model.gradients = gradient_list.data();
  model.n_gradients = gradient_list.size();
  model.order = entries.order.data();
  model.links = link_list.data();
  model.n_links = link_list.size();
  model.lines = line_list.data();
  model.n_lines = line_list.size();
  model.volume = entries.volume;
  model.volume_context = entries.volume_context;
  model.backward_us = entries.backward_us;
  model.forward_us = entries.forward_us;
  model.world = entries.world;
  model.hosts = entries.hosts;
  model.ranks_per_host = entries.ranks_per_host;
  model.period = entries.period;
  model.route = entries.route;
  model.flags = entries.flags;
}

void OwnedModel::Storage::add(const LinkEntry& entry, std::vector<const penstock_link*>& list) {
  penstock_link& link = links.emplace_back();
  link = {};
  link.struct_size = sizeof link;
  link.alpha_us = entry.alpha_us;
  link.beta_us_per_byte = entry.beta_us_per_byte;
  link.level = entry.level;
  link.bytes_from = entry.bytes_from;
  link.pattern = entry.pattern;
  list.push_back(&link);
}

void OwnedModel::Storage::add(const GradientEntry& entry) {
  std::vector<const penstock_candidate*>& list = candidate_lists.emplace_back();
  for (const CandidateEntry& from : entry.candidates) {
    penstock_candidate candidate{};
    candidate.struct_size = sizeof candidate;
    candidate.compressor = {from.compressor.data(), from.compressor.size()};
    candidate.phase_bytes = from.phase_bytes.data();
    candidate.encode_fixed_us = from.encode_fixed_us;
    candidate.encode_per_element_us = from.encode_per_element_us;
    candidate.decode_fixed_us = from.decode_fixed_us;
    candidate.decode_per_element_us = from.decode_per_element_us;
    candidate.part_alignment = from.part_alignment;
    candidate.combine = from.combine;
    candidate.n_rounds = from.n_rounds;
    candidate.routes = from.routes;
    candidates.push_back(candidate);
    list.push_back(&candidates.back());
  }
  penstock_gradient_model gradient{};
  gradient.struct_size = sizeof gradient;
  gradient.name = {entry.name.data(), entry.name.size()};
  gradient.shape = entry.shape.data();
  gradient.n_dims = entry.shape.size();
  gradient.numel = 1;
  for (int64_t extent : entry.shape) gradient.numel *= static_cast<uint64_t>(extent);
  gradient.bytes = entry.bytes;
  gradient.ready_us = entry.ready_us;
  gradient.forward_us = entry.forward_us;
  gradient.candidates = list.data();
  gradient.n_candidates = list.size();
  gradient.dtype = entry.dtype;
  gradient.given_bucket = entry.given_bucket;
  gradients.push_back(gradient);
  gradient_list.push_back(&gradients.back());
}

OwnedModel::OwnedModel(ModelEntries entries)
    : storage_(std::make_unique<Storage>(std::move(entries))) {}
OwnedModel::~OwnedModel() = default;
OwnedModel::OwnedModel(OwnedModel&&) noexcept = default;
OwnedModel& OwnedModel::operator=(OwnedModel&&) noexcept = default;
const penstock_model& OwnedModel::model() const {
  return storage_->model;
}

}  // namespace penstock::planning
