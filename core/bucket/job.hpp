// A bucket's job as a coroutine. It parks where it would wait for the network or for a launch
// moment; the engine resumes it. Its frame lies in the bucket, so that starting a job allocates
// nothing.
#pragma once

#include "core/base/buffer.hpp"
#include "core/base/status.hpp"

#include <penstock/exception.hpp>

#include <coroutine>
#include <exception>

namespace penstock {

class BucketRun;

// Memory for one coroutine frame at a time.
class JobFrame {
 public:
  void* take(size_t bytes) {
    if (bytes > memory_.bytes()) {
      memory_ = Buffer(bytes);
      ++allocations_;
    }
    return memory_.data();
  }
  uint64_t allocations() const { return allocations_; }

 private:
  Buffer memory_;
  uint64_t allocations_ = 0;
};

class Job {
 public:
  struct promise_type {
    Status status;
    Job get_return_object() {
      return Job(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(Status ended) { status = std::move(ended); }
    void unhandled_exception() {
      // Calls into plugins turn what they throw into a Status; what ends up here is our own.
      status = Status(Code::internal, "a bucket's job threw " + sdk::current_exception_text());
    }
    static void* operator new(size_t bytes, BucketRun& bucket);
    static void operator delete(void*, size_t) {}
  };

  Job() = default;
  Job(Job&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Job& operator=(Job&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Job() {
    if (handle_) handle_.destroy();
  }
  // Runs until it parks or ends; true when it has ended.
  bool resume() {
    handle_.resume();
    return handle_.done();
  }
  const Status& status() const { return handle_.promise().status; }
  explicit operator bool() const { return bool(handle_); }

 private:
  explicit Job(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace penstock
