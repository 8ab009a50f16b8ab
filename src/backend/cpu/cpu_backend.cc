#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "backend/check_args.h"
#include "backend/cpu/cpu_isa.h"
#include "base/aligned_buffer.h"
#include "base/float_types.h"
#include "base/thread_pool.h"

namespace deltafin {
namespace {

using cpu::kMatrixRows;
using cpu::PadColumns;

// Outputs, rows or channels below which a part is not worth a thread.
constexpr int64_t kChannelGrain = 64;   // a cache line and a vector are whole divisors
constexpr int64_t kElementSpan = 2048;  // elements of one row a worker takes at a time
constexpr int64_t kLongestConv = 64;    // taps
constexpr int64_t kMostDirectRows = 4;  // kernels work without strips
// With fewer MLA blocks (1,024 positions) the waits for each other cost more than what reading once saves.
constexpr int64_t kLeastSplitBlocks = 16;

// Where the scratch floats of a Reserve() lie, in order.
struct ScratchPlan {
  int64_t inner = 0;   // columns of a prepared row
  int64_t expert = 0;  // the same for experts
  int64_t rows = 0;    // prepared rows
  int64_t split = 0;   // floats of MLA by positions
  int64_t worker = 0;  // floats of one worker

  int64_t input_floats() const { return rows * inner; }
  int64_t expert_floats() const { return rows * expert; }  // of gate, of up and of hidden
  int64_t total(int threads) const { return input_floats() + 3 * expert_floats() + split + threads * worker; }
};

ScratchPlan PlanFor(const WorkspaceLimits& limits) {
  ScratchPlan plan;
  plan.rows = std::clamp<int64_t>(limits.max_rows, 1, kMatrixRows);
  plan.inner = PadColumns(std::max(limits.max_inner, limits.max_expert_inner));
  plan.expert = PadColumns(limits.max_expert_inner);
  plan.split = limits.mla_latent_width > 0 ? cpu::MlaSplit::Floats(limits.mla_latent_width) : 0;
  const int64_t worker =
      std::max({cpu::MatrixScratchFloats(), cpu::Bf12ScratchFloats(), cpu::KdaScratchFloats(limits.kda_head_dim),
                cpu::MlaScratchFloats(limits.mla_latent_width), cpu::ConvScratchFloats(kLongestConv)});
  plan.worker = PadColumns(worker);
  return plan;
}

// Tiles of few rows are 4 outputs high, strips of many 32 or 64.
int64_t OutputGrain(int64_t rows) { return rows <= kMostDirectRows ? 16 : 32; }

class CpuBackend final : public Backend {
 public:
  CpuBackend(cpu::Isa isa, int threads) : isa_(isa), kernels_(cpu::KernelsFor(isa)), pool_(threads) {}

  Status Pin(std::span<const int> cpus) { return cpus.empty() ? Status() : pool_.PinWorkers(cpus); }

  std::string name() const override { return Cat("cpu/", cpu::ToString(isa_)); }

  uint64_t WorkspaceBytes(const WorkspaceLimits& limits) const override {
    return static_cast<uint64_t>(PlanFor(limits).total(pool_.threads())) * sizeof(float);
  }

  Status Reserve(const WorkspaceLimits& limits) override {
    DFIN_TRY(scratch_, AlignedBuffer::Create(WorkspaceBytes(limits)));
    plan_ = PlanFor(limits);
    std::memset(scratch_.data(), 0, scratch_.size());
    return {};
  }

  void Embed(const EmbedArgs& args) override {
    CheckArgs(args);
    const int64_t width = args.out.width;
    ForRows(args.out.rows, [&](int64_t r) {
      kernels_.widen_bf16(args.table.bf16() + args.ids[static_cast<size_t>(r)] * width, args.out.row(r), width);
    });
  }

  void RmsNorm(const RmsNormArgs& args) override {
    CheckArgs(args);
    pool_.ParallelFor(args.x.rows, 1, [&](int64_t begin, int64_t end, int) { kernels_.rms_norm(args, begin, end); });
  }

