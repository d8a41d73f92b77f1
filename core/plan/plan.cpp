#include "core/plan/plan.hpp"

#include "core/base/bytes.hpp"
#include "core/plan/route.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace penstock {
namespace {

constexpr uint32_t kPlanFormat = 2;

// A piece in a phase. Pieces are sorted by position, so overlaps and gaps are between neighbours.
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
  if (piece.choice >= facts.candidates[piece.gradient].size())
    return internal("scheduler '{}' chose candidate {} for gradient '{}', which has {}", scheduler,
                    piece.choice, name, facts.candidates[piece.gradient].size());
  if (piece.first > numel || piece.numel > numel - piece.first)
    return internal("scheduler '{}' planned elements [{}, +{}) of gradient '{}', which has {}",
                    scheduler, piece.first, piece.numel, name, numel);
  const bool whole = piece.first == 0 && piece.numel == numel;
  const uint64_t alignment = facts.candidates[piece.gradient][piece.choice].part_alignment;
  if (!whole && (alignment == 0 || piece.first % alignment != 0))
    return internal("scheduler '{}' cut gradient '{}' at element {}, but its compressor allows {}",
                    scheduler, name, piece.first,
                    alignment == 0 ? "no cuts" : fmt::format("multiples of {}", alignment));
  return {};
}

// The route decides which rank keeps a gradient's mass, so the route must be equal in all phases.
uint32_t codings_of(uint32_t route) {
  return has_owners(route) ? route : uint32_t{PENSTOCK_ROUTE_FLAT};
}

Status check_route(const planning::Bucket& bucket, const PlanFacts& facts,
                   std::string_view scheduler) {
  const size_t n_legs = legs_of(bucket.route).size();
  if (n_legs == 0)
    return internal("scheduler '{}' planned a bucket on the unknown route {}", scheduler,
                    bucket.route);
  if ((facts.offered >> bucket.route & 1) == 0)
    return internal("scheduler '{}' planned route {}, but its describe does not name that route",
                    scheduler, bucket.route);
  if (facts.route != 0 && bucket.route != facts.route)
    return internal("scheduler '{}' planned a bucket on route {}, but the scheme asks for route {}",
                    scheduler, bucket.route, facts.route);
  if (bucket.waits_from < n_legs && !facts.forward_waits)
    return failed_precondition(
        "scheduler '{}' leaves leg {} of a route for the next forward, in which this frontend "
        "cannot wait",
        scheduler, bucket.waits_from);
  for (const planning::Piece& piece : bucket.pieces)
    if ((facts.candidates[piece.gradient][piece.choice].routes >> bucket.route & 1) == 0)
      return failed_precondition(
          "scheduler '{}' planned route {} for gradient '{}', which its compressor and memory "
          "cannot take",
          scheduler, bucket.route, facts.names[piece.gradient]);
  return {};
}

// The gradients of a bucket must be exactly the gradients of a bucket of the frontend.
Status check_given(const Plan& plan, const PlanFacts& facts, std::string_view scheduler) {
  if (!facts.buckets_are_given) return {};
  std::map<uint32_t, size_t> sizes;
  for (const uint32_t given : facts.given_buckets) ++sizes[given];
  for (const planning::Bucket& bucket : plan.buckets) {
    const uint32_t given = facts.given_buckets[bucket.pieces.front().gradient];
    for (const planning::Piece& piece : bucket.pieces)
      if (facts.given_buckets[piece.gradient] != given)
        return failed_precondition(
            "scheduler '{}' puts gradients '{}' and '{}' into one bucket, but the frontend gave "
            "them in buckets {} and {}; use a scheduler that keeps given buckets",
            scheduler, facts.names[bucket.pieces.front().gradient], facts.names[piece.gradient],
            given, facts.given_buckets[piece.gradient]);
    if (given != PENSTOCK_NO_BUCKET && bucket.pieces.size() != sizes[given])
      return failed_precondition(
          "scheduler '{}' puts {} gradients of the frontend's bucket {}, which has {}, into "
          "another bucket; use a scheduler that keeps given buckets",
          scheduler, bucket.pieces.size(), given, sizes[given]);
  }
  return {};
}

// A message without a bucket would never be sent, and a message that is listed twice has no unique
// place.
Status check_sequence(const Plan& plan, std::string_view scheduler) {
  std::vector<std::vector<uint32_t>> routes(plan.period);  // routes of the buckets of each phase
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
    writer.put(bucket.waits_from);
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
    bucket.waits_from = reader.get<uint32_t>();
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
  std::map<std::pair<uint32_t, uint64_t>, std::vector<Placed>> placed;  // by phase and gradient
  std::vector<uint32_t> seen(facts.numel.size());  // codings of the route, per gradient
  for (const planning::Bucket& bucket : plan.buckets) {
    if (bucket.phase >= plan.period)
      return internal("scheduler '{}' planned a bucket for phase {} of {}", scheduler, bucket.phase,
                      plan.period);
    if (bucket.pieces.empty()) return internal("scheduler '{}' planned an empty bucket", scheduler);
    for (const planning::Piece& piece : bucket.pieces)
      PENSTOCK_TRY(check_piece(piece, facts, scheduler));
    PENSTOCK_TRY(check_route(bucket, facts, scheduler));
    for (const planning::Piece& piece : bucket.pieces) {
      placed[{bucket.phase, piece.gradient}].push_back({piece.first, piece.numel});
      uint32_t& codings = seen[piece.gradient];
      if (codings != 0 && codings != codings_of(bucket.route))
        return failed_precondition(
            "scheduler '{}' sends gradient '{}' by routes {} and {}, which have separate memories: "
            "values that one memory keeps would never be sent by the other route",
            scheduler, facts.names[piece.gradient], codings, bucket.route);
      codings = codings_of(bucket.route);
    }
  }
  PENSTOCK_TRY(check_given(plan, facts, scheduler));
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
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == 0)
      return internal("scheduler '{}' left gradient '{}' out of every phase", scheduler,
                      facts.names[i]);
    const bool keeps =
        std::all_of(facts.candidates[i].begin(), facts.candidates[i].end(),
                    [](const PlanFacts::Candidate& candidate) { return candidate.keeps; });
    for (uint32_t phase = 0; phase < plan.period; ++phase)
      if (!keeps && facts.numel[i] != 0 && placed.count({phase, i}) == 0)
        return failed_precondition(
            "scheduler '{}' left gradient '{}' out of phase {}, but its memory keeps nothing: "
            "values that are not sent would be lost; use a memory that keeps them",
            scheduler, facts.names[i], phase);
  }
  return check_sequence(plan, scheduler);
}

}  // namespace penstock
