// kernel_probe [isa] [threads] [seconds]: speed of the matrix kernels at K3 shapes beside the machine's limits, one
// run.
//
// Rounds interleave a plain memory-read loop, a float32 FMA loop and every kernel, because the machine's speed drifts;
// each figure is the median of the rounds. 64 experts (1.1 GB) rotate, so weights come from memory.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/cpu/cpu_backend.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace deltafin {
namespace {

constexpr int64_t kLatent = 3584, kInner = 3072, kHidden = 7168, kExperts = 64, kMaxRows = 64;
constexpr int64_t kMatrixPacked = kLatent * kInner / 2, kMatrixScale = kLatent * kInner / 32;
constexpr int64_t kExpertBytes = 3 * (kMatrixPacked + kMatrixScale);
constexpr int64_t kDenseOutputs = 4096, kDenseBytes = kDenseOutputs * kHidden * 2;

// Processor time of the process when `threads` is 1, so that a busy machine does not distort the ratios; else wall
// time.
double Now(int threads) {
  timespec time = {};
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Measure {
  std::string name;
  const char* unit;
  double work;  // units done by one call
  std::function<void()> call;
  std::vector<double> rates;
};

uint64_t ReadLoop(const std::byte* data, int64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sum[32] = {};
  for (int64_t i = 0; i + 32 <= bytes / 8; i += 32) {
    for (int64_t u = 0; u < 32; ++u) sum[u] += words[i + u];
  }
  return std::accumulate(std::begin(sum), std::end(sum), uint64_t{0});
}

#if defined(__x86_64__)
using Wide = __m512;
__attribute__((target("avx512f"))) float FmaLoop(int64_t steps) {
  const Wide a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  Wide sum[16];
  for (Wide& s : sum) s = _mm512_setzero_ps();
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (int u = 0; u < 16; ++u) {
      sum[u] = _mm512_fmadd_ps(a, b, sum[u]);
      asm volatile("" : "+v"(sum[u]));
    }
  }
  float total = 0;
  for (const Wide& s : sum) total += _mm512_cvtss_f32(s);
  return total;
}
#endif

class Probe {
 public:
  Probe(const std::string& isa, int threads) : pool_(threads) {
    backend_ = *CreateCpuBackend({"cpu", isa, threads});
    WorkspaceLimits limits;
    limits.max_rows = kMaxRows;
    limits.max_inner = kHidden;
    limits.max_expert_inner = kLatent;
    static_cast<void>(backend_->Reserve(limits));
    memory_ = *AlignedBuffer::Create(kExperts * kExpertBytes);
    auto* bytes = reinterpret_cast<uint8_t*>(memory_.data());
    uint32_t state = 1;
    for (int64_t i = 0; i < kExperts * kExpertBytes; ++i)
      bytes[i] = static_cast<uint8_t>(0x30 + ((state = state * 1664525 + 1013904223) >> 28));
    x_.assign(kMaxRows * kHidden, 0.25f);
    out_.assign(kMaxRows * kHidden, 0);
  }

  void AddAll() {
    constexpr int64_t all = kExperts * kExpertBytes;
    Add("memory read", "GB/s", 1e-9 * static_cast<double>(all), [this] {
      pool_.ParallelFor(all, 4096, [&](int64_t b, int64_t e, int) { sink_ += ReadLoop(memory_.data() + b, e - b); });
    });
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
      constexpr int64_t steps = 4000000;
      Add("FMA loop, 512 bit", "GMAC/s", 1e-9 * static_cast<double>(steps * 256 * pool_.threads()),
          [this] { pool_.ParallelFor(pool_.threads(), 1, [&](int64_t, int64_t, int) { fsink_ += FmaLoop(steps); }); });
    }
#endif
    for (const int64_t rows : {1, 2, 3, 4, 8, 16, 32, 64}) {
      Add(Cat("MXFP4 expert, M=", rows), rows >= 8 ? "GMAC/s" : "GB/s",
          rows >= 8 ? 1e-9 * static_cast<double>(3 * kLatent * kInner * rows)
                    : 1e-9 * static_cast<double>(kExpertBytes),
          [this, rows] { RunExpert(rows); });
    }
    for (const int64_t rows : {1, 2, 4, 8, 32, 64}) {
      Add(Cat("BF16 ", kDenseOutputs, "x", kHidden, ", M=", rows), rows >= 8 ? "GMAC/s" : "GB/s",
          rows >= 8 ? 1e-9 * static_cast<double>(kDenseOutputs * kHidden * rows)
                    : 1e-9 * static_cast<double>(kDenseBytes),
          [this, rows] { RunDense(rows); });
    }
  }

