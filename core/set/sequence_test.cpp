// Channels that match messages by order alone: messages are sent in the order of the plan, in
// any order in which gradients become ready on each rank.

#include "core/set/testing.hpp"

#include <algorithm>
#include <filesystem>
#include <list>
#include <mutex>
#include <random>

namespace penstock::sequence_test {
namespace {

using testing::make_set;
using testing::view_of;

// A transport over loopback whose channels have no tags, like the collectives of MPI: message n of
// a rank matches message n of the other ranks. It records the counts in the order of submission.
class OrderedTransport {
 public:
  OrderedTransport(const std::string& hub, uint32_t rank, uint32_t size) {
    RegistryOptions options;
    options.directories = plugin_directories({});
    options.allow_insecure = true;
    registry_ = std::make_unique<Registry>(host_.table(), options);
    EXPECT_TRUE(registry_->scan().ok());
    const auto plugin = registry_->load(Kind::collective, "loopback");
    EXPECT_TRUE(plugin.ok()) << plugin.status().message();
    InstanceConfig config{Kind::collective, "loopback", "loopback", {}, {}};
    config.options["hub"].value = hub;
    config.options["rank"].value = int64_t{rank};
    config.options["size"].value = int64_t{size};
    auto made = CollectiveInstance::make(config, plugin.value());
    EXPECT_TRUE(made.ok()) << made.status().message();
    inner_ = std::move(made.value());
    make_table();
  }

  const penstock_collective* table() const { return &table_; }
  // The counts of the messages of `channel`, in order.
  std::vector<uint64_t> counts(uint64_t channel) {
    const std::lock_guard lock(mutex_);
    return counts_[channel];
  }
  // The channel that was opened last.
  uint64_t last_channel() const { return last_channel_; }

 private:
  static OrderedTransport& of(void* self) { return *static_cast<OrderedTransport*>(self); }
  static uint64_t key(penstock_channel* channel) { return reinterpret_cast<uint64_t>(channel); }

  void make_table() {
    table_ = *inner_->table();
    table_.describe = [](void* self, penstock_collective_traits* traits) {
      auto& inner = *of(self).inner_;
      penstock_status* status = inner->describe(inner.self(), traits);
      traits->flags |= PENSTOCK_COLLECTIVE_ORDERED;
      return status;
    };
    table_.volume = [](void* self, uint32_t pattern, uint32_t hosts, uint32_t ranks, uint64_t bytes,
                       penstock_volume* const* volumes) {
      auto& inner = *of(self).inner_;
      return inner->volume(inner.self(), pattern, hosts, ranks, bytes, volumes);
    };
    table_.join = [](void* self, uint64_t timeout_us, penstock_world* world) {
      auto& inner = *of(self).inner_;
      return inner->join(inner.self(), timeout_us, world);
    };
    table_.open = [](void* self, const penstock_group* group, const penstock_base_channel* base,
                     const penstock_key_value_store* store, uint64_t timeout_us,
                     penstock_channel** channel) {
      auto& inner = *of(self).inner_;
      penstock_status* status = inner->open(inner.self(), group, base, store, timeout_us, channel);
      of(self).last_channel_ = key(*channel);
      return status;
    };
    table_.submit = [](void* self, penstock_channel* channel, const penstock_message* message,
                       penstock_ticket** ticket) {
      return of(self).submit(channel, message, ticket);
    };
    table_.progress = [](void* self, penstock_ticket* ticket, uint32_t* state) {
      auto& inner = *of(self).inner_;
      return inner->progress(inner.self(), ticket, state);
    };
    table_.release = [](void* self, penstock_ticket* ticket) {
      auto& inner = *of(self).inner_;
      inner->release(inner.self(), ticket);
    };
    table_.abort = [](void* self, penstock_channel* channel) {
      auto& inner = *of(self).inner_;
      inner->abort(inner.self(), channel);
    };
    table_.close = [](void* self, penstock_channel* channel) {
      auto& inner = *of(self).inner_;
      inner->close(inner.self(), channel);
    };
    table_.leave = [](void* self, uint32_t aborted) {
      auto& inner = *of(self).inner_;
      inner->leave(inner.self(), aborted);
    };
  }

