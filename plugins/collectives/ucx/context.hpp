// UCX itself: a context, its worker, and what ranks need to reach it.
#pragma once

#include "words.hpp"

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>

namespace penstock::ucx {

// Which of UCX's transports and devices may be used, as in UCX_TLS and UCX_NET_DEVICES; empty: what
// those variables say, or all.
struct Selection {
  std::string transports;
  std::string devices;
  std::string announced = "";  // bytes from which on a message is announced, as in UCX_RNDV_THRESH
  // Bytes under way in a TCP connection, as in UCX_TCP_SNDBUF and UCX_TCP_RCVBUF.
  std::string socket_buffer = "";
  std::string ports = "";  // that TCP may listen at, as in UCX_TCP_PORT_RANGE
  // When UCX begins to ask whether the other end of an idle connection lives, and how often it asks
  // by messages of its own, as in UCX_TCP_KEEPIDLE and UCX_KEEPALIVE_INTERVAL.
  std::string idle = "";
  std::string asks = "";
};

// Whether it leaves UCX TCP, and the choice of its device.
bool leaves_tcp_open(const Selection& selection);

// The same for a network with `n_senders` ranks on other hosts. Segments go without being
// announced: an announcement's answer queues behind what the other side sends over the same
// connection, and two ranks that both send then wait for each other's segments. Where several may
// send to this host at once, a connection keeps little under way: otherwise they overflow the queue
// before its link, TCP shares what is left unevenly, and a sum waits for the slowest of them. UCX
// asks nobody whether it lives: within half a minute without a link it ends an idle connection,
// and who is dead is for the run to say, which waits for a whole deadline.
Selection network_of(Selection selection, uint32_t n_senders);

// The part of it that goes through memory of this host, and with `devices` what moves theirs; no
// transports where there is none.
Selection memory_of(const Selection& selection, bool devices);

// Whether it leaves UCX its ways into memory of CUDA devices.
bool allows_cuda(const Selection& selection);

// Throws `code` with UCX's own words unless `status` is UCS_OK.
void check(ucs_status_t status, const char* what, uint32_t code);

class Context {
 public:
  Context(const Selection& selection, uint32_t n_peers);
  ~Context();  // whatever is under way ends; waits for nobody
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ucp_worker_h worker() const { return worker_; }
  const std::string& address() const { return address_; }
  // As UCX says; false where it is too old to be asked.
  bool takes_cuda() const;
  // Drives everything under way, and returns whether something moved.
  bool progress() { return ucp_worker_progress(worker_) != 0; }

  // A send was begun. UCX says that one has ended as soon as it has a copy.
  void note_send() { ++n_sends_; }
  // Whether all that was sent has left UCX, which otherwise moves it only while it is driven.
  bool has_let_go();

 private:
  const Words words_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  uint64_t n_sends_ = 0;
  uint64_t n_let_go_ = 0;   // of them, the first so many have left
  void* flush_ = nullptr;   // under way
  uint64_t n_flushed_ = 0;  // by it, of all sends
};

}  // namespace penstock::ucx
