// Control: a small TCP store, meetings of ranks, and the failure detector. Never carries gradient
// data.
//
// Rank 0 runs the server (server.hpp); every rank, 0 too, has one client with a watch thread.
// The watch thread does all socket work of the client, sends heartbeats and runs the callbacks; it
// exists in a world of one as well, where it talks to the server's state directly and no socket is
// opened.
//
// Meetings: gather, agree and request are one mechanism. A rank names a topic and the ranks that
// take part; when the last of them has come, all get the texts of all. The server answers in one
// order, and every rank sees a subsequence of that order, so work started from the answers (opening
// channels) cannot wait in a circle.
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

// A named operation that this rank asks for.
struct OperationRequest {
  std::string name;
  std::vector<uint32_t> ranks;  // world ranks that take part, ascending; empty: all
  std::string signature;        // lines that must be equal on all ranks
  std::string detail;           // this rank's own facts, handed to all
  std::string holds = {};       // no step of this set goes on before the answer; empty: they do
  // What becomes of it when only ranks are missing that have joined: they may still ask for it, or
  // add zeros (`zeros` tells them to what), or it is refused.
  enum class IfJoined { comes, adds_zeros, refused } if_joined = IfJoined::comes;
  std::string zeros = {};
};

// What every member gets when all have asked.
struct OperationResponse {
  uint64_t serial = 0;  // its number among all completed requests of the run, equal on all members
  // Answers that follow this one at once. Members of a group find the same operations of their
  // group among those that come so, in one order, and may carry them out together.
  uint64_t left = 0;
  std::vector<std::string> details;  // in the order of ranks
};

// Of a step of a set, for ranks that have joined.
struct StepTold {
  std::string set;
  std::vector<uint32_t> ranks;  // of the set; empty: all
  uint64_t step = 0;            // its number among all of the set, forgotten ones too
  bool over = false;            // it ends: `facts` are of its end; else it begins
  std::string facts;
};

// What happens on other ranks while this one has joined.
struct WhileJoined {
  // They have asked for a sum: this rank takes part in its place of the agreed order.
  struct Sum {
    std::string name;
    std::vector<uint32_t> ranks;
    std::string zeros;
    OperationResponse response;
  };
  // All of these on the watch thread.
  std::function<void(Sum sum)> sum;
  std::function<void(StepTold step)> step;
  // The last: all have joined, this rank last; or an error.
  std::function<void(Status status, uint32_t last_rank)> ended;
};