  void Linear(const LinearArgs& args) override {
    CheckArgs(args);
    const LinearGroupArgs::Part part = {args.weight, args.out};
    RunLinear(args.x, {&part, 1});
  }

  void LinearGroup(const LinearGroupArgs& args) override {
    CheckArgs(args);
    RunLinear(args.x, args.parts);
  }

  void ShortConv(const ShortConvArgs& args) override {
    CheckArgs(args);
    DFIN_CHECK(ConvTaps(args.kernel) <= kLongestConv, "ShortConv kernel longer than the scratch memory");
    pool_.ParallelFor(args.x.width, kChannelGrain, [&](int64_t begin, int64_t end, int worker) {
      kernels_.short_conv(args, begin, end, WorkerScratch(worker));
    });
  }

  void Kda(const KdaArgs& args) override {
    CheckArgs(args);
    DFIN_CHECK(cpu::KdaScratchFloats(args.head_dim) <= plan_.worker, "head_dim above the reserved limit");
    pool_.ParallelFor(args.heads, 1, [&](int64_t begin, int64_t end, int worker) {
      kernels_.kda(args, begin, end, WorkerScratch(worker));
    });
  }

  void GatedHeadNorm(const GatedHeadNormArgs& args) override {
    CheckArgs(args);
    pool_.ParallelFor(args.x.rows, 1,
                      [&](int64_t begin, int64_t end, int) { kernels_.gated_head_norm(args, begin, end); });
  }

  void MlaAttend(const MlaAttendArgs& args) override {
    CheckArgs(args);
    DFIN_CHECK(cpu::MlaScratchFloats(args.latent + args.rope) <= plan_.worker, "latent above the reserved limit");
    DFIN_CHECK(cpu::MlaSplit::Floats(args.latent + args.rope) <= plan_.split, "latent above the reserved limit");
    const int64_t blocks = CeilDiv(args.first_position + args.q.rows, cpu::kMlaBlock);
    if (args.heads * args.q.rows <= cpu::MlaSplit::kMostItems && blocks >= kLeastSplitBlocks && pool_.threads() > 1)
      return AttendByPositions(args, blocks);
    pool_.ParallelFor(args.heads, 1, [&](int64_t begin, int64_t end, int worker) {
      kernels_.mla_attend(args, begin, end, WorkerScratch(worker));
    });
  }

  void SigmoidGate(const SigmoidGateArgs& args) override {
    CheckArgs(args);
    ForSpans(args.x.rows, args.x.width, [&](int64_t r, int64_t c, int64_t n) {
      kernels_.sigmoid_gate(args.x.row(r) + c, args.gate.row(r) + c, n);
    });
  }

  void MixResiduals(const MixResidualsArgs& args) override {
    CheckArgs(args);
    pool_.ParallelFor(args.out.rows, 1,
                      [&](int64_t begin, int64_t end, int) { kernels_.mix_residuals(args, begin, end); });
  }

  void Router(const RouterArgs& args) override {
    CheckArgs(args);
    const LinearGroupArgs::Part part = {args.weight, args.scores};
    RunLinear(args.x, {&part, 1});
    pool_.ParallelFor(args.x.rows, 4,
                      [&](int64_t begin, int64_t end, int) { kernels_.router_select(args, begin, end); });
  }

  void SituGlu(const SituGluArgs& args) override {
    CheckArgs(args);
    ForSpans(args.gate.rows, args.gate.width, [&](int64_t r, int64_t c, int64_t n) {
      kernels_.situ_glu(args.gate.row(r) + c, args.up.row(r) + c, args.beta, args.linear_beta, args.out.row(r) + c, n);
    });
  }

  void ExpertMlp(const ExpertMlpArgs& args) override {
    CheckArgs(args);
    DFIN_CHECK(PadColumns(args.x.width) <= plan_.expert && PadColumns(args.w1.rows) <= plan_.expert,
               "expert wider than the reserved limit");
    const auto rows = static_cast<int64_t>(args.x_rows.size());
    for (int64_t first = 0; first < rows; first += plan_.rows)
      RunExpert(args, first, std::min(plan_.rows, rows - first));
  }

