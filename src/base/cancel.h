// CancelToken: a flag that one thread (or a signal handler) sets and long work looks at.
//
// CancelSource owns the flag, CancelToken is a cheap copyable view; the source must outlive its tokens. A default token
// is never cancelled. Thread-safe; Cancel() is async-signal-safe. (std::stop_token is missing on Apple's library.)
#pragma once

#include <atomic>

namespace deltafin {

class CancelToken {
 public:
  CancelToken() = default;
  explicit CancelToken(const std::atomic<bool>* flag) : flag_(flag) {}
  bool cancelled() const { return flag_ != nullptr && flag_->load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* flag_ = nullptr;
};

class CancelSource {
 public:
  void Cancel() { flag_.store(true, std::memory_order_relaxed); }
  void Reset() { flag_.store(false, std::memory_order_relaxed); }
  CancelToken token() const { return CancelToken(&flag_); }

 private:
  std::atomic<bool> flag_{false};
  static_assert(std::atomic<bool>::is_always_lock_free);
};

}  // namespace deltafin
