// The control server: the sockets and the thread around control::State. Rank 0 only.
#pragma once

#include "core/base/mutex.hpp"
#include "core/control/beats.hpp"
#include "core/control/socket.hpp"
#include "core/control/state.hpp"

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace penstock::control {

class Server {
 public:
  // Listens at once and serves on its own thread. `own` is the hello that the client of this
  // process, rank 0, will send; every client must know its token. `address`: an address of this
  // host, or kEveryAddress. Port 0: the system chooses a port.
  static Result<std::unique_ptr<Server>> start(const State::Options& options, Hello own,
                                               std::string_view address, uint16_t port = 0);
  ~Server();  // notifies the members that are left, and ends the thread
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return listener_.port; }
  // [any] Bytes of frames that were received from members and sent to them.
  uint64_t served_bytes() const { return served_bytes_.load(std::memory_order_relaxed); }

  // [any] From now on the thread ends when every member has left or failed, soon after an abort,
  // and after linger_us at the latest. Of several calls the earliest end counts.
  void end_within(uint64_t linger_us);
  // [control] After end_within: waits at most wait_us for the end. Returns the members that have
  // not left; empty: the thread has ended.
  std::vector<uint32_t> wait_for_end(uint64_t wait_us);

 private:
  struct Connection {
    Connection(Handle socket, uint64_t now)
        : link(std::move(socket), kMaxHelloBytes), opened_us(now) {}
    Link link;
    uint64_t opened_us;
    bool member = false;  // hello was accepted
    uint32_t rank = 0;
    std::string name;      // name of its process
    bool closing = false;  // closes when everything is written
    bool closed = false;
  };

  Server(const State::Options& options, Hello own);
  void loop();
  void wait(uint64_t now);
  void beat(uint64_t now);
  void accept_new(uint64_t now);
  void serve(Connection& connection, uint64_t now);
  void welcome(Connection& connection, std::string_view body, uint64_t now);
  void refuse_twin(Connection& connection, const Hello& hello, uint64_t now);
  void reject(Connection& connection, std::string_view reason);
  void lose(Connection& connection, std::string_view how);
  void send(uint32_t rank, std::string_view frame);
  void flush_all();
  bool has_served() const;
  uint64_t end_us() const;  // when the thread ends although members are left
  void tell_who_is_left(bool has_ended);

  const State::Options options_;
  const Hello own_;
  Listener listener_;
  Wakeup wakeup_;
  std::atomic<uint64_t> stop_by_us_{kNever};
  std::atomic<uint64_t> served_bytes_{0};
  Mutex mutex_;
  Condition changed_;
  bool has_ended_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::vector<uint32_t> present_ PENSTOCK_GUARDED_BY(mutex_);  // kept while the thread ends
  // Everything below is used by the server's thread only.
  State state_;
  std::optional<ServerBeats> beats_;
  uint64_t aborted_us_ = kNever;
  uint64_t beats_at_us_ = 0;  // when the next datagrams are sent
  std::list<Connection> connections_;
  std::map<uint32_t, Connection*> members_;
  std::vector<int> readable_;  // descriptors that the last wait found ready
  std::thread thread_;
};

}  // namespace penstock::control
