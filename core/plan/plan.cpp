#include "core/plan/plan.hpp"

#include "core/base/bytes.hpp"
#include "core/plan/route.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace penstock {
namespace {

constexpr uint32_t kPlanFormat = 1;

// A piece of a phase, sorted by where it lies, so that overlaps and gaps are neighbours.
struct Placed {
  uint64_t first;
  uint64_t numel;
  bool operator<(const Placed& other) const { return first < other.first; }
};

Status check_piece(const planning::Piece& piece, const PlanFacts& facts,
                   std::string_view scheduler) {
  if (piece.gradient >= facts.numel.size())
    return internal("scheduler '{}' planned gradient {}, but there are only {}", scheduler,
                    piece.gradient, facts.numel.size());
  const uint64_t numel = facts.numel[piece.gradient];
  const std::string& name = facts.names[piece.gradient];
  if (piece.choice >= facts.n_candidates[piece.gradient])
    return internal("scheduler '{}' chose candidate {} for gradient '{}', which has {}", scheduler,
                    piece.choice, name, facts.n_candidates[piece.gradient]);
  if (piece.first > numel || piece.numel > numel - piece.first)
    return internal("scheduler '{}' planned elements [{}, +{}) of gradient '{}', which has {}",
                    scheduler, piece.first, piece.numel, name, numel);
  const bool whole = piece.first == 0 && piece.numel == numel;
  const uint64_t alignment = facts.part_alignment[piece.gradient][piece.choice];
  if (!whole && (alignment == 0 || piece.first % alignment != 0))
    return internal("scheduler '{}' cut gradient '{}' at element {}, but its compressor allows {}",
                    scheduler, name, piece.first,
                    alignment == 0 ? "no cuts" : fmt::format("multiples of {}", alignment));
  return {};
}

// A message that no bucket sends would never go out; one that is listed twice has no one place.
Status check_sequence(const Plan& plan, std::string_view scheduler) {
  std::vector<std::vector<uint32_t>> routes(plan.period);  // per phase, of its buckets
  for (const planning::Bucket& bucket : plan.buckets) routes[bucket.phase].push_back(bucket.route);
  std::set<planning::MessagePlace> listed;
  for (const planning::MessagePlace& place : plan.messages) {
    const auto& [phase, bucket, leg, round] = place;
    const std::string text =
        fmt::format("leg {}, round {} of bucket {} in phase {}", leg, round, bucket, phase);
    if (phase >= plan.period || bucket >= routes[phase].size())
      return internal("scheduler '{}' lists a message of {}, which its plan does not have",
                      scheduler, text);
    if (const size_t legs = legs_of(routes[phase][bucket]).size(); leg >= legs)
      return internal("scheduler '{}' lists a message of {}, but that bucket's route has {} leg{}",
                      scheduler, text, legs, legs == 1 ? "" : "s");
    if (!listed.insert(place).second)
      return internal("scheduler '{}' lists the message of {} twice", scheduler, text);
  }
  return {};
}

}  // namespace

std::string plan_bytes(const Plan& plan) {
  std::string out;
  ByteWriter writer(out);
  writer.put(kPlanFormat);
  writer.put(plan.period);
  writer.put<uint64_t>(plan.buckets.size());
  for (const planning::Bucket& bucket : plan.buckets) {
    writer.put(bucket.phase);
    writer.put(bucket.route);
    writer.put(bucket.launch);
    writer.put<uint64_t>(bucket.pieces.size());
    for (const planning::Piece& piece : bucket.pieces) {
      writer.put(piece.gradient);
      writer.put(piece.first);
      writer.put(piece.numel);
      writer.put(piece.choice);
    }
  }
  writer.put<uint64_t>(plan.messages.size());
  for (const planning::MessagePlace& place : plan.messages)
    for (const uint32_t number : place) writer.put(number);
  writer.put<uint64_t>(plan.explanation.size());
  for (const std::string& line : plan.explanation) writer.text(line);
  return out;
}

Result<Plan> plan_from_bytes(std::string_view bytes) {
  ByteReader reader(bytes);
  Plan plan;
  if (reader.get<uint32_t>() != kPlanFormat)
    return invalid_argument("these bytes are not a plan of this version");
  plan.period = reader.get<uint32_t>();
  for (auto n = reader.get<uint64_t>(); n > 0 && reader.ok(); --n) {
    planning::Bucket& bucket = plan.buckets.emplace_back();
    bucket.phase = reader.get<uint32_t>();
    bucket.route = reader.get<uint32_t>();
    bucket.launch = reader.get<uint32_t>();
    for (auto pieces = reader.get<uint64_t>(); pieces > 0 && reader.ok(); --pieces) {
      planning::Piece& piece = bucket.pieces.emplace_back();
      piece.gradient = reader.get<uint64_t>();
      piece.first = reader.get<uint64_t>();
      piece.numel = reader.get<uint64_t>();
      piece.choice = reader.get<uint32_t>();
    }
  }
  for (auto n = reader.get<uint64_t>(); n > 0 && reader.ok(); --n) {
    planning::MessagePlace& place = plan.messages.emplace_back();
    for (uint32_t& number : place) number = reader.get<uint32_t>();
  }
  for (auto n = reader.get<uint64_t>(); n > 0 && reader.ok(); --n)
    plan.explanation.emplace_back(reader.text());
  if (!reader.at_end()) return invalid_argument("the bytes of a plan are truncated or damaged");
  return plan;
}

Status check_plan(const Plan& plan, const PlanFacts& facts, std::string_view scheduler) {
  if (plan.period != facts.period)
    return internal("scheduler '{}' planned {} phases, the compressors have {}", scheduler,
                    plan.period, facts.period);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<Placed>> placed;  // (phase, gradient)
  std::vector<bool> seen(facts.numel.size());
  for (const planning::Bucket& bucket : plan.buckets) {
    if (bucket.phase >= plan.period)
      return internal("scheduler '{}' planned a bucket for phase {} of {}", scheduler, bucket.phase,
                      plan.period);
    if (bucket.pieces.empty()) return internal("scheduler '{}' planned an empty bucket", scheduler);
    for (const planning::Piece& piece : bucket.pieces) {
      PENSTOCK_TRY(check_piece(piece, facts, scheduler));
      placed[{bucket.phase, piece.gradient}].push_back({piece.first, piece.numel});
      seen[piece.gradient] = true;
    }
  }
  for (auto& [where, pieces] : placed) {
    std::sort(pieces.begin(), pieces.end());
    uint64_t next = 0;
    for (const Placed& piece : pieces) {
      if (piece.first != next)
        return internal("scheduler '{}' planned element {} of gradient '{}' {} in phase {}",
                        scheduler, std::min(next, piece.first), facts.names[where.second],
                        piece.first > next ? "nowhere" : "twice", where.first);
      next = piece.first + piece.numel;
    }
    if (next != facts.numel[where.second])
      return internal("scheduler '{}' planned only {} of {} elements of gradient '{}' in phase {}",
                      scheduler, next, facts.numel[where.second], facts.names[where.second],
                      where.first);
    if (facts.numel[where.second] == 0 && pieces.size() > 1)
      return internal("scheduler '{}' planned the empty gradient '{}' twice", scheduler,
                      facts.names[where.second]);
  }
  for (size_t i = 0; i < seen.size(); ++i)
    if (!seen[i])
      return internal("scheduler '{}' left gradient '{}' out of every phase", scheduler,
                      facts.names[i]);
  return check_sequence(plan, scheduler);
}

}  // namespace penstock
