#include "bench/kernel_bench.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/limit_loops.h"
#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/float_types.h"
#include "base/thread_pool.h"
#include "bench/median.h"
#include "tensor/bf12.h"
#include "tensor/mxfp4.h"

namespace deltafin {
namespace {

// The matrices of a model: routed experts [inner, latent] (w1, w3) and [latent, inner] (w2), q_proj [width, hidden] and
// o_proj [hidden, width] of KDA.
struct Shapes {
  explicit Shapes(const ModelSpec& spec)
      : latent(spec.routed_expert_hidden_size),
        inner(spec.moe_intermediate_size),
        hidden(spec.hidden_size),
        width(spec.kda_width()) {}

  int64_t latent, inner, hidden, width;

  int64_t matrix_packed() const { return latent * inner / 2; }
  int64_t matrix_scale() const { return latent * inner / kMxfp4Group; }
  int64_t expert_bytes() const { return 3 * (matrix_packed() + matrix_scale()); }
  int64_t expert_macs() const { return 3 * latent * inner; }
  int64_t dense_macs() const { return width * hidden; }
  int64_t dense_bytes() const { return 2 * dense_macs(); }
  int64_t widest() const { return std::max({latent, inner, hidden, width}); }
};

constexpr int64_t kMxfp4Rows[] = {1, 2, 3, 4, 8, 16, 32, 64};
constexpr int64_t kBf16Rows[] = {1, 2, 4, 8, 32};  // and of 12-bit matrices
constexpr int64_t kMaxRows = 64;
constexpr int64_t kMultiplySteps = 1'000'000;

struct Measure {
  std::string kernel;
  int64_t rows = 0;
  double bytes = 0, flops = 0;  // of one call
  std::function<void()> call;
  std::vector<double> seconds;  // of one call, a round each

  bool at_memory() const { return rows <= kMostRowsAtMemory; }
};

class KernelBench {
 public:
  KernelBench(const KernelBenchOptions& options, cpu::Isa isa) : options_(options), shapes_(options.spec), isa_(isa) {}

  Status TakeMemory() {
    DFIN_TRY(memory_, AlignedBuffer::Create(static_cast<uint64_t>(
                          std::max(options_.experts * shapes_.expert_bytes(), shapes_.dense_bytes()))));
    // Any codes, scales around 2^-4. As BF16 the same bytes are any numbers, infinite ones included, which cost a
    // multiplier nothing.
    std::mt19937_64 random(1);
    auto* words = reinterpret_cast<uint64_t*>(memory_.data());
    for (uint64_t w = 0; w < memory_.size() / sizeof(uint64_t); ++w) words[w] = random();
    for (int64_t matrix = 0; matrix < 3 * options_.experts; ++matrix) {
      std::byte* scales = memory_.data() + matrix * (shapes_.expert_bytes() / 3) + shapes_.matrix_packed();
      std::fill_n(scales, shapes_.matrix_scale(), std::byte{123});
    }
    DFIN_TRY_VOID(PackDense());
    x_.assign(static_cast<size_t>(kMaxRows * shapes_.widest()), 0.25f);
    out_.assign(static_cast<size_t>(kMaxRows * shapes_.widest()), 0);
    return {};
  }

  // All figures for a number of threads, appended to the report.
  Status Run(int threads, KernelBenchReport* report) {
    DFIN_TRY(backend_, CreateCpuBackend({"cpu", std::string(cpu::ToString(isa_)), threads}));
    WorkspaceLimits limits;
    limits.max_rows = kMaxRows;
    limits.max_inner = shapes_.widest();
    limits.max_expert_inner = std::max(shapes_.latent, shapes_.inner);
    limits.max_experts = 1;
    DFIN_TRY_VOID(backend_->Reserve(limits));
    pool_ = std::make_unique<ThreadPool>(threads);
    report->backend = backend_->name();
    AddMeasures();
    const double slice = options_.seconds / static_cast<double>(options_.threads.size()) / options_.rounds /
                         static_cast<double>(measures_.size());
    for (int round = 0; round < options_.rounds; ++round) {
      if (options_.progress)
        options_.progress(Cat(threads, threads == 1 ? " thread" : " threads", ", round ", round + 1));
      for (Measure& measure : measures_) {
        if (options_.cancel.cancelled()) return Fail(ErrorCode::kCancelled, "bench kernels: stopped");
        measure.seconds.push_back(SecondsOfOneCall(measure, slice));
      }
    }
    Report(threads, report);
    return {};
  }

