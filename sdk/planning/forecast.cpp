// The forecast of a plan: a simulation driven by events, in O(n log n) for n buckets.
#include "planning/forecast.hpp"

#include "planning/cost.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

namespace penstock::planning {

namespace {

// The costs of a bucket, before its actions get a place in time.
struct Costs {
  double encode = 0;
  double decode = 0;
  double exchange = 0;  // in backward
  double gather = 0;    // in the next forward
  double needed = 0;    // after the start of the next forward, by its most urgent gradient
  bool split = false;
};

double share_of(const Piece& piece, const penstock_gradient_model& gradient) {
  if (gradient.numel == 0) return 1.0;
  return static_cast<double>(piece.numel) / static_cast<double>(gradient.numel);
}

// Exchange times by the lines of the model; each half of route split takes half of the exchange.
ExchangeTimes by_lines(const Bucket& bucket, const penstock_model& model, const Volume& volume) {
  const double whole = exchange_us(model, volume);
  if (!halves_sums(bucket.route)) return {whole, 0};
  return {whole / 2, whole / 2};
}

Costs costs_of(const Plan& plan, uint64_t index, const penstock_model& model,
               const ExchangeOf& exchange_of, Forecast& totals) {
  const Bucket& bucket = plan.buckets[index];
  Costs costs;
  Coding coding;
  Volume volume;
  double needed = -1;
  for (const Piece& piece : bucket.pieces) {
    const penstock_gradient_model& gradient = *model.gradients[piece.gradient];
    const penstock_candidate& candidate = *gradient.candidates[piece.choice];
    coding.add(candidate, piece.numel);
    add_payload(volume, candidate, bucket.phase, share_of(piece, gradient));
    const double first_use = usable(gradient.forward_us);
    needed = needed < 0 ? first_use : std::min(needed, first_use);
  }
  const ExchangeTimes exchange = exchange_of ? exchange_of(index) : by_lines(bucket, model, volume);
  costs.encode = coding.encode_us() * exchange.encode_share;
  costs.decode = coding.decode_us() * exchange.decode_share;
  costs.split = halves_sums(bucket.route);
  costs.exchange = exchange.backward_us;
  costs.gather = exchange.forward_us;
  costs.needed = std::max(needed, 0.0);
  totals.encode_us += costs.encode;
  totals.decode_us += costs.decode;
  totals.exchange_us += costs.exchange + costs.gather;
  totals.bytes += volume.summed_bytes + volume.gathered_bytes;
  return costs;
}

double ready_time(const Bucket& bucket, const penstock_model& model, double backward_end) {
  if (bucket.launch != PENSTOCK_LAUNCH_READY && bucket.launch != 0) return backward_end;
  double ready = 0;
  for (const Piece& piece : bucket.pieces)
    ready = std::max(ready, usable(model.gradients[piece.gradient]->ready_us));
  return ready;
}

// Simulates the engine and the link until all work of backward is done.
class Backward {
 public:
  Backward(std::vector<BucketTimes>& times, const std::vector<Costs>& costs)
      : times_(times), costs_(costs), by_ready_(times.size()) {
    std::iota(by_ready_.begin(), by_ready_.end(), size_t{0});
    std::stable_sort(by_ready_.begin(), by_ready_.end(),
                     [&](size_t a, size_t b) { return times_[a].ready < times_[b].ready; });
  }

  void run() {
    const size_t n = times_.size();
    while (next_decode_ < n || n_encoded_ < n) {
      skip_deferred_decodes();
      const bool may_decode = next_decode_ < exchanged_;
      const bool may_encode = n_encoded_ < n;
      if (!may_decode && !may_encode) break;
      double now = free_at_;
      const double decode_at = may_decode ? times_[next_decode_].exchange_end : 0;
      if (!may_encode) {
        now = std::max(now, decode_at);
      } else if (runnable_.empty()) {
        const double encode_at = times_[by_ready_[n_arrived_]].ready;
        now = std::max(now, may_decode ? std::min(decode_at, encode_at) : encode_at);
      }
      while (n_arrived_ < n && times_[by_ready_[n_arrived_]].ready <= now)
        runnable_.push(by_ready_[n_arrived_++]);
      if (may_decode && decode_at <= now)
        decode(now);
      else
        encode(now);
    }
  }