class Control {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t size = 1;
    uint64_t deadline_us = 60'000'000;  // a rank silent for longer has failed; also bounds start
    uint64_t heartbeat_us = 200'000;    // at most a quarter of the deadline is used
    // Ranks that have not come yet are waited for this long; 0: the deadline. On rank 0 for all of
    // them, elsewhere for rank 0.
    uint64_t meeting_us = 0;
    // First warning about a wait for a rank that lives, and the interval of repeats; 0: none.
    uint64_t warning_us = 10'000'000;
    // Ranks that live are waited for this long, in operations and steps; 0: without an end. Rank
    // 0's counts, as for the warnings.
    uint64_t busy_limit_us = 0;
    // Ranks that wait for each other, so that none can go on, are let go after this; 0: never.
    uint64_t circle_us = 60'000'000;
    uint64_t linger_us = 5'000'000;  // how long stop waits for the others' goodbyes on rank 0
    // Broadcasts a text from rank 0: gets it on rank 0 and an empty one elsewhere, returns rank
    // 0's. Collective, called once inside start on every rank; not called in a world of one.
    std::function<Result<std::string>(std::string mine)> exchange_address;
    // Instead of that: where all ranks know beforehand that rank 0 serves. Anyone who knows the
    // token and reaches the port may come, from any host unless `host` means loopback.
    struct Place {
      std::string host;  // name or IPv4 address
      uint16_t port = 0;
      std::string token;  // at most 200 bytes
      // Where another run may know all this too: nobody goes on before rank 0 has listened this
      // long, in which ranks of that run knock as well and end both.
      uint64_t settle_us = 0;
    };
    std::optional<Place> place;
    // On the watch thread, must not block and must not call get, put, gather, agree or stop.
    std::function<void(Status reason)> on_abort;  // at most once
    // On rank 0; on others before they have found it, inside start.
    std::function<void(std::string text)> on_warning;
    std::function<void()> on_beat;       // with every heartbeat
    std::function<void()> on_joined;     // another rank has: tell_step, for steps under way
    std::shared_ptr<Activity> activity;  // what it tells of; null: one of its own
    // Where ranks are, as far as TCP is concerned: all of them where loopback reaches rank 0, so
    // that nobody else need be let in; this one at least.
    bool all_are_here = true;
    bool server_is_here = true;
  };

  // [control] Collective: returns when every rank is connected. Errors: DEADLINE_EXCEEDED names the
  // missing ranks. Where a rank is there twice (two runs meet at one place) both runs hear it.
  static Result<std::unique_ptr<Control>> start(Options options);
  ~Control();  // stop
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // [any] except callbacks. Blocks until the server has stored it.
  Status put(std::string_view key, std::string_view value);
  // [any] except callbacks. Waits until the key is there; DEADLINE_EXCEEDED names the key.
  Result<std::string> get(std::string_view key, uint64_t timeout_us);
  // The same as a table for plugins; valid as long as this object.
  const penstock_key_value_store* store() const { return &store_; }

  // [any] except callbacks. Every rank of `ranks` (ascending, with this one; empty: all) hands in a
  // text under the same topic and gets all of them in rank order. DEADLINE_EXCEEDED on every rank,
  // naming who did not come, when one does not come within the timeout (the shortest among the
  // ranks counts). A topic may be used again once it is over.
  Result<std::vector<std::string>> gather(std::string_view topic, std::string_view text,
                                          const std::vector<uint32_t>& ranks, uint64_t timeout_us);
  // As gather, but the first of `ranks` alone hands in a text, and every rank gets that one: `text`
  // of the others counts for nothing.
  Result<std::string> hear_first(std::string_view topic, std::string_view text,
                                 const std::vector<uint32_t>& ranks, uint64_t timeout_us);
  // As gather, but all texts must be equal: otherwise MISMATCH on every rank, with the first line
  // that differs, its versions and who has which.
  Status agree(std::string_view topic, std::string_view text, const std::vector<uint32_t>& ranks,
               uint64_t timeout_us);

  // [any] except callbacks. Comes to that meeting without taking part: every other rank gets an
  // error with this rank's number and `why`. Returns `why`.
  Status refuse(std::string_view topic, const Status& why, const std::vector<uint32_t>& ranks);

  // [any] This rank has waited for messages of a step for a while: ranks that do not come are
  // warned of by name. `ended` is called at most once, on the watch thread, when the wait is
  // hopeless: a rank that is needed has left, or the limit has passed. Returns what step_wait_over
  // takes.
  using Ended = std::function<void(Status reason)>;
  uint64_t step_wait(std::string_view set, uint64_t step, const std::vector<uint32_t>& ranks,
                     Ended ended);
  void step_wait_over(uint64_t id);

  // [any] Asks for a named operation and returns at once. `answer` is called once, on the watch
  // thread (on the calling thread when the run is already given up): with the response when all
  // ranks of the group have asked, with MISMATCH where signatures differ, or with the reason of an
  // abort.
  using Answer = std::function<void(Status status, OperationResponse response)>;
  // Returns a number for `blocked`.
  uint64_t request(OperationRequest request, Answer answer);
  // [any] The program goes no further until this request is answered.
  void blocked(uint64_t request);

  // [any] This rank's data is at an end; returns at once. Not again before `ended`.
  void join(WhileJoined handlers);
  // [any] Another rank has joined, and not all have.
  bool somebody_joined() const;
  // [any] For ranks that have joined; each hears what is news to it.
  void tell_step(StepTold step);

  // [any] What this rank is doing, for the others' error messages. Cheap; only the newest text is
  // sent.
  void note(std::string_view text);

  // [any] Gives up on every rank: all waits and requests end with an error that carries the reason.
  // Does not wait.
  void abort(const Status& reason);
  bool aborted() const;
  Status abort_reason() const;  // success while not aborted

  // [control] Says goodbye and ends the threads; what still waits ends with ABORTED. On rank 0 it
  // waits until all have said goodbye, at most linger_us. Further calls do nothing.
  void stop();

  uint32_t rank() const;
  uint32_t size() const;
  // [any] Bytes that the server of this rank has received and sent; 0 where there is none.
  uint64_t served_bytes() const;

 private:
  class Client;
  explicit Control(std::unique_ptr<Client> client);
  std::unique_ptr<Client> client_;
  penstock_key_value_store store_{};
};

}  // namespace penstock
