// The estimate. Every row that a layer routes is one trial for each of its experts, in memory or not: wanted or not.
// The chance of the next trial is a weighted mean of two faded averages, each of which halves the weight of a trial in
// its own time: one knows what is popular, the other what the last tokens wanted. An average starts without bias (sums
// are divided by the weights so far). Much of the chance comes true at the layer's next turn or not at all, so what
// comes up next counts twice, what has just had its turn once, and the layers between in proportion. The least leaves.
// All constants were chosen by replay, on routing of a trained model and of made ones.
//
// The search looks at layers one by one, the most promising first, and stops when no other can hold a better victim; a
// layer's lowest chance is remembered, and fades with the sums. So a call costs about one pass over the residents of
// one layer and one over the layers, however many slots there are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "cache/eviction_policy.h"
#include "cache/expert_usage.h"

namespace deltafin {
namespace {

// Trials after which one counts half: of the slow average in uses of a mean expert, of the fast one in rows.
constexpr double kOftenUses = 16;
constexpr double kLatelyRows = 2;
constexpr float kLatelyShare = 0.2f;
// What is known from earlier runs counts as at most this share of all that a slow average can know.
constexpr double kPriorShare = 0.5;
// The chance of what a guess expects: above all others.
constexpr float kExpected = 2;
// A little less than 1: bounds stay below what they bound, however sums are rounded.
constexpr float kRounding = 0.9999f;
// Keeps faded sums out of the denormal numbers, which are slow.
constexpr float kTiny = 1e-20f;

class FrequencyPolicy final : public EvictionPolicy {
 public:
  explicit FrequencyPolicy(const FrequencyPolicyOptions& o)
      : layers_(o.layers),
        experts_(o.experts),
        often_(kOftenUses * o.experts / o.experts_per_token, o.experts_per_token),
        lately_(kLatelyRows, o.experts_per_token),
        chances_(Keys()),
        layer_(static_cast<size_t>(o.layers)),
        residents_(Keys()),
        key_of_(static_cast<size_t>(o.slots), -1),
        place_of_(static_cast<size_t>(o.slots)) {
    if (o.prior == nullptr) return;
    for (int32_t layer = 0; layer < layers_; ++layer) Know(layer, *o.prior, o.experts_per_token);
  }

  void Began(int32_t layer, int64_t choices) override {
    now_ = layer;
    Layer& l = layer_[static_cast<size_t>(layer)];
    ++l.batch;
    const float often_before = l.often_weight, lately_before = l.lately_weight;
    often_.Begin(choices, l.often_weight);
    lately_.Begin(choices, l.lately_weight);
    const float often_left = kRounding * often_.fade * often_before / l.often_weight;
    const float lately_left = kRounding * lately_.fade * lately_before / l.lately_weight;
    l.lowest_often *= often_left;
    l.lowest = std::max(l.lowest * std::min(often_left, lately_left), l.lowest_often);
    Chance* chances = chances_.data() + Key({layer, 0});
    for (int32_t e = 0; e < experts_; ++e) {
      chances[e].often = chances[e].often * often_.fade + kTiny;
      chances[e].lately = chances[e].lately * lately_.fade + kTiny;
    }
  }

  void Inserted(int32_t slot, ExpertKey key, int32_t rows) override {
    DFIN_CHECK(key_of_[static_cast<size_t>(slot)] < 0, "slot was inserted twice");
    Layer& l = layer_[static_cast<size_t>(key.layer)];
    key_of_[static_cast<size_t>(slot)] = static_cast<int32_t>(Key(key));
    place_of_[static_cast<size_t>(slot)] = l.residents;
    Residents(key.layer)[l.residents++] = slot;
    if (rows > 0) Count(slot, rows);
    const bool is_first = l.residents == 1;
    l.lowest = is_first ? Value(slot, l) : std::min(l.lowest, Value(slot, l));
    l.lowest_often = is_first ? OftenPart(slot, l) : std::min(l.lowest_often, OftenPart(slot, l));
  }

  void Used(int32_t slot, int32_t rows) override { Count(slot, rows); }