  double engine_free() const { return free_at_; }

 private:
  // Skips buckets of route split, which are decoded in the next forward.
  void skip_deferred_decodes() {
    while (next_decode_ < exchanged_ && costs_[next_decode_].split) ++next_decode_;
  }

  void decode(double now) {
    BucketTimes& bucket = times_[next_decode_];
    bucket.decode_start = now;
    bucket.decode_end = free_at_ = now + costs_[next_decode_].decode;
    ++next_decode_;
  }

  void encode(double now) {
    const size_t index = runnable_.top();
    runnable_.pop();
    times_[index].encode_start = now;
    times_[index].encode_end = free_at_ = now + costs_[index].encode;
    encoded_[index] = true;
    ++n_encoded_;
    // The link takes buckets in order: the encoded buckets at its head now have known times.
    while (exchanged_ < times_.size() && encoded_[exchanged_]) {
      BucketTimes& bucket = times_[exchanged_];
      bucket.exchange_start = std::max(link_free_, bucket.encode_end);
      bucket.exchange_end = link_free_ = bucket.exchange_start + costs_[exchanged_].exchange;
      bucket.gather_start = bucket.gather_end = bucket.exchange_end;
      ++exchanged_;
    }
  }

  std::vector<BucketTimes>& times_;
  const std::vector<Costs>& costs_;
  std::vector<size_t> by_ready_;
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> runnable_;  // ready, not encoded
  std::vector<bool> encoded_ = std::vector<bool>(times_.size());
  size_t n_arrived_ = 0;
  size_t n_encoded_ = 0;
  size_t exchanged_ = 0;  // number of buckets with known times on the link
  size_t next_decode_ = 0;
  double free_at_ = 0;
  double link_free_ = 0;
};

}  // namespace

Forecast forecast(const Plan& plan, const penstock_model& model, uint32_t phase) {
  return forecast(plan, model, phase, nullptr);
}

Forecast forecast(const Plan& plan, const penstock_model& model, uint32_t phase,
                  const ExchangeOf& exchange_of) {
  Forecast result;
  result.backward_end = usable(model.backward_us);
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    result.backward_end = std::max(result.backward_end, usable(model.gradients[i]->ready_us));

  std::vector<Costs> costs;
  for (size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    if (bucket.phase != phase) continue;
    BucketTimes& times = result.buckets.emplace_back();
    times.bucket = i;
    times.ready = ready_time(bucket, model, result.backward_end);
    costs.push_back(costs_of(plan, i, model, exchange_of, result));
  }
  Backward backward(result.buckets, costs);
  backward.run();

  result.forward_start = std::max(result.backward_end, backward.engine_free());
  for (const BucketTimes& bucket : result.buckets)
    result.forward_start = std::max(result.forward_start, bucket.exchange_end);

  double link_free = result.forward_start;
  double engine_free = result.forward_start;
  double stall = 0;  // of the next forward, so far
  for (size_t i = result.buckets.size(); i > 0; --i) {
    if (!costs[i - 1].split) continue;
    BucketTimes& bucket = result.buckets[i - 1];
    bucket.gather_start = link_free;
    bucket.gather_end = link_free = link_free + costs[i - 1].gather;
    bucket.decode_start = std::max(engine_free, bucket.gather_end);
    bucket.decode_end = engine_free = bucket.decode_start + costs[i - 1].decode;
    stall = std::max(stall, bucket.decode_end - result.forward_start - costs[i - 1].needed);
  }
  result.end = std::max(result.forward_start, engine_free);
  result.exposed_us = result.forward_start - result.backward_end + stall;
  return result;
}

double exposed_us(const Plan& plan, const penstock_model& model) {
  const uint32_t period = std::max(model.period, 1u);
  double sum = 0;
  for (uint32_t phase = 0; phase < period; ++phase) sum += forecast(plan, model, phase).exposed_us;
  return sum / period;
}

}  // namespace penstock::planning