  void CombineExperts(const CombineExpertsArgs& args) override {
    CheckArgs(args);
    pool_.ParallelFor(args.out.rows, 1,
                      [&](int64_t begin, int64_t end, int) { kernels_.combine_experts(args, begin, end); });
  }

  void AddExpert(const AddExpertArgs& args) override {
    CheckArgs(args);
    pool_.ParallelFor(args.partial.rows, 1,
                      [&](int64_t begin, int64_t end, int) { kernels_.add_expert(args, begin, end); });
  }

  void Store(const StoreArgs& args) override {
    CheckArgs(args);
    const int64_t width = args.x.width;
    ForRows(args.x.rows, [&](int64_t r) {
      if (args.out.f32 != nullptr) {
        std::memcpy(args.out.f32 + r * width, args.x.row(r), static_cast<size_t>(width) * sizeof(float));
        return;
      }
      for (int64_t c = 0; c < width; ++c) args.out.bf16[r * width + c] = FloatToBf16(args.x.row(r)[c]);
    });
  }

  void Copy(const CopyArgs& args) override {
    CheckArgs(args);
    ForRows(args.x.rows, [&](int64_t r) {
      std::memcpy(args.out.row(r), args.x.row(r), static_cast<size_t>(args.x.width) * sizeof(float));
    });
  }

  void Add(const AddArgs& args) override {
    CheckArgs(args);
    ForRows(args.x.rows, [&](int64_t r) { kernels_.add(args.x.row(r), args.out.row(r), args.x.width); });
  }

  Status Synchronize() override { return {}; }

 private:
  float* Scratch() const { return reinterpret_cast<float*>(scratch_.data()); }
  float* Input() const { return Scratch(); }
  float* Gate() const { return Scratch() + plan_.input_floats(); }
  float* Up() const { return Gate() + plan_.expert_floats(); }
  float* Hidden() const { return Up() + plan_.expert_floats(); }
  float* Split() const { return Hidden() + plan_.expert_floats(); }
  float* WorkerScratch(int worker) const { return Split() + plan_.split + worker * plan_.worker; }

