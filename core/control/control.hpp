// Control: a small TCP store, the rendezvous of ranks, and the failure detector. It never carries
// gradient data.
//
// Rank 0 runs the server (server.hpp). Every rank, rank 0 included, has one client with a watch
// thread. The watch thread does all socket work of the client, sends heartbeats and runs the
// callbacks. In a world of one rank it talks to the server's state directly, without a socket.
//
// RendezvousTable: gather, agree and request use one mechanism. A rank names a topic and the ranks
// that take part. When the last of these ranks has come, each rank receives the texts of all. The
// server answers in one order, and every rank sees a subsequence of that order. Therefore work
// that answers start, such as opening channels, cannot deadlock.
#pragma once

#include "core/base/status.hpp"
#include "core/control/activity.hpp"

#include <penstock/host.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// A named operation that this rank requests.
struct OperationRequest {
  std::string name;
  std::vector<uint32_t> ranks;  // world ranks that take part, ascending; empty: all
  std::string signature;        // lines that must be equal on all ranks
  std::string detail;           // this rank's own facts, handed to all ranks
  // No step of this set continues before the answer; empty: steps do not wait.
  std::string holds = {};
  // The outcome if only joined ranks are missing: they may still request the operation (comes), or
  // they add zeros, to a sum that `zeros` describes (adds_zeros), or the request is refused
  // (refused), or it goes on without them (left_out).
  enum class IfJoined { comes, adds_zeros, refused, left_out } if_joined = IfJoined::comes;
  std::string zeros = {};
};

// The response that every member receives when all members have requested the operation.
struct OperationResponse {
  uint64_t serial = 0;  // its number among all completed requests of the run, equal on all members
  // The number of answers that follow this answer at once. The members of a group find equal
  // operations of the group among these answers, in one order, and may execute them together.
  uint64_t left = 0;
  std::vector<std::string> details;  // in the order of ranks
};

// News about a step of a set, for ranks that have joined.
struct StepNotice {
  std::string set;
  std::vector<uint32_t> ranks;  // the ranks of the set; empty: all
  uint64_t step = 0;            // its number among all steps of the set, forgotten steps included
  // True: the step ends, and `facts` describe its end; false: it begins.
  bool over = false;
  std::string facts;
};

// Handlers for the events on other ranks after this rank has joined.
struct WhileJoined {
  // The other ranks have requested a sum: this rank takes part at its place in the agreed order.
  struct Sum {
    std::string name;
    std::vector<uint32_t> ranks;
    std::string zeros;
    OperationResponse response;
  };
  // All handlers run on the watch thread.
  std::function<void(Sum sum)> sum;
  std::function<void(StepNotice step)> step;
  // The last call: every rank has joined, `last_rank` last; or an error.
  std::function<void(Status status, uint32_t last_rank)> ended;
};