 private:
  // q_proj and o_proj in 12 bits: normal values, as trained weights have, so that escapes are as frequent as there.
  Status PackDense() {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<uint16_t> values(size_t{1} << 20);
    for (uint16_t& value : values) value = FloatToBf16(normal(random));
    ThreadPool pool(UsableCores());
    const std::pair<int64_t, int64_t> shapes[] = {{shapes_.width, shapes_.hidden}, {shapes_.hidden, shapes_.width}};
    for (size_t i = 0; i < 2; ++i) {
      const auto [outputs, inputs] = shapes[i];
      DFIN_CHECK(HasBf12Rows(inputs) && inputs < static_cast<int64_t>(values.size()), "a model's width");
      DFIN_TRY(packed_memory_[i], AlignedBuffer::Create(Bf12MostBytes(outputs, inputs)));
      Bf12Writer writer(outputs, inputs, packed_memory_[i].data());
      const auto starts = static_cast<int64_t>(values.size()) - inputs;
      for (int64_t n = 0; n < outputs; ++n) writer.Append(values.data() + n * 7919 % starts, 1, pool);
      packed_[i] = {packed_memory_[i].data(), DType::kBf12, {outputs, inputs}};
      packed_bytes_[i] = static_cast<int64_t>(writer.Finish());
    }
    return {};
  }

  void AddMeasures() {
    measures_.clear();
    const auto all = static_cast<int64_t>(memory_.size());
    // Rows 0: the limits.
    measures_.push_back({"memory read",
                         0,
                         static_cast<double>(all),
                         0,
                         [this, all] {
                           pool_->ParallelFor(all, 4096, [&](int64_t begin, int64_t end, int) {
                             sink_ +=
                                 cpu::ReadMemory(isa_, Bytes(memory_.data() + begin, static_cast<size_t>(end - begin)));
                           });
                         },
                         {}});
    const double flops = 2.0 * static_cast<double>(cpu::MultiplyAdds(isa_, kMultiplySteps)) * pool_->threads();
    measures_.push_back({"multiply-add",
                         0,
                         0,
                         flops,
                         [this] {
                           pool_->ParallelFor(pool_->threads(), 1, [&](int64_t, int64_t, int) {
                             sink_ += static_cast<uint64_t>(cpu::MultiplyAdds(isa_, kMultiplySteps));
                           });
                         },
                         {}});
    for (const int64_t rows : kMxfp4Rows)
      Add("mxfp4_expert", rows, shapes_.expert_bytes(), shapes_.expert_macs(), [this, rows] { RunExpert(rows); });
    for (const int64_t rows : kBf16Rows) {
      Add("bf16_q_proj", rows, shapes_.dense_bytes(), shapes_.dense_macs(),
          [this, rows] { RunDense(rows, shapes_.width, shapes_.hidden); });
      Add("bf16_o_proj", rows, shapes_.dense_bytes(), shapes_.dense_macs(),
          [this, rows] { RunDense(rows, shapes_.hidden, shapes_.width); });
      Add("bf12_q_proj", rows, packed_bytes_[0], shapes_.dense_macs(), [this, rows] { RunLinear(packed_[0], rows); });
      Add("bf12_o_proj", rows, packed_bytes_[1], shapes_.dense_macs(), [this, rows] { RunLinear(packed_[1], rows); });
    }
  }

  void Add(const char* kernel, int64_t rows, int64_t bytes, int64_t macs, std::function<void()> call) {
    measures_.push_back(
        {kernel, rows, static_cast<double>(bytes), 2.0 * static_cast<double>(macs * rows), std::move(call), {}});
  }

  double SecondsOfOneCall(const Measure& measure, double slice) const {
    int calls = 0;
    const int64_t start = clock_.NowNs();
    double seconds = 0;
    do {
      measure.call();
      ++calls;
      seconds = SecondsBetween(start, clock_.NowNs());
    } while (seconds < slice);
    return seconds / calls;
  }

