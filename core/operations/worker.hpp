// The worker thread behind Operations, and one operation on its way through it.
#pragma once

#include "core/base/buffer.hpp"
#include "core/base/mutex.hpp"
#include "core/operations/operations.hpp"
#include "core/operations/order.hpp"

#include <deque>
#include <map>
#include <thread>
#include <utility>

namespace penstock {

class OperationMessage;
using OperationTask = std::function<Status(uint64_t serial)>;

// States in order: asked (Control has it), sent (a message carries it), done.
class NamedOperation final : public Operation {
 public:
  explicit NamedOperation(OperationOrder order) : order_(std::move(order)) {}

  bool done() const override;
  Status wait() override;
  Result<Output> result() const override;

  // Only the first call has an effect.
  void complete(Status status);

 private:
  friend class OperationWorker;
  friend class OperationMessage;

  // [worker] After the ranks have agreed: allocates memory and prescales. The operation does not
  // change afterwards.
  Status prepare(const std::vector<std::string>& details);
  // [worker] After the exchange, or instead of it in a group of one.
  Status finish();
  void copy_to_itself();
  Status allocate(Buffer& buffer, uint64_t numel) const;

  const OperationOrder order_;
  OperationTask task_;                   // set for Operations::run_agreed, instead of an exchange
  uint64_t asked_us_ = 0, sent_us_ = 0;  // for the timeline; 0: not reached yet

  OperationLayout layout_;
  Buffer owned_output_;
  Buffer scaled_input_;
  const void* send_ = nullptr;
  void* target_ = nullptr;
  bool output_fits_ = true;

  Control* control_ = nullptr;
  uint64_t request_ = 0;

  mutable Mutex mutex_;
  Condition ended_;
  bool done_ PENSTOCK_GUARDED_BY(mutex_) = false;
  Status status_ PENSTOCK_GUARDED_BY(mutex_);
};

class OperationWorker : public std::enable_shared_from_this<OperationWorker> {
 public:
  explicit OperationWorker(const Operations::Options& options) : options_(options) {}

  Status start();
  void stop();
  void fail(const Status& reason);  // [any]

  struct Wish {
    OperationOrder order;
    std::string signature;
    OperationTask task;
  };
  // Submits all operations or none.
  Result<std::vector<std::shared_ptr<NamedOperation>>> submit(std::vector<Wish> wishes);
  // [any] Called by Control. Takes the place of an operation of this rank.
  void add_zeros(WhileJoined::Sum sum);
  // [any] Called by Control and by the communication thread. Never blocks for long.
  void answered(std::shared_ptr<NamedOperation> operation, Status status,
                OperationResponse response);
  void exchanged(std::shared_ptr<OperationMessage> message, Status status);

  const Operations::Options& options() const { return options_; }
  // UNIMPLEMENTED if the transport cannot carry the order.
  Status check_transport(const OperationOrder& order) const;
  // PENSTOCK_REDUCE_* of its message. For types whose sums may overflow, the transport computes the
  // average if it can.
  uint32_t reduction_of(const OperationOrder& order) const;

 private:
  struct Event {
    std::shared_ptr<NamedOperation> operation;  // this operation was answered
    std::shared_ptr<OperationMessage> message;  // or this message has ended
    Status status;
    OperationResponse response;
  };
  struct Opened {
    Channel* channel = nullptr;
    uint64_t next_sequence = 0;
  };
  using Key = std::pair<std::string, std::vector<uint32_t>>;

  Status take_names(const std::vector<std::shared_ptr<NamedOperation>>& operations);
  void post(Event event);
  void loop();
  void handle(Event& event);
  void carry_out_answered();
  // True if the operation is to be sent; false if it has ended.
  bool prepare(NamedOperation& operation, const OperationResponse& response);
  void send(std::vector<std::shared_ptr<NamedOperation>> operations, uint64_t serial);
  Result<Opened*> open_group(const Group& group, uint64_t serial);
  void end(NamedOperation& operation, Status status);
  static Key key_of(const OperationOrder& order) { return {order.name, order.group.ranks()}; }

  const Operations::Options options_;
  penstock_collective_traits traits_{};
  uint64_t mean_dtypes_ = 0;

  Mutex mutex_;
  Condition wake_;
  std::deque<Event> events_ PENSTOCK_GUARDED_BY(mutex_);
  std::map<Key, std::shared_ptr<NamedOperation>> pending_ PENSTOCK_GUARDED_BY(mutex_);
  bool stopped_ PENSTOCK_GUARDED_BY(mutex_) = false;

  // [worker]
  std::map<std::vector<uint32_t>, Opened> groups_;
  std::vector<Event> answered_;  // collected until the last answer of the group of answers has come
  // The communication thread may still be releasing the ticket of this message and may read the
  // message. It has finished with the message when the next exchange ends.
  std::shared_ptr<OperationMessage> last_exchanged_;
  std::thread thread_;
};

}  // namespace penstock