  // The position in the channel's order replaces the tag.
  penstock_status* submit(penstock_channel* channel, const penstock_message* message,
                          penstock_ticket** ticket) {
    penstock_message* numbered = nullptr;
    {
      const std::lock_guard lock(mutex_);
      std::vector<uint64_t>& sent = counts_[key(channel)];
      numbered = &messages_.emplace_back(*message);  // lives as long as the transport
      numbered->tag = sent.size();
      sent.push_back(message->count);
    }
    return (*inner_)->submit(inner_->self(), channel, numbered, ticket);
  }

  Log log_;
  Host host_{log_};
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<CollectiveInstance> inner_;
  penstock_collective table_{};
  std::mutex mutex_;
  std::list<penstock_message> messages_;
  std::map<uint64_t, std::vector<uint64_t>> counts_;
  uint64_t last_channel_ = 0;
};

constexpr uint32_t kRanks = 3;

// Gradients of different sizes, so that a message out of order has another count than its peer.
const std::vector<testing::GradientShape> kShapes{
    {"a", {5}}, {"b", {11}}, {"c", {17}}, {"d", {23}}};

// Runs `body(set, transport, rank)` on every rank, for a set over such a transport.
using Body = std::function<void(SetHandle& set, OrderedTransport& transport, uint32_t rank)>;
void with_ordered_sets(const std::string& scheme, uint32_t flags, const Body& body) {
  static std::atomic<int> next_hub{0};
  const std::string hub = fmt::format("sequence-test-{}", next_hub++);
  const auto run_rank = [&](uint32_t rank) {
    OrderedTransport transport(hub, rank, kRanks);
    penstock_runtime_options options{};
    options.struct_size = sizeof options;
    options.config_text = str(scheme);
    options.borrowed_collective = transport.table();
    options.borrowed_instance = &transport;
    auto runtime = Runtime::open(options);
    ASSERT_TRUE(runtime.ok()) << runtime.status().message();
    auto set = make_set(*runtime.value(), kShapes, flags);
    ASSERT_TRUE(set.ok()) << set.status().message();
    body(set.value(), transport, rank);
  };
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::vector<float>> gradients_of(float value) {
  std::vector<std::vector<float>> gradients;
  for (const auto& shape : kShapes)
    gradients.emplace_back(static_cast<size_t>(shape.shape[0]), value);
  return gradients;
}

// Every rank makes its gradients ready in its own order, which changes in each step. `sent`
// receives the counts of the messages on each rank's set channel.
void run_ordered(const std::string& scheme, uint32_t flags, uint64_t n_steps,
                 std::vector<std::vector<uint64_t>>& sent) {
  sent.assign(kRanks, {});
  with_ordered_sets(scheme, flags, [&](auto& set, OrderedTransport& transport, uint32_t rank) {
    const uint64_t channel = transport.last_channel();
    std::mt19937 random(rank);
    std::vector<size_t> order = {0, 1, 2, 3};
    for (uint64_t step = 0; step < n_steps; ++step) {
      std::vector<std::vector<float>> gradients = gradients_of(float(rank + step));
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) ASSERT_OK(set->gradient_ready(i, view_of(gradients[i])));
      if (set->defers()) ASSERT_OK(set->backward_end());
      ASSERT_OK(set->wait_all());
      ASSERT_OK(set->step_end(true));
      // The mean of 0, 1, 2 is 1; all numbers are small, so nothing is rounded.
      for (const auto& values : gradients)
        for (const float value : values) ASSERT_EQ(value, float(step + 1));
    }
    sent[rank] = transport.counts(channel);
  });
}

std::string borrowed_scheme(const std::string& keys, const std::string& tables = "") {
  return "[scheme]\ncollective = \"borrowed\"\n" + keys + "\n[runtime]\ndeadline_s = 20\n" + tables;
}

// `pattern`, again for each step.
std::vector<uint64_t> repeated(const std::vector<uint64_t>& pattern, uint64_t n_steps) {
  std::vector<uint64_t> all;
  for (uint64_t step = 0; step < n_steps; ++step)
    all.insert(all.end(), pattern.begin(), pattern.end());
  return all;
}

constexpr uint64_t kSteps = 12;

// One bucket per gradient, in the reverse order of registration: d, c, b, a.
TEST(Sequence, IsThatOfTheBucketsWhereThePlanHasNone) {
  std::vector<std::vector<uint64_t>> sent;
  run_ordered(borrowed_scheme("scheduler = \"wfbp\""), 0, kSteps, sent);
  for (const auto& counts : sent) EXPECT_EQ(counts, repeated({23, 17, 11, 5}, kSteps));
}

TEST(Sequence, OverALentTransportNeedsNoNameInTheFile) {
  std::vector<std::vector<uint64_t>> sent;
  run_ordered("[scheme]\nscheduler = \"wfbp\"\n[runtime]\ndeadline_s = 20\n", 0, 1, sent);
  for (const auto& counts : sent) EXPECT_EQ(counts, (std::vector<uint64_t>{23, 17, 11, 5}));
}

// The test scheduler lists the buckets of wfbp in reverse order.
TEST(Sequence, OfThePlanIsKeptWhateverIsReadyFirst) {
  std::vector<std::vector<uint64_t>> sent;
  const std::string folder = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  run_ordered(borrowed_scheme("scheduler = \"backwards\"",
                              fmt::format("allow_insecure_paths = true\nplugin_path = "
                                          "[\"{}/plugins/backwards\"]\n",
                                          folder)),
              0, kSteps, sent);
  for (const auto& counts : sent) EXPECT_EQ(counts, repeated({5, 11, 17, 23}, kSteps));
}

// dear: all reduce-scatters, then all all-gathers in the reverse order. An all-gather sends this
// rank's share of the elements and the flag.
TEST(Sequence, HasPlacesForBothLegsOfARoute) {
  std::vector<std::vector<uint64_t>> sent;
  run_ordered(borrowed_scheme("scheduler = \"dear\"\nroute = \"split\"",
                              "[scheduler.dear]\nthreshold_bytes = 0\n"),
              PENSTOCK_SET_DEFERRED_UPDATE, kSteps, sent);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const auto share = [&](uint64_t numel) {
      const uint64_t count = numel + 1;
      return count / kRanks + (rank < count % kRanks ? 1 : 0);
    };
    EXPECT_EQ(sent[rank],
              repeated({24, 18, 12, 6, share(5), share(11), share(17), share(23)}, kSteps))
        << "rank " << rank;
  }
}

// After an aborted step the next steps must be right.
void expect_right_steps(Set& set, uint32_t rank) {
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<float>> gradients = gradients_of(float(rank));
    ASSERT_OK(testing::run_step(set, gradients));
    for (const auto& values : gradients)
      for (const float value : values) ASSERT_EQ(value, 1) << "step " << step;
  }
}

