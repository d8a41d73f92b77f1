#include "planning/route_cost.hpp"

namespace penstock::planning {

namespace {

// The time of a message on a level: by its line, or if there is no line, by the level's link as an
// all-reduce of `factor` times as many bytes.
double leg_us(const penstock_model& model, uint32_t level, uint32_t pattern, double bytes,
              double factor) {
  if (const penstock_link* line = line_of(model, pattern, bytes, level))
    return usable(line->alpha_us) + usable(line->beta_us_per_byte) * bytes;
  for (uint64_t i = 0; i < model.n_links; ++i) {
    const penstock_link& link = *model.links[i];
    if (link.level == level)
      return usable(link.alpha_us) + usable(link.beta_us_per_byte) * bytes * factor;
  }
  return message_us(model, bytes * factor);
}

// An all-gather of b bytes from each of n ranks moves (n - 1) b bytes through each rank, an
// all-reduce of b bytes 2 (n - 1) / n b: the ratio is n / 2. Each half of an all-reduce moves half.
double gather_share(double ranks) {
  return std::max(1.0, ranks / 2);
}
constexpr double kHalf = 0.5;

struct Load {
  Volume coded;
  double dense_bytes = 0;
};

Load load_of(const penstock_model& model, const Bucket& bucket) {
  Load load;
  for (const Piece& piece : bucket.pieces) {
    const penstock_gradient_model& gradient = *model.gradients[piece.gradient];
    const double share = gradient.numel == 0 ? 1.0 : double(piece.numel) / double(gradient.numel);
    add_payload(load.coded, *gradient.candidates[piece.choice], bucket.phase, share);
    load.dense_bytes += share * double(gradient.bytes);
  }
  return load;
}

// The ranks of a host reduce-scatter their sums, so that each rank owns a part; the owners exchange
// the coded parts between hosts; then each part goes to all ranks of the host.
ExchangeTimes hierarchical(const penstock_model& model, const Load& load) {
  const double local = std::max(1.0, double(model.ranks_per_host)),
               hosts = std::max(1.0, double(model.hosts)),
               world = std::max(1.0, double(model.world));
  ExchangeTimes times;
  times.backward_us =
      leg_us(model, PENSTOCK_LEVEL_LOCAL, PENSTOCK_REDUCE_SCATTER, load.dense_bytes, kHalf) +
      leg_us(model, PENSTOCK_LEVEL_LOCAL, PENSTOCK_ALL_GATHER, load.dense_bytes / local,
             gather_share(local));
  if (load.coded.summed_bytes > 0)
    times.backward_us += leg_us(model, PENSTOCK_LEVEL_CROSS, PENSTOCK_ALL_REDUCE,
                                load.coded.summed_bytes / local, 1);
  if (load.coded.gathered_bytes > 0)
    times.backward_us += leg_us(model, PENSTOCK_LEVEL_CROSS, PENSTOCK_ALL_GATHER,
                                load.coded.gathered_bytes / local, gather_share(hosts));
  times.encode_share = 1 / local;
  // A sum is decoded once for any number of senders; gathered payloads are decoded one per sender.
  times.decode_share = load.coded.gathered_bytes > 0 ? hosts / local / world : 1 / local;
  return times;
}

// Each rank owns a part: coded parts go to their owners, which add them and send coded sums to all.
ExchangeTimes shard(const penstock_model& model, const Load& load) {
  const double world = std::max(1.0, double(model.world)),
               bytes = load.coded.summed_bytes + load.coded.gathered_bytes;
  ExchangeTimes times;
  times.backward_us =
      leg_us(model, PENSTOCK_LEVEL_WORLD, PENSTOCK_REDUCE_SCATTER, bytes, kHalf) +
      leg_us(model, PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, bytes / world, gather_share(world));
  times.encode_share = 1 + 1 / world;  // its gradients, and the sums of its own part
  // Payloads of all ranks for a part, then a payload for each part.
  times.decode_share = load.coded.gathered_bytes > 0 ? 2 / world : 2;
  return times;
}

}  // namespace

uint64_t routes_of(const penstock_model& model, const penstock_candidate& candidate) {
  const uint64_t asked = route_bit(whole_bucket_route(model));
  if (!PENSTOCK_HAS_FIELD(&candidate, penstock_candidate, routes)) return asked;
  return model.route != 0 ? candidate.routes & asked : candidate.routes;
}

ExchangeTimes exchange_on_route(const penstock_model& model, const Bucket& bucket) {
  const Load load = load_of(model, bucket);
  if (adds_in_hosts(bucket.route)) return hierarchical(model, load);
  if (encodes_for_owners(bucket.route)) return shard(model, load);
  return {exchange_us(model, load.coded)};
}

}  // namespace penstock::planning
