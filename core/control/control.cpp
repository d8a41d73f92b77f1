#include "core/control/control.hpp"

#include "core/control/client.hpp"

#include <algorithm>
#include <functional>

namespace penstock {

using control::FrameKind;
using control::Meet;
using control::Purpose;
using control::Reply;
using control::Writer;

namespace {

// The list of all ranks is sent as an empty list. With many ranks such lists would be most of the
// traffic.
std::vector<uint32_t> none_if_all(std::vector<uint32_t> ranks, uint32_t size) {
  // The ranks ascend and are below size, so `size` ranks are all ranks.
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (ranks.size() == size && ascending && ranks.back() < size) ranks.clear();
  return ranks;
}

// On the wire a timeout of 0 means no limit, but for a caller 0 means not to wait.
uint64_t at_least_one(uint64_t timeout_us) {
  return std::max<uint64_t>(timeout_us, 1);
}

penstock_status* store_put(void* context, penstock_str key, penstock_str value) {
  return to_c(static_cast<Control*>(context)->put(view(key), view(value)));
}

penstock_status* store_get(void* context, penstock_str key, uint64_t timeout_us, void* sink_context,
                           void (*sink)(void* sink_context, penstock_str value)) {
  const Result<std::string> value = static_cast<Control*>(context)->get(view(key), timeout_us);
  if (!value.ok()) return to_c(value.status());
  sink(sink_context, str(value.value()));
  return nullptr;
}

}  // namespace

Control::Control(std::unique_ptr<Client> client) : client_(std::move(client)) {
  store_.struct_size = sizeof(store_);
  store_.context = this;
  store_.put = store_put;
  store_.get = store_get;
}

Control::~Control() = default;

Result<std::unique_ptr<Control>> Control::start(Options options) {
  auto client = std::make_unique<Client>(std::move(options));
  PENSTOCK_TRY(client->start());
  return std::unique_ptr<Control>(new Control(std::move(client)));
}

Status Control::put(std::string_view key, std::string_view value) {
  return client_
      ->call_and_wait(
          [&](uint64_t id) { return Writer(FrameKind::put).u64(id).text(key).text(value).frame(); })
      .status;
}

Result<std::string> Control::get(std::string_view key, uint64_t timeout_us) {
  Reply reply = client_->call_and_wait([&](uint64_t id) {
    return Writer(FrameKind::get).u64(id).text(key).u64(timeout_us).frame();
  });
  if (!reply.status.ok()) return reply.status;
  return std::move(reply.value);
}

Result<std::vector<std::string>> Control::gather(std::string_view topic, std::string_view text,
                                                 const std::vector<uint32_t>& ranks,
                                                 uint64_t timeout_us) {
  Reply reply = client_->call_and_wait([&](uint64_t id) {
    return encode(Meet{id, Purpose::rendezvous, std::string(topic), none_if_all(ranks, size()), "",
                       std::string(text), at_least_one(timeout_us)});
  });
  if (!reply.status.ok()) return reply.status;
  return std::move(reply.details);
}

Result<std::string> Control::hear_first(std::string_view topic, std::string_view text,
                                        const std::vector<uint32_t>& ranks, uint64_t timeout_us) {
  const bool is_first = ranks.empty() ? rank() == 0 : rank() == ranks.front();
  Reply reply = client_->call_and_wait([&](uint64_t id) {
    Meet meet{id, Purpose::rendezvous,     std::string(topic), none_if_all(ranks, size()), "",
              "", at_least_one(timeout_us)};
    if (is_first) meet.detail = text;
    meet.audience = control::Audience::first;
    return encode(meet);
  });
  if (!reply.status.ok()) return reply.status;
  if (reply.details.empty()) return internal("'{}': its answer has no text", topic);
  return std::move(reply.details.front());
}

Status Control::agree(std::string_view topic, std::string_view text,
                      const std::vector<uint32_t>& ranks, uint64_t timeout_us) {
  return client_
      ->call_and_wait([&](uint64_t id) {
        Meet meet{id,
                  Purpose::rendezvous,
                  std::string(topic),
                  none_if_all(ranks, size()),
                  std::string(text),
                  "",
                  at_least_one(timeout_us)};
        meet.audience = control::Audience::none;
        return encode(meet);
      })
      .status;
}

Status Control::refuse(std::string_view topic, const Status& why,
                       const std::vector<uint32_t>& ranks) {
  // Success is no reason to refuse. The answer is ignored, because it only repeats the reason.
  if (why.ok()) return why;
  (void)client_->call_and_wait([&](uint64_t id) {
    Meet meet{id, Purpose::rendezvous, std::string(topic), none_if_all(ranks, size()), "", "", 0};
    meet.refusal = why.message();
    return encode(meet);
  });
  return why;
}

uint64_t Control::step_wait(std::string_view set, uint64_t step, const std::vector<uint32_t>& ranks,
                            Ended ended) {
  return client_->call(
      [&](uint64_t id) {
        Meet meet{id,
                  Purpose::step,
                  fmt::format("step {} of set '{}'", step, set),
                  none_if_all(ranks, size()),
                  "",
                  "",
                  0};
        meet.set = set;
        meet.step = step;
        return encode(meet);
      },
      [ended = std::move(ended)](Reply reply) { ended(std::move(reply.status)); });
}

void Control::step_wait_over(uint64_t id) {
  client_->withdraw(id);
}

uint64_t Control::request(OperationRequest request, Answer answer) {
  return client_->call(
      [&](uint64_t id) {
        Meet meet{id,
                  Purpose::operation,
                  std::move(request.name),
                  none_if_all(std::move(request.ranks), size()),
                  std::move(request.signature),
                  std::move(request.detail),
                  0};
        meet.set = std::move(request.holds);
        meet.if_joined = static_cast<control::IfJoined>(request.if_joined);
        meet.zeros = std::move(request.zeros);
        return encode(meet);
      },
      [answer = std::move(answer)](Reply reply) {
        answer(reply.status, {reply.serial, reply.left, std::move(reply.details)});
      });
}

void Control::blocked(uint64_t request) {
  client_->send(Writer(FrameKind::blocked).u64(request).frame());
}

void Control::join(WhileJoined handlers) {
  client_->join(std::move(handlers));
}
bool Control::somebody_joined() const {
  return client_->somebody_joined();
}
void Control::notify_step(StepNotice step) {
  control::StepNews news{std::move(step.set), none_if_all(std::move(step.ranks), size()), step.step,
                         step.over ? 1u : 0u, std::move(step.facts)};
  client_->send(encode(news, FrameKind::step_news));
}

void Control::note(std::string_view text) {
  client_->note(text);
}
void Control::abort(const Status& reason) {
  client_->abort(reason);
}
bool Control::aborted() const {
  return !client_->abort_reason().ok();
}
Status Control::abort_reason() const {
  return client_->abort_reason();
}
bool Control::leave(uint64_t wait_us) {
  return client_->leave(wait_us);
}

void Control::stop() {
  client_->stop();
}
uint32_t Control::rank() const {
  return client_->options().rank;
}
uint32_t Control::size() const {
  return client_->options().size;
}
uint64_t Control::served_bytes() const {
  return client_->served_bytes();
}

}  // namespace penstock