  template <typename Body>
  void ForRows(int64_t rows, Body&& body) {
    pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) body(r);
    });
  }

  // body(row, column, count) over pieces of rows.
  template <typename Body>
  void ForSpans(int64_t rows, int64_t width, Body&& body) {
    const int64_t spans = CeilDiv(width, kElementSpan);
    ForRows(rows * spans, [&](int64_t i) {
      const int64_t c = i % spans * kElementSpan;
      body(i / spans, c, std::min(kElementSpan, width - c));
    });
  }

  // All parts' outputs form one index range, cut among the workers; rows go in passes that fit the scratch memory.
  void RunLinear(const ConstRows& x, std::span<const LinearGroupArgs::Part> parts) {
    DFIN_CHECK(PadColumns(x.width) <= plan_.inner, "K above the reserved limit, or Reserve() was not called");
    int64_t outputs = 0;
    for (const LinearGroupArgs::Part& part : parts) outputs += part.out.width;
    for (int64_t first = 0; first < x.rows; first += plan_.rows) {
      const int64_t rows = std::min(plan_.rows, x.rows - first);
      ForRows(rows, [&](int64_t r) { kernels_.split_columns(x.row(first + r), x.width, r, rows, Input()); });
      pool_.ParallelFor(outputs, OutputGrain(rows), [&](int64_t begin, int64_t end, int worker) {
        for (const LinearGroupArgs::Part& part : parts) {
          const int64_t n = part.out.width;
          if (begin < n && end > 0) {
            RunOutputs(part, {nullptr, Input(), rows, part.out.Slice(first, rows)}, std::max<int64_t>(begin, 0),
                       std::min(end, n), WorkerScratch(worker));
          }
          begin -= n;
          end -= n;
        }
      });
    }
  }

  // Outputs [begin, end) of one part.
  void RunOutputs(const LinearGroupArgs::Part& part, cpu::LinearTask task, int64_t begin, int64_t end,
                  float* scratch) const {
    if (part.weight.dtype == DType::kBf12) {
      task.weight = &part.weight;
      task.first = part.first;
      return kernels_.linear_bf12(task, begin, end, scratch);
    }
    const TensorView weight = part.weight.SliceFirst(part.first, part.out.width);
    task.weight = &weight;
    kernels_.linear(task, begin, end, scratch);
  }

  // Each worker reads some of the latents, for all heads.
  void AttendByPositions(const MlaAttendArgs& args, int64_t blocks) {
    cpu::MlaSplit split;
    split.records = Split();
    split.record = cpu::MlaSplit::RecordFloats(args.latent + args.rope);
    split.items = args.heads * args.q.rows;
    const auto for_items = [&](auto kernel) {
      pool_.ParallelFor(split.items, 1, [&](int64_t begin, int64_t end, int) { kernel(args, split, begin, end); });
    };
    for_items(kernels_.mla_queries);
    const int64_t most = cpu::MlaSplit::kParts / split.items;
    for (; split.first_block < blocks; split.first_block += split.blocks) {
      split.blocks = std::min(most, blocks - split.first_block);
      pool_.ParallelFor(split.blocks, 1, [&](int64_t begin, int64_t end, int worker) {
        kernels_.mla_blocks(args, split, begin, end, WorkerScratch(worker));
      });
      for_items(kernels_.mla_merge);
    }
    for_items(kernels_.mla_values);
  }

  // Rows [first, first + rows) of the call: gate and up with the activation in one fork-join, then w2.
  void RunExpert(const ExpertMlpArgs& args, int64_t first, int64_t rows) {
    const int64_t inner = args.w1.rows, inner_stride = PadColumns(inner);
    const int32_t* x_rows = args.x_rows.data() + first;
    ForRows(rows, [&](int64_t r) { kernels_.group_columns(args.x.row(x_rows[r]), args.x.width, r, rows, Input()); });
    const Rows gate(Gate(), rows, inner, inner_stride), up(Up(), rows, inner, inner_stride);
    pool_.ParallelFor(inner, OutputGrain(rows), [&](int64_t begin, int64_t end, int worker) {
      kernels_.mxfp4({&args.w1, Input(), rows, gate, nullptr}, begin, end, WorkerScratch(worker));
      kernels_.mxfp4({&args.w3, Input(), rows, up, nullptr}, begin, end, WorkerScratch(worker));
      for (int64_t r = 0; r < rows; ++r) {
        kernels_.situ_glu(gate.row(r) + begin, up.row(r) + begin, args.beta, args.linear_beta, gate.row(r) + begin,
                          end - begin);
      }
    });
    ForRows(rows, [&](int64_t r) { kernels_.group_columns(gate.row(r), inner, r, rows, Hidden()); });
    pool_.ParallelFor(args.w2.rows, OutputGrain(rows), [&](int64_t begin, int64_t end, int worker) {
      const cpu::Mxfp4Task task = {&args.w2, Hidden(), rows, args.out, args.out_rows.data() + first};
      kernels_.mxfp4(task, begin, end, WorkerScratch(worker));
    });
  }

  const cpu::Isa isa_;
  const cpu::CpuKernels kernels_;
  ThreadPool pool_;
  AlignedBuffer scratch_;
  ScratchPlan plan_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options) {
  if (options.threads < 1) {
    return Fail(ErrorCode::kInvalidArgument, "--threads ", options.threads, ": expected 1 or more");
  }
  DFIN_TRY(const cpu::Isa isa, cpu::SelectIsa(options.isa));
  auto backend = std::make_unique<CpuBackend>(isa, options.threads);
  DFIN_TRY_VOID(backend->Pin(options.cpus));
  return Result<std::unique_ptr<Backend>>(std::move(backend));
}

}  // namespace deltafin