  void Run(double seconds) {
    const double slice = seconds / 7 / static_cast<double>(measures_.size());
    for (int round = 0; round < 7; ++round) {
      for (Measure& m : measures_) {
        int calls = 0;
        const double start = Now(pool_.threads());
        double time = 0;
        do {
          m.call();
          ++calls;
          time = Now(pool_.threads()) - start;
        } while (time < slice);
        m.rates.push_back(m.work * calls / time);
      }
    }
    std::printf("%s, %d threads, medians of 7 interleaved rounds\n", backend_->name().c_str(), pool_.threads());
    double memory = 0, fma = 0;
    for (Measure& m : measures_) {
      std::sort(m.rates.begin(), m.rates.end());
      const double rate = m.rates[m.rates.size() / 2];
      if (m.name == "memory read") memory = rate;
      if (m.name.starts_with("FMA")) fma = rate;
      const double limit = m.unit == std::string("GB/s") ? memory : fma;
      std::printf("%-28s %8.2f %-7s %5.2f of the limit\n", m.name.c_str(), rate, m.unit, limit > 0 ? rate / limit : 0);
    }
  }

 private:
  void Add(std::string name, const char* unit, double work, std::function<void()> call) {
    measures_.push_back({std::move(name), unit, work, std::move(call), {}});
  }

  void RunExpert(int64_t rows) {
    const auto* record = reinterpret_cast<const uint8_t*>(memory_.data()) + (next_++ % kExperts) * kExpertBytes;
    const auto matrix = [&](int64_t index, int64_t n, int64_t k) {
      const uint8_t* at = record + index * (kMatrixPacked + kMatrixScale);
      return Mxfp4View{at, at + kMatrixPacked, n, k};
    };
    int32_t ids[kMaxRows];
    std::iota(ids, ids + rows, 0);
    const std::span<const int32_t> list(ids, static_cast<size_t>(rows));
    backend_->ExpertMlp({matrix(0, kInner, kLatent), matrix(1, kInner, kLatent), matrix(2, kLatent, kInner), 4, 25,
                         ConstRows(x_.data(), rows, kLatent), list, Rows(out_.data(), rows, kLatent), list});
  }

  void RunDense(int64_t rows) {
    const int64_t matrices = kExperts * kExpertBytes / kDenseBytes;
    const TensorView weight = {
        memory_.data() + (next_++ % matrices) * kDenseBytes, DType::kBF16, {kDenseOutputs, kHidden}};
    backend_->Linear({weight, ConstRows(x_.data(), rows, kHidden), Rows(out_.data(), rows, kDenseOutputs)});
  }

  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
  AlignedBuffer memory_;
  std::vector<float> x_, out_;
  std::vector<Measure> measures_;
  int64_t next_ = 0;
  std::atomic<uint64_t> sink_ = 0;
  std::atomic<float> fsink_ = 0;
};

}  // namespace
}  // namespace deltafin

int main(int argc, char** argv) {
  deltafin::Probe probe(argc > 1 ? argv[1] : "auto", argc > 2 ? std::atoi(argv[2]) : 1);
  probe.AddAll();
  probe.Run(argc > 3 ? std::atof(argv[3]) : 12);
}