class Control {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t size = 1;
    uint64_t deadline_us = 60'000'000;  // a rank silent for longer has failed; also bounds start
    uint64_t heartbeat_us = 200'000;    // at most a quarter of the deadline is used
    // The longest wait for ranks that have not come yet; 0: the deadline. Rank 0 waits for all
    // ranks, every other rank waits for rank 0.
    uint64_t rendezvous_us = 0;
    // The age of a wait for a live rank at its first warning, and the interval of repeats; 0: no
    // warnings.
    uint64_t warning_us = 10'000'000;
    // The longest wait for live ranks, in operations and steps; 0: no limit. Rank 0's value counts;
    // also for the warnings.
    uint64_t busy_limit_us = 0;
    // Ranks that wait for each other in a circle are released after this time; 0: never.
    uint64_t circle_us = 60'000'000;
    uint64_t linger_us = 5'000'000;  // how long rank 0 stays for the goodbyes of the others
    // Broadcasts a text from rank 0: takes the text on rank 0 and an empty text on every other
    // rank, and returns rank 0's text. Collective: start calls it once on every rank, except in a
    // world of one rank.
    std::function<Result<std::string>(std::string mine)> exchange_address;
    // Used instead of exchange_address if all ranks know beforehand where rank 0 serves. Every
    // process that knows the token and reaches the port may connect, from any host unless `host` is
    // loopback.
    struct Place {
      std::string host;  // name or IPv4 address
      uint16_t port = 0;
      std::string token;  // at most 200 bytes
      // For a place that another run may know too: no rank continues before rank 0 has listened
      // this long. If ranks of the other run connect in that time, both runs end.
      uint64_t settle_us = 0;
    };
    std::optional<Place> place;
    // Runs on the watch thread. Must not block and must not call get, put, gather, agree or stop.
    std::function<void(Status reason)> on_abort;  // called at most once
    // Called on rank 0; on another rank only inside start, before it has found rank 0.
    std::function<void(std::string text)> on_warning;
    std::function<void()> on_beat;  // called with every heartbeat
    // Another rank has joined: call notify_step for the steps under way.
    std::function<void()> on_joined;
    // This rank's activity, reported to the others; null: Control makes its own.
    std::shared_ptr<Activity> activity;
    // all_are_here: every rank reaches rank 0 over loopback; then the server accepts no connection
    // from other hosts. server_is_here: this rank reaches rank 0 over loopback.
    bool all_are_here = true;
    bool server_is_here = true;
  };

  // [control] Collective: returns when every rank is connected. Errors: DEADLINE_EXCEEDED names the
  // missing ranks. If two processes have one rank (two runs at one place), both runs get an error.
  static Result<std::unique_ptr<Control>> start(Options options);
  ~Control();  // stop
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // [any] except callbacks. Blocks until the server has stored it.
  Status put(std::string_view key, std::string_view value);
  // [any] except callbacks. Waits until the key is there; DEADLINE_EXCEEDED names the key.
  Result<std::string> get(std::string_view key, uint64_t timeout_us);
  // The store as a table for plugins; valid as long as this object.
  const penstock_key_value_store* store() const { return &store_; }

  // [any] except callbacks. Every rank of `ranks` (ascending, including this rank; empty: all
  // ranks) hands in a text under one topic and receives all texts in rank order. If a rank does not
  // come within the timeout (the shortest timeout of the ranks counts), every rank gets
  // DEADLINE_EXCEEDED, which names the missing ranks. A topic may be used again after its end.
  Result<std::vector<std::string>> gather(std::string_view topic, std::string_view text,
                                          const std::vector<uint32_t>& ranks, uint64_t timeout_us);
  // Like gather, but only the first of `ranks` hands in a text, and every rank receives this text.
  // The `text` of the other ranks is ignored.
  Result<std::string> hear_first(std::string_view topic, std::string_view text,
                                 const std::vector<uint32_t>& ranks, uint64_t timeout_us);
  // Like gather, but all texts must be equal. Otherwise every rank gets MISMATCH, with the first
  // line that differs, its versions and the ranks of each version.
  Status agree(std::string_view topic, std::string_view text, const std::vector<uint32_t>& ranks,
               uint64_t timeout_us);

  // [any] except callbacks. Comes to that rendezvous but does not take part: every other rank gets
  // an error with this rank's number and `why`. Returns `why`.
  Status refuse(std::string_view topic, const Status& why, const std::vector<uint32_t>& ranks);

  // [any] This rank has waited for the messages of a step for a while: the server warns by name
  // about ranks that do not come. `ended` is called at most once, on the watch thread, if the wait
  // is hopeless: a needed rank has left, or the limit has passed. Returns the number that
  // step_wait_over takes.
  using Ended = std::function<void(Status reason)>;
  uint64_t step_wait(std::string_view set, uint64_t step, const std::vector<uint32_t>& ranks,
                     Ended ended);
  void step_wait_over(uint64_t id);

  // [any] Requests a named operation and returns at once. `answer` is called once, on the watch
  // thread (on the calling thread if the run is already aborted). Its status is success with the
  // response when all ranks of the group have requested the operation, MISMATCH if signatures
  // differ, or the reason of an abort.
  using Answer = std::function<void(Status status, OperationResponse response)>;
  // Returns a number for `blocked`.
  uint64_t request(OperationRequest request, Answer answer);
  // [any] The program cannot continue until this request is answered.
  void blocked(uint64_t request);

  // [any] This rank has no more data. Returns at once. Must not be called again before `ended`.
  void join(WhileJoined handlers);
  // [any] Whether another rank has joined while some ranks have not.
  bool somebody_joined() const;
  // [any] Notifies the ranks that have joined; each rank is sent only steps that are new to it.
  void notify_step(StepNotice step);

  // [any] Sets this rank's activity for the error messages of other ranks. Cheap: only the newest
  // text is sent.
  void note(std::string_view text);

  // [any] Aborts the run on every rank: all waits and requests end with an error that carries the
  // reason. Returns without waiting.
  void abort(const Status& reason);
  bool aborted() const;
  Status abort_reason() const;  // success while not aborted

  // [control] Says goodbye; pending waits end with ABORTED. Rank 0 serves the other ranks, so it
  // waits for their goodbyes, at most wait_us, and warns by name. True: it waits no longer, because
  // all have left or failed, or linger_us has passed. After an abort it waits a moment only. False:
  // call again.
  bool leave(uint64_t wait_us);
  // [control] Leaves, and ends the threads. Further calls do nothing.
  void stop();

  uint32_t rank() const;
  uint32_t size() const;
  // [any] Bytes that the server on this rank has received and sent; 0 if there is no server here.
  uint64_t served_bytes() const;

 private:
  class Client;
  explicit Control(std::unique_ptr<Client> client);
  std::unique_ptr<Client> client_;
  penstock_key_value_store store_{};
};

}  // namespace penstock
