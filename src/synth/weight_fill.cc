#include "synth/weight_fill.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "base/float_types.h"
#include "synth/random.h"
#include "synth/shapes.h"

namespace deltafin {
namespace {

// Embedding rows, as shares of their energy: what all share, what a cluster shares, what one token has alone.
constexpr float kCommonShare = 0.2f;
constexpr float kClusterShare = 0.4f;
constexpr float kOwnShare = 1 - kCommonShare - kClusterShare;
constexpr int64_t kClusterTokens = 32;  // tokens the favoured walk spends in one cluster

constexpr float kLogitRms = 2;             // of the output head
constexpr float kHeadFollowShare = 0.05f;  // energy of a head row that points at the previous token's own direction
constexpr float kSpecialHead = 0.25f;      // special ids are rarely the answer

// Layers l and l + d have (kSharedPieces - d) / kSharedPieces of their router directions and popularity in common.
constexpr int kSharedPieces = 4;
// Router logits have this deviation. It makes the quantile of a sigmoid score a plain power; see FillRouterBias.
constexpr float kRouterGain = 1.2765f;
constexpr int64_t kZipfOffset = 32;  // popularity of rank r: 1 / (r + experts / 32)

constexpr float kCurrentTap = 0.8f;
constexpr float kResMixGain = 0.5f;    // depth softmax near uniform
constexpr float kLatentUpGain = 0.6f;  // as large as the other feed-forward outputs
constexpr float kDecayGain = 0.5f;
constexpr float kExpertGain = 1;
constexpr float kNormNoise = 0.1f;
// Root mean square of E2M1 over all 16 codes, and of the scales that FillScales draws relative to their centre.
constexpr float kCodeRms = 2.926f;
constexpr float kScaleRms = 1.25f;

float InverseSqrt(int64_t n) { return 1 / std::sqrt(static_cast<float>(n)); }

// The power of two nearest to `value` (below 1), by its exponent.
int NearestExponent(float value) {
  int exponent = 0;
  float power = 1;
  while (power > value * 1.41421356f && exponent > -60) {
    power *= 0.5f;
    --exponent;
  }
  return exponent;
}

// Byte by byte 2^(centre - 1), twice 2^centre, 2^(centre + 1), equally often.
void FillScales(Random& random, int centre, std::byte* out, int64_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  const uint64_t base = static_cast<uint64_t>(127 + centre - 1) * kOnes;
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t r = random.Next();
    const uint64_t word = base + (r & kOnes) + ((r >> 1) & kOnes);
    std::memcpy(out + i, &word, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
  }
}

void FillCodes(Random& random, std::byte* out, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random.Next();
    std::memcpy(out + i, &word, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
  }
}

// Gain of a matrix, by what it does.
float GainOf(std::string_view name) {
  if (name.ends_with("_res_proj.weight")) return kResMixGain;
  if (name.ends_with("routed_expert_up_proj.weight")) return kLatentUpGain;
  if (name.ends_with("f_b_proj.weight")) return kDecayGain;
  return 1;
}

FillKind KindOf(const TensorSpec& row) {
  const std::string_view name = row.name;
  if (name.ends_with(".weight_packed")) return FillKind::kCodes;
  if (name.ends_with(".weight_scale")) return FillKind::kScales;
  if (name == kEmbedTokens) return FillKind::kEmbedding;
  if (name.ends_with("lm_head.weight")) return FillKind::kHead;
  if (name.ends_with("gate.weight")) return FillKind::kRouter;
  if (name.ends_with("e_score_correction_bias")) return FillKind::kRouterBias;
  if (name.ends_with("A_log")) return FillKind::kDecayRate;
  if (name.ends_with("dt_bias")) return FillKind::kDecayBias;
  if (name.ends_with("conv1d.weight")) return FillKind::kConvTaps;
  return FillKind::kBell;
}

}  // namespace

SynthTensor MakeSynthTensor(const ModelSpec& spec, int layer, const TensorSpec& row, const std::string& name) {
  SynthTensor tensor;
  tensor.declaration = {name, row.dtype, row.shape};
  // As the release does it: one rate per head, padded to head_dim entries.
  if (row.padded) tensor.declaration.shape = Shape{std::max(spec.kda_heads, spec.kda_head_dim)};
  tensor.layer = layer;
  tensor.kind = KindOf(row);
  const Shape& shape = tensor.declaration.shape;
  const int64_t columns = shape[shape.rank() - 1];
  if (tensor.kind == FillKind::kScales) {
    tensor.scale_exponent = NearestExponent(kExpertGain * InverseSqrt(columns * kMxfp4Group) / (kCodeRms * kScaleRms));
  } else if (tensor.kind == FillKind::kConvTaps) {
    tensor.rms = 0.25f;
  } else if (shape.rank() == 1) {
    tensor.mean = 1;  // norms
    tensor.rms = kNormNoise;
  } else {
    tensor.rms = GainOf(row.name) * InverseSqrt(columns);
  }
  return tensor;
}

void WeightFiller::FillRows(const SynthTensor& tensor, int64_t begin, int64_t end, std::byte* out) const {
  const uint64_t tensor_seed = MixSeed(seed_, tensor.declaration.name);
  const int64_t row_bytes = tensor.row_bytes();
  std::vector<float> row;
  if (tensor.declaration.dtype != DType::kU8)
    row.resize(static_cast<size_t>(row_bytes / ByteSize(tensor.declaration.dtype)));
  for (int64_t r = begin; r < end; ++r, out += row_bytes) {
    Random random(MixSeed(tensor_seed, static_cast<uint64_t>(r)));
    if (tensor.kind == FillKind::kCodes) {
      FillCodes(random, out, row_bytes);
    } else if (tensor.kind == FillKind::kScales) {
      FillScales(random, tensor.scale_exponent, out, row_bytes);
    } else {
      FillFloats(tensor, r, row);
      if (tensor.declaration.dtype == DType::kF32) {
        std::memcpy(out, row.data(), static_cast<size_t>(row_bytes));
        continue;
      }
      for (size_t i = 0; i < row.size(); ++i) {
        const uint16_t bits = FloatToBf16(row[i]);
        std::memcpy(out + 2 * i, &bits, 2);
      }
    }
  }
}

void WeightFiller::FillFloats(const SynthTensor& tensor, int64_t row, std::span<float> out) const {
  Random random(MixSeed(MixSeed(seed_, tensor.declaration.name), static_cast<uint64_t>(row)));
  switch (tensor.kind) {
    case FillKind::kEmbedding:
      return FillEmbedding(tensor, row, out);
    case FillKind::kHead:
      return FillHead(tensor, row, out);
    case FillKind::kRouter:
      return FillRouter(tensor, row, out);
    case FillKind::kRouterBias:
      return FillRouterBias(tensor, out);
    case FillKind::kDecayRate:
      std::fill(out.begin(), out.end(), 0.0f);
      for (int64_t h = 0; h < spec_.kda_heads; ++h) out[static_cast<size_t>(h)] = random.Uniform();
      return;
    case FillKind::kDecayBias:
      for (float& value : out) value = -4.5f + 3 * random.Uniform();
      return;
    case FillKind::kConvTaps:
      FillBell(random, 0, tensor.rms, out);
      out.back() += kCurrentTap;
      return;
    default:
      return FillBell(random, tensor.mean, tensor.rms, out);
  }
}

void WeightFiller::AddDirection(std::string_view name, uint64_t index, float weight, std::span<float> out) const {
  Random random(MixSeed(MixSeed(seed_, name), index));
  std::vector<float> direction(out.size());
  FillBell(random, 0, weight, direction);
  for (size_t i = 0; i < out.size(); ++i) out[i] += direction[i];
}

void WeightFiller::FillEmbedding(const SynthTensor&, int64_t row, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0f);
  const auto token = static_cast<uint64_t>(row);
  if (routing_ == SynthRouting::kUniform) return AddDirection("token", token, 1, out);
  AddDirection("token", token, std::sqrt(kOwnShare), out);
  AddDirection("cluster", static_cast<uint64_t>(ClusterOf(row)), std::sqrt(kClusterShare), out);
  AddDirection("common", 0, std::sqrt(kCommonShare), out);
}