  void Expected(int32_t slot) override { chances_[KeyOf(slot)].expected = LayerOf(slot).batch + 1; }

  void Removed(int32_t slot) override {
    Layer& l = LayerOf(slot);
    int32_t* residents = Residents(LayerNumber(slot));
    const int32_t moved = residents[--l.residents];
    residents[place_of_[static_cast<size_t>(slot)]] = moved;
    place_of_[static_cast<size_t>(moved)] = place_of_[static_cast<size_t>(slot)];
    key_of_[static_cast<size_t>(slot)] = -1;
  }

  int32_t Victim(const std::function<bool(int32_t slot)>& evictable) override {
    ++search_;
    Candidate best;
    for (int32_t layer = NextLayer(best.worth); layer >= 0; layer = NextLayer(best.worth)) {
      const Candidate found = Search(layer, evictable);
      if (found.worth < best.worth) best = found;
    }
    return best.slot;
  }

 private:
  struct Chance {
    float often = 0;  // faded sums of trials in which the expert was wanted
    float lately = 0;
    int32_t counted = 0;   // the batch of its layer that wanted it last
    int32_t expected = 0;  // the batch that a guess says will want it
  };
  struct Layer {
    float often_weight = 0;  // faded sums of all trials
    float lately_weight = 0;
    float lowest = 0;        // no resident has a lower chance
    float lowest_often = 0;  // ... even if it had not been wanted lately
    int32_t batch = 0;       // batches so far
    int32_t residents = 0;   // slots
    int64_t searched = 0;    // the last search that looked at it
  };
  // One of the two averages; fade and share are of the batch that began last.
  struct Average {
    Average(double half_life, int32_t experts_per_token_in)
        : row_fade(std::exp2(-1 / half_life)),
          most_weight(1 / (1 - row_fade)),
          experts_per_token(experts_per_token_in) {}

    // A step of many rows is as many trials, all at once: they share what they would weigh one after the other.
    void Begin(int64_t choices, float& weight) {
      const double rows = std::max(1.0, static_cast<double>(choices) / experts_per_token);
      const double faded = std::pow(row_fade, rows);
      const double added = (1 - faded) * most_weight;
      fade = static_cast<float>(faded);
      share = static_cast<float>(added / rows);
      weight = weight * fade + static_cast<float>(added);
    }

    double row_fade;
    double most_weight;  // of all trials, after very many
    int32_t experts_per_token;
    float fade = 1;
    float share = 1;  // weight of a row
  };
  struct Candidate {
    int32_t slot = -1;
    float worth = std::numeric_limits<float>::max();
  };

  size_t Keys() const { return static_cast<size_t>(layers_) * static_cast<size_t>(experts_); }
  size_t Key(ExpertKey key) const {
    DFIN_CHECK(key.layer >= 0 && key.layer < layers_ && key.expert >= 0 && key.expert < experts_, "no such expert");
    return static_cast<size_t>(key.layer) * static_cast<size_t>(experts_) + static_cast<size_t>(key.expert);
  }
  size_t KeyOf(int32_t slot) const { return static_cast<size_t>(key_of_[static_cast<size_t>(slot)]); }
  int32_t LayerNumber(int32_t slot) const {
    DFIN_CHECK(key_of_[static_cast<size_t>(slot)] >= 0, "slot was not inserted");
    return key_of_[static_cast<size_t>(slot)] / experts_;
  }
  Layer& LayerOf(int32_t slot) { return layer_[static_cast<size_t>(LayerNumber(slot))]; }
  int32_t* Residents(int32_t layer) { return residents_.data() + Key({layer, 0}); }

  void Know(int32_t layer, const ExpertUsage& prior, int32_t experts_per_token) {
    double uses = 0;
    for (int32_t e = 0; e < experts_; ++e) uses += prior.Count({layer, e});
    if (uses == 0) return;
    // As if all of them had been steps of one token.
    const double trials = uses / experts_per_token;
    const double weight = std::min(trials, kPriorShare * often_.most_weight);
    layer_[static_cast<size_t>(layer)].often_weight = static_cast<float>(weight);
    for (int32_t e = 0; e < experts_; ++e) {
      const double chance = std::min(1.0, prior.Count({layer, e}) / trials);
      chances_[Key({layer, e})].often = static_cast<float>(chance * weight);
    }
  }

