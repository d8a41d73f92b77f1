// The control server: the sockets and the thread around control::State. Rank 0 only.
#pragma once

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

namespace penstock::control {

class Server {
 public:
  // Listens at once and serves on its own thread. `own` is what the client of this process, rank 0,
  // will say; its token is what every client must know. `address`: of this host, or kEveryAddress.
  // Port 0: one that the system chooses.
  static Result<std::unique_ptr<Server>> start(const State::Options& options, Hello own,
                                               std::string_view address, uint16_t port = 0);
  ~Server();  // stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return listener_.port; }
  // [any] Received from members and sent to them, in bytes of frames.
  uint64_t served_bytes() const { return served_bytes_.load(std::memory_order_relaxed); }

  // [control] Serves until every member has left or failed, at most linger_us, then ends the
  // thread.
  void stop(uint64_t linger_us);

 private:
  struct Connection {
    Connection(Handle socket, uint64_t now)
        : link(std::move(socket), kMaxHelloBytes), opened_us(now) {}
    Link link;
    uint64_t opened_us;
    bool member = false;  // hello was accepted
    uint32_t rank = 0;
    std::string name;      // of its process
    bool closing = false;  // closes as soon as everything was written
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

  const State::Options options_;
  const Hello own_;
  Listener listener_;
  Wakeup wakeup_;
  std::atomic<uint64_t> stop_by_us_{kNever};
  std::atomic<uint64_t> served_bytes_{0};
  // From here on the server's thread only.
  State state_;
  std::optional<ServerBeats> beats_;
  uint64_t beats_at_us_ = 0;  // when they go out next
  std::list<Connection> connections_;
  std::map<uint32_t, Connection*> members_;
  std::vector<int> readable_;  // descriptors that the last wait found ready
  std::thread thread_;
};

}  // namespace penstock::control
