// Writing a collective in C++: a class that declares its own types Channel and Ticket.
//
//   namespace sdk = penstock::sdk;
//   class Transport {
//    public:
//     struct Channel {};
//     struct Ticket {};
//     static inline const sdk::OptionList options{};
//     explicit Transport(const sdk::Options& values);
//     void describe(penstock_collective_traits& traits) const;
//     void volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
//                 penstock_volume& within, penstock_volume& between) const;
//     std::unique_ptr<Channel> open(const sdk::OpenCall& call);
//     // the plugin owns and pools tickets; a ticket is never null
//     Ticket* submit(Channel& channel, const penstock_message& message);
//     bool progress(Ticket& ticket);  // true when done
//     void release(Ticket* ticket);
//     void abort(Channel& channel);
//     void close(std::unique_ptr<Channel> channel);
//     // transports; `world` is filled already, with a store, if describe sets IS_NOTIFIED
//     void join(uint64_t timeout_us, penstock_world& world);
//     void leave(bool aborted);
//     // composites
//     void plan(Channel& channel, const penstock_message& message, sdk::CollectiveNeed& need);
//     void returned(Ticket& ticket, penstock_payload* const* payloads, uint64_t n_items);
//     // transports that take REDUCE_MEAN of these types (mean.h)
//     static constexpr uint64_t kMeanDtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT16);
//   };
//   PENSTOCK_COLLECTIVE(Transport, "collective/mpi", "0.1.0", "one sentence", "");
#pragma once

#include <penstock/arguments.hpp>
#include <penstock/mean.hpp>
#include <penstock/need.hpp>
#include <penstock/record.hpp>

#include <memory>

namespace penstock::sdk {

struct OpenCall {
  const penstock_group& group;
  const penstock_base_channel* base;  // null for a transport
  const penstock_key_value_store* store;
  uint64_t timeout_us;
};

// The needs of a composite for one message.
class CollectiveNeed {
 public:
  StateList states;
  uint64_t scratch_bytes = 0;
  uint64_t result_capacity = 0;

  void publish(penstock_collective_need* need) const {
    need->scratch_bytes = scratch_bytes;
    need->states = states.data();
    need->n_states = states.size();
    need->result_capacity = result_capacity;
  }
};

template <typename T>
concept CollectiveClass = requires(T collective, const T& constant,
                                   penstock_collective_traits& traits, penstock_volume& volume,
                                   const OpenCall& call, typename T::Channel& channel,
                                   typename T::Ticket* ticket, const penstock_message& message) {
  T::options;
  constant.describe(traits);
  constant.volume(uint32_t(), uint32_t(), uint32_t(), uint64_t(), volume, volume);
  { collective.open(call) } -> std::same_as<std::unique_ptr<typename T::Channel>>;
  { collective.submit(channel, message) } -> std::same_as<typename T::Ticket*>;
  { collective.progress(*ticket) } -> std::same_as<bool>;
  collective.release(ticket);
  collective.abort(channel);
}
&&std::constructible_from<T, const Options&>;

template <typename T>
class CollectiveTable {
  static_assert(CollectiveClass<T>,
                "a collective needs: options, describe, volume, open, submit, progress, release, "
                "abort, close");
  using Channel = typename T::Channel;
  using Ticket = typename T::Ticket;

  struct Instance {
    explicit Instance(const Options& options) : collective(options) {}
    T collective;
    std::deque<CollectiveNeed> needs;
  };
  static T& self(void* instance) { return static_cast<Instance*>(instance)->collective; }
  static Channel* own(penstock_channel* channel) { return reinterpret_cast<Channel*>(channel); }
  static Ticket* own(penstock_ticket* ticket) { return reinterpret_cast<Ticket*>(ticket); }

  // Runs a call that ends something and returns no status. An exception is logged, because the end
  // of a channel is no reason to end the process.
  template <typename Body>
  static void contained(const char* call, Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {
      complain(call, error.what());
    } catch (...) {
      complain(call, "something that is no std::exception");
    }
  }
  static void complain(const char* call, const char* reason) noexcept {
    try {
      if (host() != nullptr)
        log(PENSTOCK_LOG_WARNING, "collective", text(call, " threw: ", reason));
    } catch (...) {
      // There is no memory for a log line: the exception cannot be reported.
    }
  }

