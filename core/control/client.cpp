#include "core/control/client.hpp"

#include <fmt/format.h>

#include <poll.h>

#include <algorithm>
#include <charconv>

namespace penstock {

using control::FrameKind;
using control::Reply;
using control::Writer;

namespace {

constexpr uint64_t kConnectUs = 500'000;  // per address, because some addresses may lead nowhere
constexpr uint64_t kWelcomeUs = 2'000'000;
constexpr uint64_t kWelcomeBytes = 4096;    // before the server has shown the token of this run
constexpr size_t kAddressListBytes = 8192;  // addresses of rank 0; more than any host should have
// The pause between two rounds over all addresses. It grows while rank 0 is missing.
constexpr uint64_t kRetryUs = 50'000;
constexpr uint64_t kMostRetryUs = 1'000'000;
constexpr uint64_t kFarewellUs = 2'000'000;

}  // namespace

Control::Client::Client(Options options) : options_(std::move(options)) {
  options_.deadline_us = std::max<uint64_t>(options_.deadline_us, 10'000);
  options_.heartbeat_us =
      std::clamp<uint64_t>(options_.heartbeat_us, 1'000, options_.deadline_us / 4);
  if (options_.warning_us != 0)
    options_.warning_us = std::max<uint64_t>(options_.warning_us, 1'000);
  if (options_.rendezvous_us == 0) options_.rendezvous_us = options_.deadline_us;
  if (options_.activity == nullptr) options_.activity = std::make_shared<Activity>();
}

// ---- Start ----

Status Control::Client::start() {
  if (options_.size == 0 || options_.rank >= options_.size)
    return invalid_argument("control: rank is {} of {}, expected a rank below the number of ranks",
                            options_.rank, options_.size);
  PENSTOCK_TRY(wakeup_.open());
  PENSTOCK_ASSIGN(drawn_, control::make_token());
  if (options_.size == 1) {
    local_ = std::make_unique<control::State>(state_options(), [this](uint32_t, std::string frame) {
      local_frames_.push_back(std::move(frame));
    });
    PENSTOCK_TRY(local_->join(0, now_us()));
  } else {
    PENSTOCK_TRY(connect());
  }
  heard_us_ = beat_at_us_ = now_us();
  thread_ = std::thread([this] { loop(); });
  return wait_until_ready();
}

control::State::Options Control::Client::state_options() const {
  return {.size = options_.size,
          .deadline_us = options_.deadline_us,
          .pulse_us = options_.heartbeat_us,
          .warning_us = options_.warning_us,
          .start_us = now_us(),
          .rendezvous_us = options_.rendezvous_us,
          .settle_us = options_.place ? options_.place->settle_us : 0,
          .busy_limit_us = options_.busy_limit_us,
          .circle_us = options_.circle_us};
}

control::Hello Control::Client::hello(std::string token) const {
  return {std::move(token), options_.rank, options_.size, drawn_, control::name_of_this_process()};
}

// Starts the server and returns its address.
Result<std::string> Control::Client::serve() {
  PENSTOCK_ASSIGN(const std::string token, control::make_token());
  PENSTOCK_ASSIGN(const std::vector<std::string> own, control::own_addresses());
  // Without a loopback interface the other ranks come from outside, though they are on this host.
  const bool only_here = options_.all_are_here && control::is_loopback(own.front());
  PENSTOCK_ASSIGN(server_,
                  control::Server::start(state_options(), hello(token),
                                         only_here ? own.front() : control::kEveryAddress));
  std::vector<std::string> hosts;
  size_t bytes = 0;
  if (only_here) hosts.push_back(own.front());
  for (const std::string& address : own) {
    if (only_here || control::is_loopback(address)) continue;
    bytes += address.size() + 1;
    if (bytes > kAddressListBytes) break;
    hosts.push_back(address);
  }
  // There is only loopback, but some ranks are on other hosts: they will report the error.
  if (hosts.empty()) hosts = own;
  return fmt::format("{}|{}|{}", token, fmt::join(hosts, ","), server_->port());
}

// "token|ip1,ip2|port", or "!" and the reason why rank 0 has no server.
Result<Control::Client::Address> Control::Client::parse_address(std::string_view text) {
  if (text.starts_with('!')) return peer_failed("rank 0: {}", text.substr(1));
  const size_t first = text.find('|');
  const size_t second = text.find('|', first == std::string_view::npos ? first : first + 1);
  Address address;
  if (second != std::string_view::npos) {
    address.token = text.substr(0, first);
    std::string_view hosts = text.substr(first + 1, second - first - 1);
    while (!hosts.empty()) {
      const size_t comma = std::min(hosts.find(','), hosts.size());
      address.hosts.emplace_back(hosts.substr(0, comma));
      hosts.remove_prefix(std::min(comma + 1, hosts.size()));
    }
    const std::string_view port = text.substr(second + 1);
    std::from_chars(port.data(), port.data() + port.size(), address.port);
  }
  if (address.hosts.empty() || address.port == 0) {
    return invalid_payload("control: address of rank 0 is '{}', expected 'token|ip,ip,...|port'",
                           control::excerpt(text));
  }
  return address;
}

// Rank 0 chooses port and token, and the other ranks learn both.
Result<Control::Client::Address> Control::Client::ask_rank_0() {
  std::string mine;
  Status own;
  if (options_.rank == 0) {
    // The other ranks wait in the broadcast. If this fails, they receive the reason.
    Result<std::string> served = serve();
    own = served.status();
    mine = own.ok() ? std::move(*served) : fmt::format("!{}", own.message());
  }
  if (!options_.exchange_address)
    return invalid_argument("control: exchange_address is missing for {} ranks", options_.size);
  PENSTOCK_ASSIGN(const std::string text, options_.exchange_address(mine));
  PENSTOCK_TRY(own);
  PENSTOCK_ASSIGN(Address address, parse_address(text));
  // The token is only for rank 0's host: addresses of this host are left out if rank 0 is
  // elsewhere.
  address.hosts = control::reachable(address.hosts, options_.server_is_here);
  if (address.hosts.empty())
    return failed_precondition(
        "control: rank 0 is on another host, and every address of its own ({}) is also one of this "
        "host or loopback; give rank 0's host an address that the others can reach",
        control::excerpt(text.substr(text.find('|') + 1)));
  return address;
}

// All ranks know the address beforehand.
Result<Control::Client::Address> Control::Client::go_to_the_place() {
  const Options::Place& place = *options_.place;
  PENSTOCK_ASSIGN(std::vector<std::string> hosts, control::addresses_of(place.host));
  if (options_.rank != 0) return Address{place.token, std::move(hosts), place.port};
  const bool only_here = std::all_of(hosts.begin(), hosts.end(), control::is_loopback);
  const std::string at(only_here ? control::first_that_is_up(hosts) : control::kEveryAddress);
  auto server = control::Server::start(state_options(), hello(place.token), at, place.port);
  if (!server.ok()) return name_who_is_there(hosts, server.status());
  server_ = std::move(*server);
  if (!only_here) hosts = {"127.0.0.1", "::1"};
  return Address{place.token, std::move(hosts), place.port};
}

// Another rank 0 listens at the address of this rank, with the token of this run. A hello makes it
// report this rank and name its process, and its members learn this too.
Status Control::Client::name_who_is_there(const std::vector<std::string>& hosts,
                                          const Status& cannot_listen) {
  const Options::Place& place = *options_.place;
  for (const std::string& host : hosts) {
    const auto knocked = greet(host, place.port, hello(place.token), now_us() + kWelcomeUs);
    if (knocked.status().code() == Code::failed_precondition) return knocked.status();
  }
  return cannot_listen;
}

Status Control::Client::connect() {
  const uint64_t begin_us = now_us(), until_us = begin_us + options_.rendezvous_us;
  uint64_t warn_us = options_.warning_us == 0 ? control::kNever : begin_us + options_.warning_us;
  PENSTOCK_ASSIGN(const Address address, options_.place ? go_to_the_place() : ask_rank_0());
  const control::Hello mine = hello(address.token);
  Status last;
  do {
    for (const std::string& host : address.hosts) {
      Result<control::Link> link = greet(host, address.port, mine, until_us);
      if (link.ok()) {
        link_.emplace(std::move(*link));
        return {};
      }
      last = link.status();
      if (last.code() != Code::peer_failed) return last;
    }
    const uint64_t now = now_us();
    if (now >= warn_us) {
      warn_of_rank_0(address, last, now - begin_us);
      warn_us = now + options_.warning_us;
    }
    const uint64_t retry_us = std::clamp((now - begin_us) / 20, kRetryUs, kMostRetryUs);
    poll(nullptr, 0, control::poll_milliseconds(retry_us));
  } while (now_us() < until_us);
  return deadline_exceeded(
      "control: rank {} reached rank 0 at none of its addresses {} within {}; last: {}",
      options_.rank, fmt::join(address.hosts, ", "), control::seconds(options_.rendezvous_us),
      last.message());
}

void Control::Client::warn_of_rank_0(const Address& address, const Status& last,
                                     uint64_t waited_us) const {
  if (!options_.on_warning) return;
  options_.on_warning(fmt::format("rank {} has waited {} for rank 0 at {}, and waits {} in all: {}",
                                  options_.rank, control::seconds(waited_us),
                                  fmt::join(address.hosts, ", "),
                                  control::seconds(options_.rendezvous_us), last.message()));
}

// PEER_FAILED: another address or a later attempt may succeed.
Result<control::Link> Control::Client::greet(const std::string& address, uint16_t port,
                                             const control::Hello& hello, uint64_t until_us) {
  const auto left_us = [&](uint64_t most_us) {
    return std::min(most_us, until_us - std::min(until_us, now_us()));
  };
  PENSTOCK_ASSIGN(control::Handle socket, control::connect_to(address, port, left_us(kConnectUs)));
  control::Link link(std::move(socket), kWelcomeBytes);
  link.send(control::encode(hello));
  PENSTOCK_TRY(link.flush());
  const uint64_t welcome_by_us = now_us() + left_us(kWelcomeUs);
  Status open;
  while (true) {
    Result<std::optional<std::string>> body = link.next();
    if (!body.ok())
      return peer_failed("{} is no control server: {}", control::with_port(address, port),
                         body.status().message());
    if (body->has_value()) {
      control::Reader reader(**body);
      const auto kind = static_cast<FrameKind>(reader.u8());
      if (kind == FrameKind::rejected) return failed_precondition("{}", reader.text());
      if (kind != FrameKind::welcome)
        return peer_failed("{} is no control server of this run",
                           control::with_port(address, port));
      break;
    }
    // Frames that arrived before the end still count: the last frame may be a refusal.
    if (!open.ok())
      return peer_failed("{} ended the connection: another run, or another program, is there",
                         control::with_port(address, port));
    const uint64_t now = now_us();
    if (now >= welcome_by_us || !control::wait_for(link.descriptor(), false, welcome_by_us - now)) {
      return peer_failed("{} did not answer", control::with_port(address, port));
    }
    open = link.receive();
  }
  // The link's buffer may already have more frames.
  link.set_limit(control::kMaxFrameBytes);
  control::limit_retransmission(link.descriptor(), options_.deadline_us);
  return link;
}

Status Control::Client::wait_until_ready() {
  Lock lock(mutex_);
  // This needs no own timeout: the server and the watch thread give up at the deadline.
  while (!ready_ && abort_reason_.ok()) changed_.wait(mutex_);
  return abort_reason_;
}

// ---- Calls ----

uint64_t Control::Client::call(const std::function<std::string(uint64_t id)>& make,
                               Handler handler) {
  Status refused;
  uint64_t id = 0;
  bool is_first = false;
  {
    const Lock lock(mutex_);
    if (!abort_reason_.ok()) {
      refused = abort_reason_;
    } else if (leaving_) {
      refused = penstock::aborted("control was stopped on rank {}", options_.rank);
    } else {
      id = next_id_++;
      std::string frame = make(id);
      if (frame.size() <= control::kMaxFrameBytes / 2) {
        handlers_[id] = std::move(handler);
        is_first = queue_.empty();
        queue_.push_back(std::move(frame));
        ++n_asked_;
      } else {
        refused = invalid_argument("control: a message has {} bytes, expected at most {}",
                                   frame.size(), control::kMaxFrameBytes / 2);
      }
    }
  }
  if (!refused.ok()) {
    handler(Reply{.status = refused});
    return 0;
  }
  // If the queue had a frame, the watch thread is already awake.
  if (is_first) wakeup_.signal();
  return id;
}

void Control::Client::withdraw(uint64_t id) {
  if (id == 0) return;
  {
    const Lock lock(mutex_);
    handlers_.erase(id);
  }
  send(Writer(FrameKind::withdraw).u64(id).frame());
}

void Control::Client::send(std::string frame) {
  {
    const Lock lock(mutex_);
    if (leaving_ || !abort_reason_.ok()) return;
    queue_.push_back(std::move(frame));
  }
  wakeup_.signal();
}

Reply Control::Client::call_and_wait(const std::function<std::string(uint64_t id)>& make) {
  // The handler runs before the watch thread ends, so these may be on the stack.
  Mutex mutex;
  Condition answered;
  std::optional<Reply> answer;
  call(make, [&](Reply reply) {
    // Notify under the lock, because `answered` ends as soon as the waiting thread has the lock.
    const Lock lock(mutex);
    answer = std::move(reply);
    answered.notify_one();
  });
  Lock lock(mutex);
  answered.wait(mutex, [&] { return answer.has_value(); });
  return std::move(*answer);
}

void Control::Client::join(WhileJoined handlers) {
  const auto joined = std::make_shared<const WhileJoined>(std::move(handlers));
  {
    const Lock lock(mutex_);
    joined_ = joined;
  }
  call(
      [](uint64_t id) {
        control::Meet meet{id, control::Purpose::join, "join", {}, "", "", 0};
        meet.audience = control::Audience::none;
        return control::encode(meet);
      },
      [this, joined](Reply reply) {
        somebody_joined_ = false;
        {
          const Lock lock(mutex_);
          joined_.reset();
        }
        joined->ended(std::move(reply.status), static_cast<uint32_t>(reply.serial));
      });
}

void Control::Client::note(std::string_view text) {
  options_.activity->did(text);
}

void Control::Client::abort(const Status& reason) {
  {
    const Lock lock(mutex_);
    if (!abort_reason_.ok()) return;
    set_abort(reason);
    if (!leaving_)
      queue_.push_back(Writer(FrameKind::abort).text(reason.message()).frame());
    else if (server_ != nullptr)
      server_->end_within(0);
  }
  wakeup_.signal();
}

Status Control::Client::abort_reason() const {
  const Lock lock(mutex_);
  return abort_reason_;
}

// ---- The end ----

void Control::Client::say_goodbye() {
  if (!thread_.joinable()) return;
  {
    Lock lock(mutex_);
    if (!leaving_) {
      leaving_ = true;
      queue_.push_back(Writer(FrameKind::goodbye).frame());
    }
    wakeup_.signal();
    const auto is_over = [this]() PENSTOCK_REQUIRES(mutex_) { return farewell_; };
    changed_.wait_for(mutex_, std::chrono::microseconds(kFarewellUs), is_over);
    stopping_ = true;
  }
  wakeup_.signal();
  thread_.join();
  link_.reset();
  if (server_ != nullptr)
    stay_.emplace(*server_, options_.linger_us, options_.warning_us, options_.on_warning);
}

}  // namespace penstock