// The last message of the sequence is ready and waits for earlier messages, which never come.
TEST(Sequence, OfAStepThatIsNeverFinishedHoldsNoSetBack) {
  with_ordered_sets(borrowed_scheme("scheduler = \"wfbp\""), 0, [](auto& set, auto&, uint32_t) {
    std::vector<std::vector<float>> gradients = gradients_of(1);
    ASSERT_OK(set->gradient_ready(0, view_of(gradients[0])));
    set.reset();  // the destructor returns
  });
}

TEST(Sequence, GoesOnAfterAResetInMidStep) {
  for (const std::vector<size_t>& ready :
       {std::vector<size_t>{0}, std::vector<size_t>{3, 1}, std::vector<size_t>{0, 1, 2, 3}})
    with_ordered_sets(borrowed_scheme("scheduler = \"wfbp\""), 0,
                      [&](auto& set, auto&, uint32_t rank) {
                        std::vector<std::vector<float>> gradients = gradients_of(1);
                        for (const size_t i : ready)
                          ASSERT_OK(set->gradient_ready(i, view_of(gradients[i])));
                        ASSERT_OK(set->reset());
                        expect_right_steps(*set, rank);
                      });
}

// The first message of the sequence has been sent, the others will never be sent.
TEST(Sequence, GoesOnAfterALoadInMidStep) {
  with_ordered_sets(borrowed_scheme("scheduler = \"wfbp\""), 0,
                    [](auto& set, auto&, uint32_t rank) {
                      expect_right_steps(*set, rank);
                      std::string saved;
                      ASSERT_OK(set->save(saved));
                      std::vector<std::vector<float>> gradients = gradients_of(1);
                      ASSERT_OK(set->gradient_ready(3, view_of(gradients[3])));
                      for (bool done = false; !done; std::this_thread::yield())
                        ASSERT_OK(set->poll(3, done));
                      ASSERT_OK(set->load(saved));
                      expect_right_steps(*set, rank);
                    });
}

}  // namespace
}  // namespace penstock::sequence_test
