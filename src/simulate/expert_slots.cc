#include "simulate/expert_slots.h"

#include <list>

#include "base/check.h"

namespace deltafin::simulate {
namespace {

class PlainLru final : public EvictionPolicy {
 public:
  explicit PlainLru(int64_t slots) : place_(static_cast<size_t>(slots), order_.end()) {}

  void Began(int32_t, int64_t) override {}
  void Inserted(int32_t slot, ExpertKey, int32_t) override { Place(slot) = order_.insert(order_.end(), slot); }
  void Used(int32_t slot, int32_t) override { order_.splice(order_.end(), order_, Place(slot)); }
  void Expected(int32_t) override {}
  void Removed(int32_t slot) override {
    order_.erase(Place(slot));
    Place(slot) = order_.end();
  }
  int32_t Victim(const std::function<bool(int32_t slot)>& evictable) override {
    for (const int32_t slot : order_)
      if (evictable(slot)) return slot;
    return -1;
  }

 private:
  std::list<int32_t>::iterator& Place(int32_t slot) { return place_[static_cast<size_t>(slot)]; }

  std::list<int32_t> order_;  // the longest unused first
  std::vector<std::list<int32_t>::iterator> place_;
};

}  // namespace

Result<CachePolicy> ParseCachePolicy(std::string_view text) {
  for (const CachePolicy policy : {CachePolicy::kFrequency, CachePolicy::kLayerLru, CachePolicy::kLru})
    if (text == ToString(policy)) return policy;
  return Fail(ErrorCode::kInvalidArgument, "--cache-policy ", text, ": expected frequency, layer-lru or lru");
}

std::string_view ToString(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::kFrequency:
      return "frequency";
    case CachePolicy::kLayerLru:
      return "layer-lru";
    case CachePolicy::kLru:
      return "lru";
  }
  return "";
}

std::unique_ptr<EvictionPolicy> CreatePlainLru(int64_t slots) { return std::make_unique<PlainLru>(slots); }

std::unique_ptr<EvictionPolicy> CreatePolicy(CachePolicy policy, const ModelShape& shape, int64_t slots) {
  const auto layers = static_cast<int32_t>(shape.layers.size());
  if (policy == CachePolicy::kLru) return CreatePlainLru(slots);
  if (policy == CachePolicy::kLayerLru) return CreateLayerLruPolicy(slots, layers);
  return CreateFrequencyPolicy({.slots = slots,
                                .layers = layers,
                                .experts = static_cast<int32_t>(shape.experts),
                                .experts_per_token = static_cast<int32_t>(shape.experts_per_token),
                                .prior = nullptr});
}

ExpertSlots::ExpertSlots(const ModelShape& shape, int64_t slots, CachePolicy policy)
    : slots_(slots),
      experts_(shape.experts),
      state_(shape.layers.size() * static_cast<size_t>(shape.experts)),
      slot_of_(state_.size(), -1),
      key_of_(static_cast<size_t>(slots)),
      held_(static_cast<size_t>(slots)) {
  if (slots_ > 0) policy_ = CreatePolicy(policy, shape, slots_);
  for (int64_t slot = slots_; slot > 0; --slot) free_.push_back(static_cast<int32_t>(slot - 1));
}

ExpertKey ExpertSlots::KeyOf(int64_t key) const {
  return {static_cast<int32_t>(key / experts_), static_cast<int32_t>(key % experts_)};
}

void ExpertSlots::Begin(int32_t layer, int64_t choices) {
  if (policy_) policy_->Began(layer, choices);
}

void ExpertSlots::Use(int64_t key, int32_t rows) {
  if (!policy_) return;
  const int32_t slot = slot_of_[static_cast<size_t>(key)];
  policy_->Used(slot, rows);
  held_[static_cast<size_t>(slot)] = 1;
}

bool ExpertSlots::Insert(int64_t key, int32_t rows, bool may_evict) {
  State& state = state_[static_cast<size_t>(key)];
  DFIN_CHECK(state == State::kAbsent, "an expert is read once at a time");
  if (policy_) {
    if (free_.empty()) {
      if (!may_evict) return false;
      const int32_t victim = policy_->Victim([this](int32_t slot) {
        const auto s = static_cast<size_t>(slot);
        return held_[s] == 0 && state_[static_cast<size_t>(key_of_[s])] == State::kThere;
      });
      if (victim < 0) return false;
      Forget(key_of_[static_cast<size_t>(victim)]);
    }
    const int32_t slot = free_.back();
    free_.pop_back();
    slot_of_[static_cast<size_t>(key)] = slot;
    key_of_[static_cast<size_t>(slot)] = key;
    held_[static_cast<size_t>(slot)] = rows > 0 ? 1 : 0;
    policy_->Inserted(slot, KeyOf(key), rows);
  }
  state = State::kOnTheWay;
  return true;
}

void ExpertSlots::Arrived(int64_t key) { state_[static_cast<size_t>(key)] = State::kThere; }

void ExpertSlots::Release(int64_t key) {
  if (policy_)
    held_[static_cast<size_t>(slot_of_[static_cast<size_t>(key)])] = 0;
  else
    Forget(key);
}

void ExpertSlots::Forget(int64_t key) {
  state_[static_cast<size_t>(key)] = State::kAbsent;
  if (!policy_) return;
  int32_t& slot = slot_of_[static_cast<size_t>(key)];
  policy_->Removed(slot);
  held_[static_cast<size_t>(slot)] = 0;
  free_.push_back(slot);
  slot = -1;
}

bool ExpertSlots::Warm(int64_t key) {
  if (free_.empty() || state(key) != State::kAbsent || !Insert(key, 0, false)) return false;
  Arrived(key);
  return true;
}

}  // namespace deltafin::simulate
