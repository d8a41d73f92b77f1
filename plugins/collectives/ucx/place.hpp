// The place of this process in the network, for UCX's TCP: the device and the ports at which it
// listens, and a description of the place for error messages of ranks that cannot reach it.
#pragma once

#include <penstock/host.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::ucx {

// The loopback interface, which no other host reaches. Empty if none is up with an IPv4 address,
// because UCX 1.13 does not listen at ::1 alone.
std::string loopback_device();

// Whether all ranks, which share a host, also share its network, so that the loopback interface of
// one rank leads to the others. Containers and network namespaces may have their own networks.
// Collective: every rank publishes its network in the store. False if the network is unknown.
bool share_network(const penstock_key_value_store& store, uint32_t rank, uint32_t size,
                   uint64_t timeout_us);

// "node2 (eth0 10.0.0.2)": this host and its addresses on `devices`, a list in the form of UCX.
// Empty: the devices of UCX_NET_DEVICES, or all but loopback.
std::string place_of(std::string_view devices);

// Turns "20000-20099" or "20000" into the range that UCX expects. An empty text stays empty.
// INVALID_ARGUMENT for any other text, because UCX would use any port if it cannot read the range.
std::string range_of_ports(std::string_view asked);

}  // namespace penstock::ucx
