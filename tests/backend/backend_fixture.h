// backend_fixture.h: random operands that own their memory, and the backends under test.
//
// Tolerances: u = 2^-24 is the rounding unit of float32. A dot product of K terms kept in at least four lanes of
// sequential sums carries at most K / 4 + 16 roundings per term, so its worst-case error is (K / 4 + 16) u sum|w x|
// (Higham, Accuracy and Stability, section 3.1). Other operations state their bound where they are tested.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/float_types.h"

namespace deltafin::test {

inline constexpr double kUnit = 1.0 / (1 << 24);

inline double DotBound(int64_t inner, double sum_of_magnitudes) {
  return (static_cast<double>(inner) / 4 + 16) * kUnit * sum_of_magnitudes + 1e-40;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float Normal(float scale = 1) { return std::normal_distribution<float>(0, scale)(engine_); }
  int Integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  std::vector<float> Floats(int64_t n, float scale = 1) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = Normal(scale);
    return out;
  }

 private:
  std::mt19937 engine_;
};

// Activations [rows, width] inside a wider buffer when stride > width.
struct Activations {
  std::vector<float> values;
  int64_t rows, width, stride;

  Activations(int64_t rows, int64_t width, int64_t stride = 0)
      : values(static_cast<size_t>(rows * std::max(width, stride)) + 1),
        rows(rows),
        width(width),
        stride(std::max(width, stride)) {}
  Activations(Random& random, int64_t rows, int64_t width, float scale = 1, int64_t stride = 0)
      : Activations(rows, width, stride) {
    for (float& x : values) x = random.Normal(scale);
  }
  Rows view() { return {values.data(), rows, width, stride}; }
  ConstRows view() const { return {values.data(), rows, width, stride}; }
};

struct Weight {
  std::vector<uint16_t> bf16;
  std::vector<float> f32;
  Shape shape;

  static Weight Bf16(Random& random, Shape shape, float scale = 1) {
    Weight w;
    w.shape = shape;
    for (int64_t i = 0; i < shape.elements(); ++i) w.bf16.push_back(FloatToBf16(random.Normal(scale)));
    return w;
  }
  static Weight F32(Random& random, Shape shape, float scale = 1) {
    Weight w;
    w.shape = shape;
    w.f32 = random.Floats(shape.elements(), scale);
    return w;
  }
  TensorView view() const {
    if (!bf16.empty()) return {reinterpret_cast<const std::byte*>(bf16.data()), DType::kBF16, shape};
    return {reinterpret_cast<const std::byte*>(f32.data()), DType::kF32, shape};
  }
  double at(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return bf16.empty() ? f32[at] : Bf16ToFloat(bf16[at]);
  }
};

// An MXFP4 matrix whose bytes start `offset` bytes into exactly sized heap blocks.
struct Mxfp4Matrix {
  std::vector<uint8_t> packed, scale;
  int64_t rows, cols, offset;

  Mxfp4Matrix(Random& random, int64_t rows, int64_t cols, int low_scale = 118, int high_scale = 124, int64_t offset = 0)
      : packed(static_cast<size_t>(rows * cols / 2 + offset)),
        scale(static_cast<size_t>(rows * cols / 32 + offset)),
        rows(rows),
        cols(cols),
        offset(offset) {
    for (uint8_t& b : packed) b = static_cast<uint8_t>(random.Integer(0, 255));
    for (uint8_t& b : scale) b = static_cast<uint8_t>(random.Integer(low_scale, high_scale));
  }
  Mxfp4View view() const { return {packed.data() + offset, scale.data() + offset, rows, cols}; }
  double at(int64_t r, int64_t c) const {
    const uint8_t byte = view().packed_row(r)[c / 2];
    return static_cast<double>(E2M1ToFloat(c % 2 == 0 ? byte & 15 : byte >> 4)) *
           E8M0ToFloat(view().scale_row(r)[c / 32]);
  }
};

inline WorkspaceLimits TestLimits() {
  WorkspaceLimits limits;
  limits.max_rows = 256;
  limits.max_inner = 12288;
  limits.max_expert_inner = 3584;
  limits.max_experts = 896;
  limits.mla_heads = 96;
  limits.mla_latent_width = 576;
  limits.kda_head_dim = 128;
  return limits;
}

inline std::unique_ptr<Backend> MakeCpu(const std::string& isa, int threads = 1) {
  Result<std::unique_ptr<Backend>> backend = CreateCpuBackend({"cpu", isa, threads});
  if (!backend) throw std::runtime_error(backend.error().message());
  if (Status status = (*backend)->Reserve(TestLimits()); !status) throw std::runtime_error(status.error().message());
  return std::move(*backend);
}

inline std::unique_ptr<Backend> MakeReference() {
  Result<std::unique_ptr<Backend>> backend = CreateReferenceBackend({"reference", "auto", 1});
  if (!backend) throw std::runtime_error(backend.error().message());
  return std::move(*backend);
}

// The instruction sets this processor can run, from a fixed list; never empty on a supported processor.
inline std::vector<std::string> Isas() {
  std::vector<std::string> out;
  for (const char* isa : {"avx2", "avx512", "avx512_vnni", "neon"}) {
    if (CreateCpuBackend({"cpu", isa, 1})) out.push_back(isa);
  }
  return out;
}

inline bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

}  // namespace deltafin::test
