// Heartbeats as datagrams: which datagrams are accepted, and their effects.
#include "core/control/beats.hpp"

#include <gtest/gtest.h>

#include <netinet/in.h>

#include <cstring>

namespace penstock::control {
namespace {

constexpr uint64_t kLongUs = 10'000'000;

// A connection of a run, and the listener that accepted it.
struct Connected {
  explicit Connected(int family) {
    sockaddr_storage place{};
    socklen_t size = sizeof(sockaddr_in);
    place.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(place).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6&>(place).sin6_addr = in6addr_loopback;
      size = sizeof(sockaddr_in6);
    }
    auto* const address = reinterpret_cast<sockaddr*>(&place);
    listener = Handle(socket(family, SOCK_STREAM, 0));
    connection = Handle(socket(family, SOCK_STREAM, 0));
    works = listener.valid() && connection.valid() && bind(listener.get(), address, size) == 0 &&
            listen(listener.get(), 1) == 0 && getsockname(listener.get(), address, &size) == 0 &&
            connect(connection.get(), address, size) == 0;
  }
  Handle listener, connection;
  bool works = false;
};

// The invitation of a member: kind, port and token.
void accept(ClientBeats& client, const Connected& connected, uint32_t rank,
            const ServerBeats& server) {
  const std::string frame = server.invitation();
  Reader reader(std::string_view(frame).substr(sizeof(uint32_t)));
  ASSERT_EQ(static_cast<FrameKind>(reader.u8()), FrameKind::datagrams);
  const auto port = static_cast<uint16_t>(reader.u32());
  client.open(connected.connection.get(), rank, port, std::string(reader.text()));
  ASSERT_GE(client.descriptor(), 0);
}

// The ranks from which the server received a heartbeat, one entry per heartbeat.
std::vector<uint32_t> heard(ServerBeats& server, uint64_t patience_us = kLongUs) {
  std::vector<uint32_t> ranks;
  (void)wait_for(server.descriptor(), false, patience_us);
  server.receive([&](uint32_t rank) { ranks.push_back(rank); });
  return ranks;
}

class Beats : public ::testing::TestWithParam<int> {};

TEST_P(Beats, GoBothWays) {
  const Connected connected(GetParam());
  if (!connected.works) GTEST_SKIP() << "this machine has no loopback of this family";
  ServerBeats server(connected.listener, 3);
  ClientBeats client;
  accept(client, connected, 2, server);
  // Rank 0 answers only to ranks from which it has received a datagram, because it knows no other
  // address.
  server.send();
  EXPECT_FALSE(wait_for(client.descriptor(), false, 1'000));
  client.send();
  EXPECT_EQ(heard(server), std::vector<uint32_t>{2});
  EXPECT_FALSE(client.has_heard());
  server.send();
  EXPECT_TRUE(wait_for(client.descriptor(), false, kLongUs));
  EXPECT_TRUE(client.receive());
  EXPECT_TRUE(client.has_heard());
  EXPECT_FALSE(client.receive()) << "it said so once";
}

INSTANTIATE_TEST_SUITE_P(Over, Beats, ::testing::Values(AF_INET, AF_INET6), [](const auto& family) {
  return family.param == AF_INET ? "IPv4" : "IPv6";
});

TEST(BeatsOfStrangers, AreNoSignsOfLife) {
  const Connected connected(AF_INET);
  ASSERT_TRUE(connected.works);
  ServerBeats server(connected.listener, 3);
  const std::string frame = server.invitation();
  Reader reader(std::string_view(frame).substr(sizeof(uint32_t) + 1));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(reader.u32()));
  const std::string token(reader.text());
  BeatSocket::Address to;
  to.size = sizeof(place);
  std::memcpy(&to.bytes, &place, sizeof(place));
  BeatSocket::Address own;
  own.bytes.ss_family = AF_INET;
  own.size = sizeof(sockaddr_in);
  BeatSocket member, stranger;
  ASSERT_TRUE(member.open(own, token));
  ASSERT_TRUE(stranger.open(own, std::string(32, 'a')));
  ASSERT_FALSE(stranger.open(own, "short"));
  stranger.send({false, 1, 9}, to);  // of another run
  member.send({true, 1, 9}, to);     // the server's own datagram, sent back
  member.send({false, 3, 9}, to);    // not a rank of this run
  member.send({false, 1, 0}, to);    // a number that no member has
  (void)sendto(stranger.descriptor(), "pbea", 4, 0, reinterpret_cast<sockaddr*>(&place),
               sizeof(place));
  const std::string longer = "pbea" + token + std::string(1000, '\1');
  (void)sendto(stranger.descriptor(), longer.data(), longer.size(), 0,
               reinterpret_cast<sockaddr*>(&place), sizeof(place));
  member.send({false, 1, 5}, to);
  member.send({false, 1, 5}, to);  // repeated, by the network or by an attacker
  member.send({false, 1, 4}, to);  // older than the last one
  member.send({false, 1, 6}, to);
  EXPECT_EQ(heard(server), (std::vector<uint32_t>{1, 1}));
}

TEST(BeatsAtAll, AreNotThereWhereTheHostGivesNoPort) {
  ServerBeats server(Handle(), 2);
  EXPECT_EQ(server.descriptor(), -1);
  server.send();
  EXPECT_TRUE(heard(server, 0).empty());
  const Connected connected(AF_INET);
  ASSERT_TRUE(connected.works);
  ClientBeats client;
  client.open(connected.connection.get(), 1, 0, "");
  client.send();
  EXPECT_EQ(client.descriptor(), -1);
  EXPECT_FALSE(client.receive());
}

TEST(BeatsAtAll, ComeOftenEnoughForNineTenthsOfADeadline) {
  for (const uint64_t deadline_us : {8'000'000u, 60'000'000u}) {
    const uint64_t interval_us = datagram_interval_us(deadline_us, deadline_us / 4);
    EXPECT_LT(deadline_us / 10 * 9 + 2 * interval_us, deadline_us);
  }
  EXPECT_EQ(datagram_interval_us(60'000'000, 20'000), 20'000u) << "never less often than others";
}

}  // namespace
}  // namespace penstock::control
