#include <vector>

#include "base/check.h"
#include "cache/eviction_policy.h"

namespace deltafin {
namespace {

// A circular doubly linked list over slot numbers, oldest use first; index `slots` is its head.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(int64_t slots) : head_(static_cast<int32_t>(slots)), links_(static_cast<size_t>(slots) + 1) {
    link(head_) = {head_, head_};
  }

  void Inserted(int32_t slot, ExpertKey) override { Append(slot); }
  void Used(int32_t slot) override {
    Unlink(slot);
    Append(slot);
  }
  void Removed(int32_t slot) override { Unlink(slot); }

  int32_t Victim(const std::function<bool(int32_t slot)>& evictable) const override {
    for (int32_t slot = link(head_).next; slot != head_; slot = link(slot).next) {
      if (evictable(slot)) return slot;
    }
    return -1;
  }

 private:
  struct Link {
    int32_t previous = -1;  // -1: not in the list
    int32_t next = -1;
  };

  Link& link(int32_t slot) { return links_[static_cast<size_t>(slot)]; }
  const Link& link(int32_t slot) const { return links_[static_cast<size_t>(slot)]; }

  void Append(int32_t slot) {
    DFIN_CHECK(link(slot).previous < 0, "slot was inserted twice");
    const int32_t last = link(head_).previous;
    link(slot) = {last, head_};
    link(last).next = slot;
    link(head_).previous = slot;
  }

  void Unlink(int32_t slot) {
    const Link old = link(slot);
    DFIN_CHECK(old.previous >= 0, "slot was not inserted");
    link(old.previous).next = old.next;
    link(old.next).previous = old.previous;
    link(slot) = {};
  }

  const int32_t head_;
  std::vector<Link> links_;  // [slots + 1]
};

}  // namespace

std::unique_ptr<EvictionPolicy> CreateLruPolicy(int64_t slots) { return std::make_unique<LruPolicy>(slots); }

}  // namespace deltafin