void WeightFiller::FillHead(const SynthTensor&, int64_t row, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0f);
  const float rms = kLogitRms * InverseSqrt(spec_.hidden_size);
  const auto token = static_cast<uint64_t>(row);
  if (row >= OrdinaryTokens(spec_.vocab_size)) return AddDirection("head", token, kSpecialHead * rms, out);
  AddDirection("head", token, std::sqrt(1 - kHeadFollowShare) * rms, out);
  AddDirection("token", static_cast<uint64_t>(PreviousToken(row)), std::sqrt(kHeadFollowShare) * rms, out);
}

void WeightFiller::FillRouter(const SynthTensor& tensor, int64_t row, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0f);
  const auto experts = static_cast<uint64_t>(spec_.num_experts);
  const auto layer = static_cast<uint64_t>(tensor.layer);
  const float rms = kRouterGain * InverseSqrt(spec_.hidden_size);
  const int pieces = routing_ == SynthRouting::kUniform ? 1 : kSharedPieces;
  const float weight = rms * InverseSqrt(pieces);
  for (uint64_t j = 0; j < static_cast<uint64_t>(pieces); ++j)
    AddDirection("router", (layer + j) * experts + static_cast<uint64_t>(row), weight, out);
}

// Popular experts get a head start of just the size that, for bell-shaped router logits of deviation kRouterGain, makes
// rank r the choice of a token with probability p(r) ~ 1 / (r + offset), summing to the experts a token uses.
// The score above which a share p of sigmoid(logits) lies is 1 / (1 + (p / (1 - p))^0.75): the bell's quantile is
// nearly log(p / (1 - p)) / 1.702, and 1.2765 / 1.702 = 0.75. Square roots are rounded the same everywhere; exp and log
// are not.
void WeightFiller::FillRouterBias(const SynthTensor& tensor, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0f);
  if (routing_ == SynthRouting::kUniform) return;
  const size_t experts = out.size();
  std::vector<float> popularity(experts, 0.0f);
  for (int j = 0; j < kSharedPieces; ++j) {
    Random random(MixSeed(MixSeed(seed_, "popularity"), static_cast<uint64_t>(tensor.layer + j)));
    for (float& value : popularity) value += random.Uniform();
  }
  std::vector<size_t> by_rank(experts);
  std::iota(by_rank.begin(), by_rank.end(), size_t{0});
  std::stable_sort(by_rank.begin(), by_rank.end(), [&](size_t a, size_t b) { return popularity[a] > popularity[b]; });
  const double offset = static_cast<double>(experts) / kZipfOffset;
  double sum = 0;
  for (size_t r = 0; r < experts; ++r) sum += 1 / (static_cast<double>(r) + offset);
  constexpr double kMostOften = 0.9;
  for (size_t r = 0; r < experts; ++r) {
    const double share = static_cast<double>(spec_.num_experts_per_token) / (static_cast<double>(r) + offset) / sum;
    const double p = std::min(share, kMostOften);
    const double root = std::sqrt(p / (1 - p));
    const double score = 1 / (1 + root * std::sqrt(root));  // the share p of scores lies above it
    out[by_rank[r]] = static_cast<float>(1 - score);
  }
}

// Ids i, i + C, i + 2C, ... are one cluster (C clusters); the walk goes through a cluster, then to the next one.
int64_t WeightFiller::clusters() const { return CeilDiv(OrdinaryTokens(spec_.vocab_size), kClusterTokens); }

int64_t WeightFiller::ClusterOf(int64_t id) const { return id % clusters(); }

int64_t WeightFiller::NextToken(int64_t id) const {
  const int64_t next = id + clusters();
  return next < OrdinaryTokens(spec_.vocab_size) ? next : (id + 1) % clusters();
}

int64_t WeightFiller::PreviousToken(int64_t id) const {
  const int64_t count = clusters();
  if (id >= count) return id - count;
  const int64_t cluster = (id + count - 1) % count;
  return cluster + (OrdinaryTokens(spec_.vocab_size) - 1 - cluster) / count * count;
}

}  // namespace deltafin
