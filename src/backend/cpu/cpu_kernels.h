// cpu_kernels.h: the kernels of CpuBackend as a table of plain functions, one table for an instruction set.
//
// Every kernel computes a part of an operation ([begin, end) of outputs, rows, heads or channels) on the calling
// thread, with scratch memory the caller owns; it does not allocate, wait or throw. Row invariance: a kernel's result
// for one row and one output is the same bits for every range, tile and number of rows (op_args.h). Not here: threads
// and shape checks (cpu_isa.cc). The implementations are compiled once per instruction set by Highway
// (foreach_target.h) and never touch its global dispatch state. Thread rule: const tables and pure functions.
#pragma once

#include <cstdint>

#include "backend/op_args.h"

namespace deltafin::cpu {

enum class Isa { kAvx2, kAvx512, kAvx512Vnni, kNeon };

// Both sets share all kernels but those of MXFP4.
inline constexpr bool IsAvx512(Isa isa) { return isa == Isa::kAvx512 || isa == Isa::kAvx512Vnni; }

// The "locality" with which matrix kernels ask for weights (__builtin_prefetch): into the L2 cache. Requests of an L1
// cache are too few to hide memory's latency (Zen 4), and it is full of what is worked on.
inline constexpr int kAskL2 = 2;
// Rows a matrix kernel handles in one pass over the weights; callers cut longer inputs. It bounds the scratch memory.
inline constexpr int64_t kMatrixRows = 64;
// Positions of one MLA block; blocks lie on a grid fixed to absolute positions.
inline constexpr int64_t kMlaBlock = kMlaGrid;
// (head, row) pairs that MLA carries through one pass over the cache.
inline constexpr int64_t kMlaItems = 16;
inline constexpr int64_t MlaPadded(int64_t latent_width) { return (latent_width + 15) / 16 * 16; }

// MLA by positions: records of workers for each other. A pass computes `blocks` blocks of all `items` (item = head *
// rows
// + row) into parts, which are then merged into the items' mixes; passes follow in ascending order.
struct MlaSplit {
  static constexpr int64_t kMostItems = 128;
  static constexpr int64_t kParts = 1024;  // of a pass: blocks * items
  static constexpr int64_t RecordFloats(int64_t latent_width) { return MlaPadded(latent_width + 2); }
  static constexpr int64_t Floats(int64_t latent_width) {
    return (2 * kMostItems + kParts) * RecordFloats(latent_width);
  }

  float* query(int64_t item) const { return records + item * record; }               // [latent + rope]
  float* mix(int64_t item) const { return records + (kMostItems + item) * record; }  // [latent], maximum, sum
  float* part(int64_t block, int64_t item) const {                                   // the same of one block
    return records + (2 * kMostItems + block * items + item) * record;
  }

