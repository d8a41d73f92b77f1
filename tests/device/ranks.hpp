// A few ranks on one place that take whole steps with a gradient. Their payloads are gathered or
// summed in host memory, as transports do. The class records every array that the calls have
// written, so a test can compare a device with the CPU.
#pragma once

#include "gradient.hpp"

namespace penstock::simulated {

class Ranks {
 public:
  Ranks(const Compressor& compressor, const Case& of, bool on_device) : of_(of), place_(on_device) {
    for (uint32_t r = 0; r < of.ranks; ++r) ranks_.emplace_back(place_, compressor, of, r);
  }
  PlacedGradient& operator[](uint32_t rank) { return ranks_[rank]; }

  // A step of all ranks, after which every array is looked at.
  Seen step(uint64_t index) {
    Seen seen;
    for (PlacedGradient& rank : ranks_) rank.begin(index);
    for (uint32_t round = 0; round < ranks_.front().n_rounds(); ++round) exchange(round, seen);
    for (uint32_t r = 0; r < of_.ranks; ++r)
      for (const auto& [name, bytes] : ranks_[r].all()) seen[name_of(r, name)] = bytes;
    return seen;
  }
  // Draws new values for the array `name` of every rank. Equal seeds give equal values.
  void draw(const std::string& name, uint64_t seed) {
    for (uint32_t r = 0; r < of_.ranks; ++r) ranks_[r].draw(name, seed + r);
  }
  // Sets the state at the begin of the next step from `seen`, the record of another run.
  void hold(const Seen& seen) {
    for (uint32_t r = 0; r < of_.ranks; ++r)
      for (const auto& [name, bytes] : ranks_[r].all())
        ranks_[r].set(name, seen.at(name_of(r, name)));
  }

 private:
  static std::string name_of(uint32_t rank, const std::string& name) {
    return sdk::text("rank ", rank, " ", name);
  }

  void exchange(uint32_t round, Seen& seen) {
    std::vector<Sent> sent;
    for (uint32_t r = 0; r < of_.ranks; ++r)
      sent.push_back(of_.absent.count(r) > 0 ? ranks_[r].absent(round) : send(r, round, seen));
    const test::PlannedRound& planned = ranks_.front().planned(round);
    if (is_summed(planned)) sent = {summed(planned, sent)};
    // Gathered payloads are equal on all ranks and change only results, so one receiver is enough.
    const uint32_t receivers = is_summed(planned) ? of_.ranks : 1;
    for (uint32_t r = 0; r < receivers; ++r)
      EXPECT_EQ(ranks_[r].receive(sent, {.round = round}).message, "");
  }
  Sent send(uint32_t r, uint32_t round, Seen& seen) {
    Sent sent = ranks_[r].send(round);
    const std::string what = name_of(r, sdk::text("round ", round, ": "));
    seen[what + "kind"] = bytes_of(std::vector<uint32_t>{sent.kind});
    for (uint64_t s = 0; s < sent.sections.size(); ++s)
      seen[what + sdk::text("section ", s)] = sent.sections[s].bytes;
    seen[what + "work left"] = ranks_[r].get("work");
    if (round + 1 == ranks_[r].n_rounds())
      seen[what + "decoded own"] = ranks_[r].decode_own(sent, round);
    return sent;
  }

  const Case of_;
  Place place_;
  std::deque<PlacedGradient> ranks_;
};

// The names of the arrays that differ.
inline std::string difference(const Seen& one, const Seen& other) {
  std::string names;
  for (const auto& [name, bytes] : one) {
    const auto found = other.find(name);
    if (found == other.end() || found->second != bytes) names += name + "; ";
  }
  return one.size() == other.size() ? names : names + "not the same arrays";
}

// Calls compare(arrays on the device, arrays on the CPU, description) after each of `n_steps`
// steps. Both places use one instance. Each step has new gradients.
template <typename Compare>
void compare_steps(const Compressor& compressor, const Case& of, uint64_t n_steps,
                   const Compare& compare) {
  Ranks there(compressor, of, true), here(compressor, of, false);
  for (uint64_t index = 0; index < n_steps; ++index) {
    if (index > 0)
      for (Ranks* ranks : {&there, &here}) ranks->draw("gradient", 1000 * index);
    const Seen got = there.step(index), expected = here.step(index);
    compare(got, expected, sdk::text(compressor.text, " of ", text_of(of), ", step ", index));
  }
}
inline void expect_the_bits_of_the_cpu(const Compressor& compressor, const Case& of,
                                       uint64_t n_steps = 1) {
  compare_steps(compressor, of, n_steps,
                [](const Seen& there, const Seen& here, const std::string& what) {
                  EXPECT_EQ(difference(there, here), "") << what;
                });
}
inline void expect_the_bits_of_the_cpu(const Method& method, const Case& of, uint64_t n_steps = 1) {
  expect_the_bits_of_the_cpu(Compressor(method), of, n_steps);
}

// The payload of one rank for `work`, and the rank's arrays after it, in one separate step.
struct Encoded {
  Sent sent;
  Seen left;
};
inline Encoded encoded(const Compressor& compressor, const Case& of, bool on_device,
                       const std::vector<float>& work, uint32_t rank = 0, uint64_t step = 0) {
  Place place(on_device);
  PlacedGradient gradient(place, compressor, of, rank);
  gradient.begin(step);
  gradient.set("work", work);
  Sent sent = gradient.send();
  return {std::move(sent), gradient.all()};
}

}  // namespace penstock::simulated