  // Once for a batch, also when a read is made again.
  void Count(int32_t slot, int32_t rows) {
    Chance& chance = chances_[KeyOf(slot)];
    const int32_t batch = LayerOf(slot).batch;
    if (chance.counted == batch) return;
    chance.counted = batch;
    chance.often += static_cast<float>(rows) * often_.share;
    chance.lately += static_cast<float>(rows) * lately_.share;
  }

  float Value(int32_t slot, const Layer& l) const {
    const Chance& chance = chances_[KeyOf(slot)];
    if (l.lately_weight <= 0) return OftenPart(slot, l) / (1 - kLatelyShare);
    return OftenPart(slot, l) + kLatelyShare * chance.lately / l.lately_weight;
  }
  float OftenPart(int32_t slot, const Layer& l) const {
    return l.often_weight > 0 ? (1 - kLatelyShare) * chances_[KeyOf(slot)].often / l.often_weight : 0;
  }

  // Of an expert of `layer` with this chance. The layer of the batch itself has its next turn last.
  float Worth(float chance, int32_t layer) const {
    const int32_t ahead = (layer - now_ - 1 + layers_) % layers_;
    return chance * (2 - static_cast<float>(ahead) / static_cast<float>(layers_));
  }

  // The layer that this search has not looked at and that may hold the least worth, if less than `than`; or -1.
  int32_t NextLayer(float than) const {
    int32_t best = -1;
    for (int32_t layer = 0; layer < layers_; ++layer) {
      const Layer& l = layer_[static_cast<size_t>(layer)];
      if (l.residents == 0 || l.searched == search_) continue;
      const float worth = Worth(l.lowest, layer);
      if (worth >= than) continue;
      best = layer;
      than = worth;
    }
    return best;
  }

  Candidate Search(int32_t layer, const std::function<bool(int32_t slot)>& evictable) {
    Layer& l = layer_[static_cast<size_t>(layer)];
    l.searched = search_;
    const int32_t* residents = Residents(layer);
    float lowest_evictable = std::numeric_limits<float>::max();
    l.lowest = l.lowest_often = std::numeric_limits<float>::max();
    Candidate found;
    for (int32_t i = 0; i < l.residents; ++i) {
      float chance = Value(residents[i], l);
      l.lowest = std::min(l.lowest, chance);
      l.lowest_often = std::min(l.lowest_often, OftenPart(residents[i], l));
      if (chances_[KeyOf(residents[i])].expected > l.batch) chance = kExpected;
      // Equal ones: the lower expert, so that places in the list do not matter.
      const bool better = found.slot < 0 || chance < lowest_evictable ||
                          (chance == lowest_evictable && KeyOf(residents[i]) < KeyOf(found.slot));
      if (!better || !evictable(residents[i])) continue;
      lowest_evictable = chance;
      found.slot = residents[i];
    }
    if (found.slot >= 0) found.worth = Worth(lowest_evictable, layer);
    return found;
  }

  const int32_t layers_, experts_;
  Average often_, lately_;
  int32_t now_ = 0;                 // layer of the last batch
  int64_t search_ = 0;              // Victim() calls so far
  std::vector<Chance> chances_;     // [layers, experts]
  std::vector<Layer> layer_;        // [layers]
  std::vector<int32_t> residents_;  // [layers, experts] slots, the first Layer::residents of each
  std::vector<int32_t> key_of_;     // [slots], -1: not inserted
  std::vector<int32_t> place_of_;   // [slots] in residents_
};

}  // namespace

std::unique_ptr<EvictionPolicy> CreateFrequencyPolicy(const FrequencyPolicyOptions& options) {
  DFIN_CHECK(options.layers > 0 && options.experts > 0 && options.experts_per_token > 0, "a model has experts");
  return std::make_unique<FrequencyPolicy>(options);
}

}  // namespace deltafin
