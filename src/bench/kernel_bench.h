// kernel_bench.h: how fast the matrix kernels are at a model's shapes, beside what this processor could do at best.
//
// In every round a loop that only reads memory, a loop that only multiplies and adds, and every kernel take turns,
// because a machine's speed drifts; a figure is the median of the rounds, a ratio the median of the rounds' ratios.
// Weights are those of 64 experts (at K3's sizes 1.1 GB of huge pages) or the dense matrices that fit there, in
// rotation, so that they come from memory; so do the two dense matrices in 12 bits, which are larger than caches. Up to
// kMostRowsAtMemory rows a kernel is held against reading, above against multiplying. Thread rule: one call at a time.
// Errors: those of CreateBackend; kOutOfMemory; kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "spec/model_spec.h"

namespace deltafin {

struct KernelBenchOptions {
  ModelSpec spec = {};  // whose shapes
  std::string isa = "auto";
  std::vector<int> threads = {1};  // measured one after another
  double seconds = 30;             // about, for all of it
  int rounds = 5;
  int experts = 64;  // in rotation; fewer measure caches, not memory
  std::function<void(const std::string& what)> progress = {};
  CancelToken cancel = {};
};

struct KernelFigure {
  std::string kernel;  // "mxfp4_expert", "bf16_q_proj", "bf12_q_proj", ...
  int64_t rows = 0;
  int threads = 0;
  double value = 0;    // median
  double ceiling = 0;  // median of the limit of the same rounds
  double ratio = 0;
  std::string unit;          // "GB/s" of weight bytes, "GFLOP/s"
  double rows_over_one = 0;  // rows a second, over those of the same kernel at one row
};

struct KernelBenchReport {
  std::string backend;  // "cpu/avx512"
  int rounds = 0;
  std::vector<KernelFigure> results;
};

inline constexpr int64_t kMostRowsAtMemory = 4;

Result<KernelBenchReport> BenchKernels(const KernelBenchOptions& options);

}  // namespace deltafin