  float* records = nullptr;
  int64_t record = 0;  // floats
  int64_t items = 0;
  int64_t first_block = 0, blocks = 0;
};
// Columns that the prepared inputs of matrix kernels are padded to, for the widest instruction set.
inline constexpr int64_t kColumnPadding = 128;

inline constexpr int64_t PadColumns(int64_t columns) {
  return (columns + kColumnPadding - 1) / kColumnPadding * kColumnPadding;
}

// out[r, n] = x[r] . weight[n], x prepared by `split_columns` for as many rows.
struct LinearTask {
  const TensorView* weight = nullptr;  // [N, K] BF16 or F32 (linear), BF12 (linear_bf12)
  const float* x = nullptr;            // rows * PadColumns(K) floats
  int64_t rows = 0;                    // <= kMatrixRows
  Rows out;                            // [rows, N]
  int64_t first = 0;                   // linear_bf12: row of the matrix that is output 0
};

// The same for MXFP4, x prepared by `group_columns` for as many rows; row r goes to out.row(out_rows[r]), or to row r
// when out_rows is null.
struct Mxfp4Task {
  const Mxfp4View* weight = nullptr;
  const float* x = nullptr;  // rows * PadColumns(K) floats
  int64_t rows = 0;          // <= kMatrixRows
  Rows out;
  const int32_t* out_rows = nullptr;
};

// Scratch floats one worker needs, by kernel family. All scratch is aligned to 64 bytes.
int64_t MatrixScratchFloats();
int64_t Bf12ScratchFloats();
int64_t KdaScratchFloats(int64_t head_dim);
int64_t MlaScratchFloats(int64_t latent_width);  // latent + rope
int64_t ConvScratchFloats(int64_t taps);

struct CpuKernels {
  // Puts one row, number `row` of `rows` (<= kMatrixRows), into its places among the prepared ones, which take
  // rows * PadColumns(columns) floats: for `linear`, and for `mxfp4`.
  void (*split_columns)(const float* x, int64_t columns, int64_t row, int64_t rows, float* prepared);
  void (*group_columns)(const float* x, int64_t columns, int64_t row, int64_t rows, float* prepared);
  // Outputs [begin, end).
  void (*linear)(const LinearTask& task, int64_t begin, int64_t end, float* scratch);
  void (*linear_bf12)(const LinearTask& task, int64_t begin, int64_t end, float* scratch);
  void (*mxfp4)(const Mxfp4Task& task, int64_t begin, int64_t end, float* scratch);

  // Rows [begin, end).
  void (*rms_norm)(const RmsNormArgs& args, int64_t begin, int64_t end);
  void (*mix_residuals)(const MixResidualsArgs& args, int64_t begin, int64_t end);
  void (*gated_head_norm)(const GatedHeadNormArgs& args, int64_t begin, int64_t end);
  void (*router_select)(const RouterArgs& args, int64_t begin, int64_t end);  // args.scores hold x W^T
  void (*combine_experts)(const CombineExpertsArgs& args, int64_t begin, int64_t end);
  void (*add_expert)(const AddExpertArgs& args, int64_t begin, int64_t end);  // routes [begin, end)

  // Elementwise over n consecutive values.
  void (*sigmoid_gate)(float* x, const float* gate, int64_t n);
  void (*situ_glu)(const float* gate, const float* up, float beta, float linear_beta, float* out, int64_t n);
  void (*widen_bf16)(const uint16_t* from, float* out, int64_t n);
  void (*add)(const float* x, float* out, int64_t n);

  // Channels [begin, end): all rows, tail included.
  void (*short_conv)(const ShortConvArgs& args, int64_t begin, int64_t end, float* scratch);
  // Heads [begin, end): all rows in order.
  void (*kda)(const KdaArgs& args, int64_t begin, int64_t end, float* scratch);
  void (*mla_attend)(const MlaAttendArgs& args, int64_t begin, int64_t end, float* scratch);
  // The same by positions: items [begin, end) get their queries; then, pass by pass, blocks [begin, end) of the pass
  // and items [begin, end); at last items [begin, end) write their values.
  void (*mla_queries)(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end);
  void (*mla_blocks)(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end, float* scratch);
  void (*mla_merge)(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end);
  void (*mla_values)(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end);
};

// Each fills its part of the table. `isa` must be one this build has (IsBuilt in cpu_isa.cc).
void FillLinear(Isa isa, CpuKernels& kernels);
void FillLinearBf12(Isa isa, CpuKernels& kernels);
void FillMxfp4(Isa isa, CpuKernels& kernels);
void FillMxfp4Vnni(CpuKernels& kernels);  // group_columns and mxfp4 of Isa::kAvx512Vnni
bool ProcessorHasVnni();                  // 512-bit wide
void FillNormAct(Isa isa, CpuKernels& kernels);
void FillAttnRes(Isa isa, CpuKernels& kernels);
void FillRouter(Isa isa, CpuKernels& kernels);
void FillKda(Isa isa, CpuKernels& kernels);
void FillMla(Isa isa, CpuKernels& kernels);

}  // namespace deltafin::cpu
