// The worker thread behind Operations, and one operation on its way through it.
#pragma once

#include "core/base/buffer.hpp"
#include "core/operations/operations.hpp"
#include "core/operations/order.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace penstock {

using OperationTask = std::function<Status(uint64_t serial)>;

// States in order: asked (Control has it), sent (its message is on its way), done.
class NamedOperation final : public Operation,
                             public Transfer,
                             public std::enable_shared_from_this<NamedOperation> {
 public:
  explicit NamedOperation(OperationOrder order) : order_(std::move(order)) {}

  bool done() const override;
  Status wait() override;
  Result<Output> result() const override;

  // The first call decides.
  void complete(Status status);

 private:
  friend class OperationWorker;

  // [worker] After the ranks have agreed: memory, prescale and the message. Nothing of it changes
  // afterwards.
  Status prepare(const std::vector<std::string>& details);
  void fill_message(const void* send);
  // [worker] After the exchange, or instead of it in a group of one.
  Status finish();
  void copy_to_itself();
  Status allocate(Buffer& buffer, uint64_t numel) const;
  // [comm]
  void finished(Status status) override;

  const OperationOrder order_;
  OperationTask task_;                       // instead of an exchange: Operations::run_agreed
  std::shared_ptr<OperationWorker> worker_;  // while sent: finished goes there
  std::shared_ptr<NamedOperation> self_;     // while sent: the transport holds pointers into this
  uint64_t asked_us_ = 0, sent_us_ = 0;      // for the timeline; 0: not yet

  OperationLayout layout_;
  Buffer owned_output_;
  Buffer scaled_input_;
  void* target_ = nullptr;
  bool output_fits_ = true;
  penstock_exec exec_{};
  penstock_step step_{};

  Control* control_ = nullptr;
  uint64_t request_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  Status status_;
};

class OperationWorker : public std::enable_shared_from_this<OperationWorker> {
 public:
  explicit OperationWorker(const Operations::Options& options) : options_(options) {}

  Status start();
  void stop();
  void fail(const Status& reason);  // [any]

  Result<std::shared_ptr<NamedOperation>> submit(OperationOrder order, std::string signature,
                                                 OperationTask task);
  // [any] From Control and from the communication thread. Never blocks for long.
  void answered(std::shared_ptr<NamedOperation> operation, Status status,
                OperationResponse response);
  void exchanged(std::shared_ptr<NamedOperation> operation, Status status);

  const Operations::Options& options() const { return options_; }
  // UNIMPLEMENTED when the transport cannot carry the order.
  Status check_transport(const OperationOrder& order) const;

 private:
  struct Event {
    std::shared_ptr<NamedOperation> operation;
    bool is_answer;
    Status status;
    OperationResponse response;
  };
  struct Opened {
    Channel* channel = nullptr;
    uint64_t next_sequence = 0;
  };
  using Key = std::pair<std::string, std::vector<uint32_t>>;

  void post(Event event);
  void loop();
  void handle(Event& event);
  // True when the operation goes on; otherwise it has ended with *status.
  bool carry_out(NamedOperation& operation, const OperationResponse& response, Status& status);
  Result<Opened*> open_group(const Group& group, uint64_t serial);
  void end(NamedOperation& operation, Status status);
  static Key key_of(const OperationOrder& order) { return {order.name, order.group.ranks()}; }

  const Operations::Options options_;
  penstock_collective_traits traits_{};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Event> events_;
  std::map<Key, std::shared_ptr<NamedOperation>> pending_;
  bool stopped_ = false;

  // [worker]
  std::map<std::vector<uint32_t>, Opened> groups_;
  // The communication thread may still be releasing this one's ticket, which may look at the
  // message. It is through with it when the next exchange ends.
  std::shared_ptr<NamedOperation> last_exchanged_;
  std::thread thread_;
};

}  // namespace penstock
