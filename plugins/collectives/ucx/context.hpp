// A UCX context with its worker, and the address at which other ranks reach it.
#pragma once

#include "words.hpp"

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>

namespace penstock::ucx {

// The transports and devices that UCX may use, as in UCX_TLS and UCX_NET_DEVICES. Empty: the values
// of these variables, or all.
struct Selection {
  std::string transports;
  std::string devices;
  // messages of at least so many bytes are announced before they are sent, as in UCX_RNDV_THRESH
  std::string announced = "";
  // Bytes in flight in a TCP connection, as in UCX_TCP_SNDBUF and UCX_TCP_RCVBUF.
  std::string socket_buffer = "";
  std::string ports = "";  // at which TCP may listen, as in UCX_TCP_PORT_RANGE
  // Keep-alive: after which idle time TCP probes a connection, and how often UCX itself sends
  // probes, as in UCX_TCP_KEEPIDLE and UCX_KEEPALIVE_INTERVAL.
  std::string idle = "";
  std::string asks = "";
};

// Whether the selection lets UCX use TCP and choose the network device.
bool leaves_tcp_open(const Selection& selection);

// The selection for a network on which `n_senders` ranks lie on other hosts. Segments are sent
// without an announcement: the answer to an announcement queues behind the data that the other side
// sends over that connection, so two ranks that both send would wait for each other's segments. If
// several ranks may send to this host at once, a connection keeps few bytes in flight: otherwise
// the connections overflow the queue before the host's link, TCP shares the remaining bandwidth
// unevenly, and a sum waits for the slowest rank. UCX sends no keep-alive probes: with probes it
// ends an idle connection after half a minute without a link, but only the run decides, after a
// whole deadline, that a rank is dead.
Selection network_of(Selection selection, uint32_t n_senders);

// The part of the selection that goes through memory of this host; with `devices` also the
// transports for memory of devices. `transports` is empty if the selection has no transport through
// memory.
Selection memory_of(const Selection& selection, bool devices);

// The list of transports without those that need /dev/shm. Empty if nothing is left, or if the list
// has none of them.
std::string without_dev_shm(const std::string& transports);

// Whether the selection lets UCX use its transports for memory of CUDA devices.
bool allows_cuda(const Selection& selection);

// Throws `code` with UCX's own text unless `status` is UCS_OK.
void check(ucs_status_t status, const char* what, uint32_t code);

class Context {
 public:
  Context(const Selection& selection, uint32_t n_peers);
  ~Context();  // ends all requests; does not wait for other ranks
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ucp_worker_h worker() const { return worker_; }
  const std::string& address() const { return address_; }
  // Whether UCX says that it moves memory of CUDA devices; false if this UCX is too old to be
  // asked.
  bool takes_cuda() const;
  // Drives all requests, and returns whether anything moved.
  bool progress() { return ucp_worker_progress(worker_) != 0; }

  // Counts a send that was begun. UCX reports the end of a send as soon as UCX has a copy of the
  // data.
  void note_send() { ++n_sends_; }
  // Whether all sent data has left UCX. UCX moves its copies only while it is driven.
  bool has_let_go();

 private:
  // Both leave nothing behind if they fail.
  ucs_status_t open(const Selection& selection, uint32_t n_peers);
  ucs_status_t open_worker();
  // Opens without /dev/shm, with a warning. Returns `refused` if that is no other selection.
  ucs_status_t open_without_dev_shm(Selection selection, uint32_t n_peers, ucs_status_t refused);

  const Words words_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  uint64_t n_sends_ = 0;
  uint64_t n_let_go_ = 0;   // the first so many sends have left UCX
  void* flush_ = nullptr;   // the flush in progress; null: none
  uint64_t n_flushed_ = 0;  // the sends that this flush covers
};

}  // namespace penstock::ucx
