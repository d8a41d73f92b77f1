// Where this process is in the network, for UCX's TCP: on which device and at which ports it
// listens, and how that is told where nobody gets there.
#pragma once

#include <penstock/host.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::ucx {

// The interface that no other host reaches; empty where none is up with an IPv4 address: by ::1
// alone UCX 1.13 does not listen.
std::string loopback_device();

// Whether all ranks, who share a host, share its network too, so that the loopback of one leads to
// the others: containers and network namespaces may have theirs. Collective; they tell each other
// through the store. False where the system does not say.
bool share_network(const penstock_key_value_store& store, uint32_t rank, uint32_t size,
                   uint64_t timeout_us);

// "node2 (eth0 10.0.0.2)": this host and its addresses on `devices`, a list as UCX takes it; empty:
// as UCX_NET_DEVICES says, or all but loopback.
std::string place_of(std::string_view devices);

// "20000-20099" or "20000" as UCX takes it, which would take what it cannot read for any port.
// Empty stays so. INVALID_ARGUMENT.
std::string range_of_ports(std::string_view asked);

}  // namespace penstock::ucx
