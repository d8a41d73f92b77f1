// The C++ layer in a newer host. If any argument has an unknown field that is set, the layer ends
// the call before the plugin's class sees it. (Compressors: growth_driver.c, with real headers.)
#include <penstock/collective.hpp>
#include <penstock/memory.hpp>
#include <penstock/scheduler.hpp>

#include <testing/gtest.hpp>

namespace penstock::test::arguments_test {
namespace {

int n_calls = 0;  // of the classes below

// A struct of a header with one more field.
template <typename T>
struct Grown {
  Grown() { c.struct_size = sizeof(Grown); }
  T c{};
  uint64_t future = 0;
};

struct Argument {
  const char* name;
  uint64_t* future;
};

// `call` succeeds. If a new field is set, `call` returns UNIMPLEMENTED and names the struct.
template <typename Call>
void expect_refusals(const std::vector<Argument>& arguments, Call&& call) {
  sdk::host_slot() = test_host();
  n_calls = 0;
  PENSTOCK_EXPECT_OK(call());
  EXPECT_EQ(n_calls, 1);
  for (const Argument& argument : arguments) {
    *argument.future = 1;
    EXPECT_TRUE(fails_with(call(), PENSTOCK_UNIMPLEMENTED,
                           std::string("a field of ") + argument.name + " beyond"));
    *argument.future = 0;
  }
  EXPECT_EQ(n_calls, 1) << "the class was called although the call was refused";
}

// ---- Memory ----

struct Memory {
  static inline const sdk::OptionList options{};
  explicit Memory(const sdk::Options&) {}
  void plan(const sdk::Item&, const penstock_compressor_need&, sdk::MemoryNeed&) { ++n_calls; }
  void compensate(const sdk::Call&, const sdk::Item&, std::span<const float>) { ++n_calls; }
  void give_back(const sdk::Call&, const sdk::Item&, const sdk::PayloadReader&) { ++n_calls; }
};

// Arguments for the calls of compressors and memories: one item, its payload, and a compressor's
// need.
struct CallArguments {
  Grown<penstock_exec> exec;
  Grown<penstock_step> step;
  Grown<penstock_item> item;
  Grown<penstock_section> section;
  Grown<penstock_payload> payload;
  Grown<penstock_section_bound> bound;
  Grown<penstock_round> round;
  Grown<penstock_state_declaration> state;
  Grown<penstock_compressor_need> need;
  penstock_section* sections[1] = {&section.c};
  const penstock_item* items[1] = {&item.c};
  const penstock_payload* payloads[1] = {&payload.c};
  const penstock_section_bound* bounds[1] = {&bound.c};
  const penstock_round* rounds[1] = {&round.c};
  const penstock_state_declaration* states[1] = {&state.c};
  const penstock_compressor_need* needs[1] = {&need.c};

