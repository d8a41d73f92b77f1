// A mutex, a lock and a condition variable whose use clang checks when it compiles: what a member
// is guarded by, and what a function needs held, is written beside it, and tools/ci/check_locks.py
// (clang -Wthread-safety) refuses code that does otherwise. Other compilers read the attributes as
// nothing.
//
// No lock is handed to a function: it says PENSTOCK_REQUIRES, as a predicate does,
//   changed_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) { return ended_; });
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define PENSTOCK_LOCKS(attribute) __attribute__((attribute))
#else
#define PENSTOCK_LOCKS(attribute)
#endif

// Of a member: it is read and written with the mutex held.
#define PENSTOCK_GUARDED_BY(mutex) PENSTOCK_LOCKS(guarded_by(mutex))
// Of a function: who calls it holds the mutex.
#define PENSTOCK_REQUIRES(mutex) PENSTOCK_LOCKS(exclusive_locks_required(mutex))
// Of a function: who calls it does not hold the mutex, for the function takes it.
#define PENSTOCK_EXCLUDES(mutex) PENSTOCK_LOCKS(locks_excluded(mutex))
// Of a function that the analysis cannot follow; a comment says why it is right.
#define PENSTOCK_UNCHECKED_LOCKS PENSTOCK_LOCKS(no_thread_safety_analysis)

namespace penstock {

class PENSTOCK_LOCKS(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() PENSTOCK_LOCKS(acquire_capability()) { mutex_.lock(); }
  void unlock() PENSTOCK_LOCKS(release_capability()) { mutex_.unlock(); }
  bool try_lock() PENSTOCK_LOCKS(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex until its block ends, but for the time between unlock and lock.
class PENSTOCK_LOCKS(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) PENSTOCK_LOCKS(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  // Of one that is held already, as after try_lock.
  Lock(Mutex& mutex, std::adopt_lock_t) PENSTOCK_REQUIRES(mutex) : mutex_(mutex) {}
  ~Lock() PENSTOCK_LOCKS(release_capability()) {
    if (holds_) mutex_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void unlock() PENSTOCK_LOCKS(release_capability()) {
    holds_ = false;
    mutex_.unlock();
  }
  void lock() PENSTOCK_LOCKS(acquire_capability()) {
    mutex_.lock();
    holds_ = true;
  }

 private:
  Mutex& mutex_;
  bool holds_ = true;
};

// Waits give the mutex back while they wait. Those with a predicate wait until it holds; those with
// a time say whether it did in the end.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(Mutex& mutex) PENSTOCK_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait(held.lock);
  }
  template <typename Time>
  void wait_until(Mutex& mutex, Time time) PENSTOCK_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait_until(held.lock, time);
  }
  template <typename Duration>
  void wait_for(Mutex& mutex, Duration duration) PENSTOCK_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait_for(held.lock, duration);
  }

  // Unchecked: that a predicate wants this very mutex is beyond the analysis of a template.
  template <typename Holds>
  void wait(Mutex& mutex, Holds holds) PENSTOCK_REQUIRES(mutex) PENSTOCK_UNCHECKED_LOCKS {
    Held held(mutex);
    condition_.wait(held.lock, holds);
  }
  template <typename Time, typename Holds>
  bool wait_until(Mutex& mutex, Time time, Holds holds)
      PENSTOCK_REQUIRES(mutex) PENSTOCK_UNCHECKED_LOCKS {
    Held held(mutex);
    return condition_.wait_until(held.lock, time, holds);
  }
  template <typename Duration, typename Holds>
  bool wait_for(Mutex& mutex, Duration duration, Holds holds)
      PENSTOCK_REQUIRES(mutex) PENSTOCK_UNCHECKED_LOCKS {
    Held held(mutex);
    return condition_.wait_for(held.lock, duration, holds);
  }

 private:
  // The standard's lock around a mutex that is held, and stays so.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable condition_;
};

}  // namespace penstock