  static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                                 void** instance) noexcept {
    return guarded([&] {
      check_options(options, n_options);
      *instance = new Instance(Options(options, n_options));
    });
  }
  static void destroy(void* instance) noexcept { delete static_cast<Instance*>(instance); }
  static penstock_status* describe(void* instance, penstock_collective_traits* traits) noexcept {
    return guarded([&] { self(instance).describe(*traits); });
  }
  static penstock_status* volume(void* instance, uint32_t pattern, uint32_t hosts,
                                 uint32_t ranks_per_host, uint64_t bytes,
                                 penstock_volume* const* volumes) noexcept {
    return guarded([&] {
      self(instance).volume(pattern, hosts, ranks_per_host, bytes, *volumes[0], *volumes[1]);
    });
  }
  static penstock_status* join(void* instance, uint64_t timeout_us,
                               penstock_world* world) noexcept requires
      requires(T c, penstock_world& w) {
    c.join(uint64_t(), w);
  }
  {
    return guarded([&] { self(instance).join(timeout_us, *world); });
  }
  static penstock_status* open(void* instance, const penstock_group* group,
                               const penstock_base_channel* base,
                               const penstock_key_value_store* store, uint64_t timeout_us,
                               penstock_channel** channel) noexcept {
    return guarded([&] {
      refuse_unknown(group, "penstock_group");
      refuse_unknown(base, "penstock_base_channel");
      *channel = reinterpret_cast<penstock_channel*>(
          self(instance).open(OpenCall{*group, base, store, timeout_us}).release());
    });
  }
  static penstock_status* plan(void* instance, penstock_channel* channel,
                               const penstock_message* const* messages, uint64_t n_messages,
                               penstock_collective_need* const* needs) noexcept requires
      requires(T c, Channel& ch, const penstock_message& m, CollectiveNeed& n) {
    c.plan(ch, m, n);
  }
  {
    return guarded([&] {
      auto& published = static_cast<Instance*>(instance)->needs;
      published.clear();
      for (uint64_t i = 0; i < n_messages; ++i) {
        check_message(*messages[i]);
        CollectiveNeed& need = published.emplace_back();
        self(instance).plan(*own(channel), *messages[i], need);
        need.publish(needs[i]);
      }
    });
  }
  static penstock_status* submit(void* instance, penstock_channel* channel,
                                 const penstock_message* message,
                                 penstock_ticket** ticket) noexcept {
    return guarded([&] {
      check_message(*message);
      *ticket = reinterpret_cast<penstock_ticket*>(self(instance).submit(*own(channel), *message));
    });
  }
  static penstock_status* progress(void* instance, penstock_ticket* ticket,
                                   uint32_t* state) noexcept {
    return guarded(
        [&] { *state = self(instance).progress(*own(ticket)) ? PENSTOCK_DONE : PENSTOCK_PENDING; });
  }
  static penstock_status* returned(void* instance, penstock_ticket* ticket,
                                   penstock_payload* const* payloads,
                                   uint64_t n_items) noexcept requires requires(T c, Ticket& t) {
    c.returned(t, static_cast<penstock_payload* const*>(nullptr), uint64_t());
  }
  {
    return guarded([&] {
      check_payloads(payloads, n_items);
      self(instance).returned(*own(ticket), payloads, n_items);
    });
  }
  static void release(void* instance, penstock_ticket* ticket) noexcept {
    contained("release", [&] { self(instance).release(own(ticket)); });
  }
  static void abort(void* instance, penstock_channel* channel) noexcept {
    contained("abort", [&] { self(instance).abort(*own(channel)); });
  }
  static void close(void* instance, penstock_channel* channel) noexcept {
    if (channel == nullptr) return;
    contained("close", [&] { self(instance).close(std::unique_ptr<Channel>(own(channel))); });
  }
  static void leave(void* instance, uint32_t aborted) noexcept requires requires(T c) {
    c.leave(bool());
  }
  {
    contained("leave", [&] { self(instance).leave(aborted != 0); });
  }
  static const void* extension(void*, [[maybe_unused]] penstock_str id) noexcept {
    if constexpr (requires { T::kMeanDtypes; })
      if (view(id) == PENSTOCK_MEAN_EXTENSION) return &mean_of_dtypes<T::kMeanDtypes>;
    return nullptr;
  }

  static constexpr penstock_collective make() {
    penstock_collective table{};
    table.struct_size = sizeof table;
    table.create = create;
    table.destroy = destroy;
    table.describe = describe;
    table.volume = volume;
    if constexpr (requires { &CollectiveTable::join; }) table.join = join;
    table.open = open;
    if constexpr (requires { &CollectiveTable::plan; }) table.plan = plan;
    table.submit = submit;
    table.progress = progress;
    if constexpr (requires { &CollectiveTable::returned; }) table.returned = returned;
    table.release = release;
    table.abort = abort;
    table.close = close;
    if constexpr (requires { &CollectiveTable::leave; }) table.leave = leave;
    table.extension = extension;
    return table;
  }

 public:
  static constexpr penstock_collective table = make();
};

}  // namespace penstock::sdk

#define PENSTOCK_COLLECTIVE(Type, ...) \
  PENSTOCK_DEFINE_PLUGIN(PENSTOCK_KIND_COLLECTIVE, CollectiveTable, Type, __VA_ARGS__)