  CallArguments() {
    payload.c.sections = sections;
    payload.c.n_sections = 1;
    payload.c.kind = PENSTOCK_PAYLOAD_DENSE;
    round.c.sections = bounds;
    round.c.n_sections = 1;
    need.c.rounds = rounds;
    need.c.n_rounds = 1;
    need.c.states = states;
    need.c.n_states = 1;
  }
  std::vector<Argument> of_step() {
    return {{"penstock_exec", &exec.future},
            {"penstock_step", &step.future},
            {"penstock_item", &item.future}};
  }
};

TEST(MemoryArguments, OfANewerHostAreRefusedWhereTheyAskForMore) {
  const penstock_memory& table = sdk::MemoryTable<Memory>::table;
  CallArguments a;
  Grown<penstock_option_value> option;
  const penstock_option_value* options[] = {&option.c};
  void* self = nullptr;
  option.future = 1;
  sdk::host_slot() = test_host();
  EXPECT_TRUE(
      fails_with(table.create(options, 1, &self), PENSTOCK_UNIMPLEMENTED, "penstock_option_value"));
  option.future = 0;
  PENSTOCK_ASSERT_OK(table.create(options, 1, &self));

  Grown<penstock_memory_need> need;
  penstock_memory_need* needs[] = {&need.c};
  expect_refusals({{"penstock_item", &a.item.future},
                   {"penstock_compressor_need", &a.need.future},
                   {"penstock_round", &a.round.future},
                   {"penstock_section_bound", &a.bound.future},
                   {"penstock_state_declaration", &a.state.future}},
                  [&] { return table.plan(self, a.items, 1, a.needs, needs); });
  EXPECT_EQ(need.c.struct_size, sizeof need) << "the host's struct keeps the host's size";
  expect_refusals(a.of_step(), [&] {
    return table.compensate(self, &a.exec.c, &a.step.c, a.items, 1, nullptr);
  });
  std::vector<Argument> with_payload = a.of_step();
  with_payload.push_back({"penstock_payload", &a.payload.future});
  with_payload.push_back({"penstock_section", &a.section.future});
  expect_refusals(with_payload, [&] {
    return table.give_back(self, &a.exec.c, &a.step.c, a.items, 1, a.payloads);
  });
  table.destroy(self);
}

// ---- Collective ----

struct Transport {
  struct Channel {};
  struct Ticket {};
  static inline const sdk::OptionList options{};
  explicit Transport(const sdk::Options&) {}
  void describe(penstock_collective_traits&) const {}
  void volume(uint32_t, uint32_t, uint32_t, uint64_t, penstock_volume&, penstock_volume&) const {}
  std::unique_ptr<Channel> open(const sdk::OpenCall&) {
    ++n_calls;
    return std::make_unique<Channel>();
  }
  Ticket* submit(Channel&, const penstock_message&) {
    ++n_calls;
    return &ticket;
  }
  bool progress(Ticket&) { return true; }
  void release(Ticket*) {}
  void abort(Channel&) {}
  void close(std::unique_ptr<Channel>) {}
  Ticket ticket;
};

TEST(CollectiveArguments, OfANewerHostAreRefusedWhereTheyAskForMore) {
  const penstock_collective& table = sdk::CollectiveTable<Transport>::table;
  void* self = nullptr;
  sdk::host_slot() = test_host();
  PENSTOCK_ASSERT_OK(table.create(nullptr, 0, &self));
  Grown<penstock_group> group;
  Grown<penstock_base_channel> base;
  Grown<penstock_key_value_store> store;
  store.future = 1;  // a table of functions: new members may be ignored
  penstock_channel* channel = nullptr;
  expect_refusals({{"penstock_group", &group.future}, {"penstock_base_channel", &base.future}},
                  [&] {
                    table.close(self, channel);
                    channel = nullptr;
                    return table.open(self, &group.c, &base.c, &store.c, 0, &channel);
                  });
  PENSTOCK_ASSERT_OK(table.open(self, &group.c, &base.c, &store.c, 0, &channel));

  CallArguments a;
  penstock_payload* results[] = {&a.payload.c};
  Grown<penstock_message> message;
  message.c.items = a.items;
  message.c.payloads = a.payloads;
  message.c.results = results;
  message.c.n_items = 1;
  message.c.exec = &a.exec.c;
  message.c.step = &a.step.c;
  std::vector<Argument> arguments = a.of_step();
  arguments.push_back({"penstock_message", &message.future});
  arguments.push_back({"penstock_payload", &a.payload.future});
  arguments.push_back({"penstock_section", &a.section.future});
  expect_refusals(arguments, [&] {
    penstock_ticket* ticket = nullptr;
    return table.submit(self, channel, &message.c, &ticket);
  });
  table.close(self, channel);
  table.destroy(self);
}

// Every call at the end of an operation throws, like a transport whose peers are gone.
struct ThrowingTransport : Transport {
  using Transport::Transport;
  std::unique_ptr<Channel> open(const sdk::OpenCall&) { return std::make_unique<Channel>(); }
  void release(Ticket*) { throw sdk::Error(PENSTOCK_PEER_FAILED, "rank 1 is gone"); }
  void abort(Channel&) { throw std::bad_alloc(); }
  void close(std::unique_ptr<Channel>) { throw sdk::Error(PENSTOCK_PEER_FAILED, "rank 1 is gone"); }
  void leave(bool) { throw 1; }
};

TEST(CollectiveEnds, ThatThrowAreLoggedAndLeaveTheProcessAlive) {
  static std::vector<std::string> lines;
  lines.clear();
  penstock_host host = *test_host();
  host.log = [](void*, uint32_t, penstock_str, penstock_str message) {
    lines.emplace_back(message.data, message.size);
  };
  sdk::host_slot() = &host;
  const penstock_collective& table = sdk::CollectiveTable<ThrowingTransport>::table;
  void* self = nullptr;
  PENSTOCK_ASSERT_OK(table.create(nullptr, 0, &self));
  penstock_group group{};
  group.struct_size = sizeof group;
  penstock_channel* channel = nullptr;
  PENSTOCK_ASSERT_OK(table.open(self, &group, nullptr, nullptr, 0, &channel));
  ThrowingTransport::Ticket ticket;
  table.release(self, reinterpret_cast<penstock_ticket*>(&ticket));
  table.abort(self, channel);
  table.close(self, channel);
  table.leave(self, 0);
  table.destroy(self);
  sdk::host_slot() = test_host();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "release threw: rank 1 is gone");
  EXPECT_EQ(lines[2], "close threw: rank 1 is gone");
  EXPECT_EQ(lines[1].rfind("abort threw: ", 0), 0u) << lines[1];
  EXPECT_EQ(lines[3], "leave threw: something that is no std::exception");
}

// ---- Scheduler ----

struct Planner {
  static inline const sdk::OptionList options{};
  explicit Planner(const sdk::Options&) {}
  void describe(penstock_scheduler_traits&) const {}
  void plan(const penstock_model&, sdk::PlanSink& sink) {
    ++n_calls;
    sink.add_message(1, 2, 3, 4);
  }
  uint32_t observe(const penstock_measurement&) {
    ++n_calls;
    return PENSTOCK_KEEP_PLAN;
  }
};

TEST(SchedulerArguments, OfANewerHostAreRefusedWhereTheyAskForMore) {
  const penstock_scheduler& table = sdk::SchedulerTable<Planner>::table;
  void* self = nullptr;
  sdk::host_slot() = test_host();
  PENSTOCK_ASSERT_OK(table.create(nullptr, 0, &self));
  Grown<penstock_candidate> candidate;
  Grown<penstock_gradient_model> gradient;
  Grown<penstock_link> link;
  Grown<penstock_model> model;
  const penstock_candidate* candidates[] = {&candidate.c};
  const penstock_gradient_model* gradients[] = {&gradient.c};
  const penstock_link* links[] = {&link.c};
  gradient.c.candidates = candidates;
  gradient.c.n_candidates = 1;
  model.c.gradients = gradients;
  model.c.links = links;
  model.c.n_gradients = model.c.n_links = 1;
  Grown<penstock_plan_sink> sink;
  sink.future = 1;  // a table of functions
  static std::vector<uint32_t> messages;
  sink.c.add_message = [](void*, uint32_t phase, uint32_t bucket, uint32_t leg,
                          uint32_t round) -> penstock_status* {
    messages.insert(messages.end(), {phase, bucket, leg, round});
    return nullptr;
  };
  expect_refusals({{"penstock_candidate", &candidate.future},
                   {"penstock_gradient_model", &gradient.future},
                   {"penstock_link", &link.future},
                   {"penstock_model", &model.future}},
                  [&] { return table.plan(self, &model.c, &sink.c); });
  EXPECT_EQ(messages, (std::vector<uint32_t>{1, 2, 3, 4}));
  // The sink of an older host without this member. The plan does not use it.
  sink.c.struct_size = offsetof(penstock_plan_sink, add_message);
  PENSTOCK_EXPECT_OK(table.plan(self, &model.c, &sink.c));
  EXPECT_EQ(messages.size(), 4u);

  Grown<penstock_measurement> measurement;
  uint32_t decision = 7;
  expect_refusals({{"penstock_measurement", &measurement.future}},
                  [&] { return table.observe(self, &measurement.c, &decision); });
  EXPECT_EQ(decision, uint32_t{PENSTOCK_KEEP_PLAN});
  table.destroy(self);
}

}  // namespace
}  // namespace penstock::test::arguments_test
