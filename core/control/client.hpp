// The client side of Control: one connection, and the watch thread that does all its work.
//
// Other threads put frames into a queue and wake the watch thread, which passes the answers to
// handlers. In a world of one rank the other end is a control::State in this process instead of a
// socket.
#pragma once

#include "core/base/clock.hpp"
#include "core/base/mutex.hpp"
#include "core/control/address.hpp"
#include "core/control/beats.hpp"
#include "core/control/control.hpp"
#include "core/control/server.hpp"
#include "core/control/socket.hpp"
#include "core/control/state.hpp"
#include "core/control/stay.hpp"

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace penstock {

class Control::Client {
 public:
  explicit Client(Options options);
  ~Client() { stop(); }

  Status start();
  bool leave(uint64_t wait_us) {
    say_goodbye();
    return !stay_ || stay_->wait(wait_us);
  }
  void stop() {
    while (!leave(1'000'000)) {
    }
  }

  // Called once, with the server's reply or with the reason why there will be no reply.
  using Handler = std::function<void(control::Reply reply)>;
  // Sends the frame that `make` builds with a new id, and returns the id. 0: the frame was refused.
  uint64_t call(const std::function<std::string(uint64_t id)>& make, Handler handler);
  control::Reply call_and_wait(const std::function<std::string(uint64_t id)>& make);

  // The caller no longer wants the answer. The handler is not called any more, unless it is running
  // already.
  void withdraw(uint64_t id);
  // Sends a frame that has no answer.
  void send(std::string frame);

  void join(WhileJoined handlers);
  bool somebody_joined() const { return somebody_joined_.load(); }

  void note(std::string_view text);
  void abort(const Status& reason);
  Status abort_reason() const;
  const Options& options() const { return options_; }
  uint64_t served_bytes() const { return server_ == nullptr ? 0 : server_->served_bytes(); }

 private:
  // The address at which rank 0 serves.
  struct Address {
    std::string token;
    std::vector<std::string> hosts;
    uint16_t port = 0;
  };
  static Result<Address> parse_address(std::string_view text);

  control::State::Options state_options() const;
  Status connect();
  Result<std::string> serve();
  Result<Address> ask_rank_0();
  Result<Address> go_to_the_place();
  Status name_who_is_there(const std::vector<std::string>& hosts, const Status& cannot_listen);
  control::Hello hello(std::string token) const;
  void warn_of_rank_0(const Address& address, const Status& last, uint64_t waited_us) const;
  Result<control::Link> greet(const std::string& address, uint16_t port,
                              const control::Hello& hello, uint64_t until_us);
  Status wait_until_ready();
  void say_goodbye();

  // The watch thread.
  void loop();
  bool asks_many();
  void wait(uint64_t now);
  void send_queued(uint64_t now);
  void talk_to_server(uint64_t now);
  void talk_by_datagrams(uint64_t now);
  void receive_frames();
  void receive_one(std::string_view body);
  void receive_while_joined(control::FrameKind kind, control::Reader& reader);
  void server_lost(std::string_view how);
  void announce_abort();
  void set_abort(const Status& reason) PENSTOCK_REQUIRES(mutex_);
  void fail_all(const Status& reason);

  Options options_;
  // Random: distinguishes this process from another process with an equal rank.
  std::string drawn_;
  std::unique_ptr<control::Server> server_;  // on rank 0 of several ranks
  control::Wakeup wakeup_;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<std::string> queue_ PENSTOCK_GUARDED_BY(mutex_);  // frames to send
  std::map<uint64_t, Handler> handlers_ PENSTOCK_GUARDED_BY(mutex_);
  // Null: this rank has not joined.
  std::shared_ptr<const WhileJoined> joined_ PENSTOCK_GUARDED_BY(mutex_);
  uint64_t next_id_ PENSTOCK_GUARDED_BY(mutex_) = 1;
  uint64_t n_asked_ PENSTOCK_GUARDED_BY(mutex_) = 0;          // requests since the last answer
  uint64_t n_asked_at_last_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // n_asked_ at the last check
  Status abort_reason_ PENSTOCK_GUARDED_BY(mutex_);
  bool abort_announced_ PENSTOCK_GUARDED_BY(mutex_) = false;
  bool ready_ PENSTOCK_GUARDED_BY(mutex_) = false;     // every rank is connected
  bool leaving_ PENSTOCK_GUARDED_BY(mutex_) = false;   // goodbye was queued
  bool farewell_ PENSTOCK_GUARDED_BY(mutex_) = false;  // the server has answered it, or is gone
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;  // the watch thread ends

  std::atomic<bool> somebody_joined_{false};

  // Used by the watch thread only.
  std::optional<control::Link> link_;
  std::unique_ptr<control::State> local_;  // in a world of one rank
  std::deque<std::string> local_frames_;   // frames from local_, each with its length in front
  control::ClientBeats beats_;
  uint64_t datagram_at_us_ = 0;
  uint64_t beat_at_us_ = 0;
  uint64_t heard_us_ = 0;
  std::string server_note_;      // the last activity that rank 0 reported
  uint64_t server_note_us_ = 0;  // the time of that report
  std::thread thread_;

  // Used by the thread that leaves. Empty: this rank is not rank 0, or has not said goodbye.
  std::optional<control::Stay> stay_;
};

}  // namespace penstock