  void Report(int threads, KernelBenchReport* report) const {
    const Measure& read = measures_[0];
    const Measure& multiply = measures_[1];
    for (const Measure& m : measures_) {
      if (m.rows == 0) continue;
      const Measure& limit = m.at_memory() ? read : multiply;
      const double work = m.at_memory() ? m.bytes : m.flops, limit_work = m.at_memory() ? read.bytes : multiply.flops;
      std::vector<double> values, limits, ratios;
      for (size_t round = 0; round < m.seconds.size(); ++round) {
        values.push_back(work / m.seconds[round] * 1e-9);
        limits.push_back(limit_work / limit.seconds[round] * 1e-9);
        ratios.push_back(values.back() / limits.back());
      }
      KernelFigure figure{
          m.kernel, m.rows, threads, Median(values), Median(limits), Median(ratios), m.at_memory() ? "GB/s" : "GFLOP/s",
          0};
      const auto one = std::find_if(measures_.begin(), measures_.end(),
                                    [&](const Measure& other) { return other.kernel == m.kernel && other.rows == 1; });
      std::vector<double> over;
      for (size_t round = 0; round < m.seconds.size(); ++round)
        over.push_back(static_cast<double>(m.rows) * one->seconds[round] / m.seconds[round]);
      figure.rows_over_one = Median(over);
      report->results.push_back(std::move(figure));
    }
  }

  void RunExpert(int64_t rows) {
    const int64_t expert = next_++ % options_.experts;
    const auto* record = reinterpret_cast<const uint8_t*>(memory_.data()) + expert * shapes_.expert_bytes();
    const auto matrix = [&](int64_t index, int64_t n, int64_t k) {
      const uint8_t* at = record + index * (shapes_.matrix_packed() + shapes_.matrix_scale());
      return Mxfp4View{at, at + shapes_.matrix_packed(), n, k};
    };
    int32_t ids[kMaxRows];
    std::iota(ids, ids + rows, 0);
    const std::span<const int32_t> list(ids, static_cast<size_t>(rows));
    backend_->ExpertMlp({matrix(0, shapes_.inner, shapes_.latent), matrix(1, shapes_.inner, shapes_.latent),
                         matrix(2, shapes_.latent, shapes_.inner), 4, 25, ConstRows(x_.data(), rows, shapes_.latent),
                         list, Rows(out_.data(), rows, shapes_.latent), list});
  }

  void RunDense(int64_t rows, int64_t outputs, int64_t inputs) {
    const int64_t matrices = static_cast<int64_t>(memory_.size()) / shapes_.dense_bytes();
    const TensorView weight = {
        memory_.data() + (next_++ % matrices) * shapes_.dense_bytes(), DType::kBF16, {outputs, inputs}};
    RunLinear(weight, rows);
  }

  void RunLinear(const TensorView& weight, int64_t rows) {
    backend_->Linear({weight, ConstRows(x_.data(), rows, weight.shape[1]), Rows(out_.data(), rows, weight.shape[0])});
  }

  const KernelBenchOptions& options_;
  const Shapes shapes_;
  const cpu::Isa isa_;
  const SteadyClock clock_;
  AlignedBuffer memory_;
  AlignedBuffer packed_memory_[2];
  TensorView packed_[2];
  int64_t packed_bytes_[2] = {};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ThreadPool> pool_;  // for the limits, as large as the backend's own
  std::vector<float> x_, out_;
  std::vector<Measure> measures_;
  int64_t next_ = 0;
  std::atomic<uint64_t> sink_{0};
};

}  // namespace

Result<KernelBenchReport> BenchKernels(const KernelBenchOptions& options) {
  DFIN_TRY(const cpu::Isa isa, cpu::SelectIsa(options.isa));
  KernelBench bench(options, isa);
  DFIN_TRY_VOID(bench.TakeMemory());
  KernelBenchReport report;
  report.rounds = options.rounds;
  for (const int threads : options.threads) DFIN_TRY_VOID(bench.Run(threads, &report));
  return report;
}

}  // namespace deltafin
