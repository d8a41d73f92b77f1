// A mutex, a lock and a condition variable whose use clang checks at compile time. A member states
// the mutex that guards it, and a function states the mutex that must be held;
// tools/ci/check_locks.py (clang -Wthread-safety) refuses code that breaks these statements. Other
// compilers ignore the attributes.
//
// Locks are not passed to functions: a function says PENSTOCK_REQUIRES, and so does a predicate:
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

// For a member: it is read and written only while the mutex is held.
#define PENSTOCK_GUARDED_BY(mutex) PENSTOCK_LOCKS(guarded_by(mutex))
// For a function: the caller must hold the mutex.
#define PENSTOCK_REQUIRES(mutex) PENSTOCK_LOCKS(exclusive_locks_required(mutex))
// For a function: the caller must not hold the mutex, because the function locks it.
#define PENSTOCK_EXCLUDES(mutex) PENSTOCK_LOCKS(locks_excluded(mutex))
// For a function that the analysis cannot follow; a comment explains why it is correct.
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

// Holds a mutex until the end of its block, except between unlock and lock.
class PENSTOCK_LOCKS(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) PENSTOCK_LOCKS(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  // Takes over a mutex that is held already, for example after try_lock.
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

// Waits release the mutex while they wait. A wait with a predicate ends when the predicate is true;
// a wait with a time limit returns whether the predicate was true at the end.
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

  // Unchecked: the analysis of a template cannot see that the predicate requires this mutex.
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
  // The standard library's lock around a mutex that is held and stays held.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable condition_;
};

}  // namespace penstock
