#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/eviction_policy.h"

namespace deltafin {
namespace {

// A circular doubly linked list per layer over slot numbers, oldest use first; index `slots + layer` is its head.
class LayerLruPolicy final : public EvictionPolicy {
 public:
  LayerLruPolicy(int64_t slots, int32_t layers)
      : slots_(static_cast<int32_t>(slots)),
        links_(static_cast<size_t>(slots) + static_cast<size_t>(layers)),
        layer_of_(static_cast<size_t>(slots)),
        layers_(static_cast<size_t>(layers)) {
    for (int32_t layer = 0; layer < layers; ++layer) link(Head(layer)) = {Head(layer), Head(layer)};
  }

  void Began(int32_t, int64_t) override {}
  void Inserted(int32_t slot, ExpertKey key, int32_t) override {
    DFIN_CHECK(key.layer >= 0 && static_cast<size_t>(key.layer) < layers_.size(), "no such layer");
    layer_of_[static_cast<size_t>(slot)] = key.layer;
    Append(slot);
  }
  void Used(int32_t slot, int32_t) override {
    Unlink(slot);
    Append(slot);
  }
  void Expected(int32_t slot) override { Used(slot, 1); }
  void Removed(int32_t slot) override { Unlink(slot); }

  int32_t Victim(const std::function<bool(int32_t slot)>& evictable) override {
    // Fullest layer first; every call has its own time, so no two ranks are equal.
    Rank below{slots_ + 1, 0};
    for (int32_t layer = FirstBelow(below); layer >= 0; layer = FirstBelow(below)) {
      for (int32_t slot = link(Head(layer)).next; slot != Head(layer); slot = link(slot).next)
        if (evictable(slot)) return slot;
      below = layers_[static_cast<size_t>(layer)];
    }
    return -1;
  }

 private:
  struct Link {
    int32_t previous = -1;  // -1: not in a list
    int32_t next = -1;
  };
  struct Rank {
    int32_t count = 0;      // slots of the layer
    int64_t last_use = -1;  // in calls
    bool operator<(const Rank& other) const {
      return std::pair(count, last_use) < std::pair(other.count, other.last_use);
    }
  };

  int32_t Head(int32_t layer) const { return slots_ + layer; }
  Link& link(int32_t slot) { return links_[static_cast<size_t>(slot)]; }
  const Link& link(int32_t slot) const { return links_[static_cast<size_t>(slot)]; }
  Rank& RankOf(int32_t slot) { return layers_[static_cast<size_t>(layer_of_[static_cast<size_t>(slot)])]; }

  // The layer of the highest rank below this one that has slots, or -1.
  int32_t FirstBelow(const Rank& below) const {
    int32_t best = -1;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const Rank& rank = layers_[layer];
      if (rank.count == 0 || !(rank < below)) continue;
      if (best < 0 || layers_[static_cast<size_t>(best)] < rank) best = static_cast<int32_t>(layer);
    }
    return best;
  }

  void Append(int32_t slot) {
    DFIN_CHECK(link(slot).previous < 0, "slot was inserted twice");
    const int32_t head = Head(layer_of_[static_cast<size_t>(slot)]);
    const int32_t last = link(head).previous;
    link(slot) = {last, head};
    link(last).next = slot;
    link(head).previous = slot;
    Rank& rank = RankOf(slot);
    ++rank.count;
    rank.last_use = ++calls_;
  }

  void Unlink(int32_t slot) {
    const Link old = link(slot);
    DFIN_CHECK(old.previous >= 0, "slot was not inserted");
    link(old.previous).next = old.next;
    link(old.next).previous = old.previous;
    link(slot) = {};
    --RankOf(slot).count;
  }

  const int32_t slots_;
  std::vector<Link> links_;        // [slots + layers]
  std::vector<int32_t> layer_of_;  // [slots]
  std::vector<Rank> layers_;
  int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> CreateLayerLruPolicy(int64_t slots, int32_t layers) {
  return std::make_unique<LayerLruPolicy>(slots, layers);
}

}  // namespace deltafin
