// random.h: the random numbers of synthetic checkpoints: the same on every machine and in every version.
//
// xoshiro256** seeded through splitmix64, and values made from it with integer and exactly rounded float arithmetic
// only: no std distribution, no libm. Every row of every tensor has its own generator, seeded from (seed, name, row),
// so bytes do not depend on the order or the number of threads in which they are made. Value types; not thread-safe.
// Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2018).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace deltafin {

// One step of splitmix64.
constexpr uint64_t SplitMix(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A seed for part `part` of whatever `seed` stands for.
constexpr uint64_t MixSeed(uint64_t seed, uint64_t part) {
  uint64_t state = seed ^ (part * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du);
  SplitMix(state);
  return SplitMix(state);
}

// FNV-1a, then mixed.
constexpr uint64_t MixSeed(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return MixSeed(seed, hash);
}

class Random {
 public:
  explicit constexpr Random(uint64_t seed) {
    for (uint64_t& word : state_) word = SplitMix(seed);
  }
  // A given state, not all zero; for comparing with published sequences.
  explicit constexpr Random(const std::array<uint64_t, 4>& state) : state_(state) {}

  constexpr uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // In [0, 1), 24 bits.
  constexpr float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }

 private:
  std::array<uint64_t, 4> state_{};
};

// Bell-shaped values: mean + rms * (sum of four random bytes, centred and scaled to variance 1). Largest about 3.45
// rms.
inline void FillBell(Random& random, float mean, float rms, std::span<float> out) {
  constexpr uint64_t kBytes = 0x00ff00ff00ff00ffu;
  constexpr uint64_t kPairs = 0x0000ffff0000ffffu;
  constexpr int32_t kCentre = 510;                    // 4 * 255 / 2
  constexpr float kInverseDeviation = 0.0067658754f;  // 1 / sqrt(4 * (256^2 - 1) / 12)
  const float scale = rms * kInverseDeviation;
  const auto value = [&](uint64_t sum) {
    return mean + static_cast<float>(static_cast<int32_t>(sum & 0xffff) - kCentre) * scale;
  };
  for (size_t i = 0; i < out.size(); i += 2) {
    const uint64_t r = random.Next();
    const uint64_t pairs = (r & kBytes) + ((r >> 8) & kBytes);          // four sums of two bytes
    const uint64_t sums = (pairs & kPairs) + ((pairs >> 16) & kPairs);  // two sums of four bytes
    out[i] = value(sums);
    if (i + 1 < out.size()) out[i + 1] = value(sums >> 32);
  }
}

}  // namespace deltafin
