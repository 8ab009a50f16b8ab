#include "backend/check_args.h"

namespace deltafin {
namespace {

bool IsWeightType(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF32; }

template <typename View>
bool HasShape(const View& view, int64_t rows, int64_t width) {
  return view.rows == rows && view.width == width && (rows <= 1 || view.stride >= width);
}

void CheckVector(const TensorView& weight, int64_t width) {
  DFIN_CHECK(IsWeightType(weight.dtype) && weight.shape.elements() == width, "vector must be BF16 or F32 [width]");
}

void CheckWeight(const TensorView& weight, const ConstRows& x) {
  DFIN_CHECK((IsWeightType(weight.dtype) || weight.dtype == DType::kBf12) && weight.shape.rank() == 2,
             "weight must be BF16, BF12 or F32 [N, K]");
  DFIN_CHECK(weight.shape[1] == x.width, "weight's K differs from the width of x");
}

void CheckMatrix(const TensorView& weight, const ConstRows& x, const Rows& out) {
  CheckWeight(weight, x);
  DFIN_CHECK(HasShape(out, x.rows, weight.shape[0]), "out must be [R, N]");
}

void CheckMxfp4(const Mxfp4View& w, int64_t rows, int64_t cols) {
  DFIN_CHECK(w.rows == rows && w.cols == cols, "expert matrix has the wrong shape");
  DFIN_CHECK(cols % kMxfp4Group == 0, "columns of an MXFP4 matrix come in groups of 32");
}

}  // namespace

void CheckArgs(const EmbedArgs& args) {
  const int64_t width = args.out.width;
  DFIN_CHECK(args.table.dtype == DType::kBF16 && args.table.shape.rank() == 2, "table must be BF16 [vocab, H]");
  DFIN_CHECK(args.table.shape[1] == width, "table's H differs from the width of out");
  DFIN_CHECK(args.out.rows == static_cast<int64_t>(args.ids.size()), "one id per row of out");
  for (const TokenId id : args.ids) DFIN_CHECK(id >= 0 && id < args.table.shape[0], "token id outside the table");
}

void CheckArgs(const RmsNormArgs& args) {
  DFIN_CHECK(HasShape(args.out, args.x.rows, args.x.width), "out must have the shape of x");
  CheckVector(args.weight, args.x.width);
}

void CheckArgs(const LinearArgs& args) { CheckMatrix(args.weight, args.x, args.out); }

void CheckArgs(const LinearGroupArgs& args) {
  for (const LinearGroupArgs::Part& part : args.parts) {
    CheckWeight(part.weight, args.x);
    DFIN_CHECK(part.first >= 0 && part.first + part.out.width <= part.weight.shape[0], "outputs outside the matrix");
    DFIN_CHECK(HasShape(part.out, args.x.rows, part.out.width), "out must have R rows");
  }
}

void CheckArgs(const ShortConvArgs& args) {
  const int rank = args.kernel.shape.rank();
  DFIN_CHECK(args.kernel.dtype == DType::kF32 && (rank == 2 || (rank == 3 && args.kernel.shape[1] == 1)),
             "kernel must be F32 [C, taps] or [C, 1, taps]");
  DFIN_CHECK(args.kernel.shape[0] == args.x.width && ConvTaps(args.kernel) >= 1, "kernel must have C rows");
  DFIN_CHECK(HasShape(args.tail, ConvTaps(args.kernel) - 1, args.x.width) &&
                 HasShape(args.next_tail, args.tail.rows, args.x.width),
             "tails must be [taps - 1, C]");
  DFIN_CHECK(HasShape(args.out, args.x.rows, args.x.width), "out must be [R, C]");
}

void CheckArgs(const KdaArgs& args) {
  const int64_t rows = args.q.rows, width = args.heads * args.head_dim;
  DFIN_CHECK(args.heads >= 1 && args.head_dim >= 1 && args.q.rows >= 1, "heads, head_dim and rows are required");
  DFIN_CHECK(args.before != nullptr && args.after != nullptr, "states are required");
  DFIN_CHECK(HasShape(args.q, rows, width) && HasShape(args.k, rows, width) && HasShape(args.v, rows, width),
             "q, k, v must be [R, heads * d]");
  DFIN_CHECK(HasShape(args.raw_decay, rows, width), "raw_decay must be [R, heads * d]");
  DFIN_CHECK(HasShape(args.raw_beta, rows, args.heads), "raw_beta must be [R, heads]");
  DFIN_CHECK(HasShape(args.out, rows, width), "out must be [R, heads * d]");
  DFIN_CHECK(args.a_log.dtype == DType::kF32 && args.a_log.shape.elements() >= args.heads, "a_log: F32 [>= heads]");
  DFIN_CHECK(args.dt_bias.dtype == DType::kF32 && args.dt_bias.shape.elements() == width, "dt_bias: F32 [heads * d]");
}

void CheckArgs(const GatedHeadNormArgs& args) {
  DFIN_CHECK(args.heads >= 1 && args.x.width % args.heads == 0, "width must be heads * d");
  DFIN_CHECK(HasShape(args.gate, args.x.rows, args.x.width), "gate must have the shape of x");
  DFIN_CHECK(HasShape(args.out, args.x.rows, args.x.width), "out must have the shape of x");
  CheckVector(args.weight, args.x.width / args.heads);
}

void CheckArgs(const MlaAttendArgs& args) {
  DFIN_CHECK(args.heads >= 1 && args.nope >= 0 && args.rope >= 0 && args.nope + args.rope >= 1 && args.v_dim >= 1 &&
                 args.latent >= 1,
             "MLA dims");
  DFIN_CHECK(args.first_position >= 0, "positions start at 0");
  DFIN_CHECK(args.q.width == args.heads * (args.nope + args.rope), "q must be [R, heads * (nope + rope)]");
  DFIN_CHECK(args.kv_b_proj.dtype == DType::kBF16 && args.kv_b_proj.shape.rank() == 2 &&
                 args.kv_b_proj.shape[0] == args.heads * (args.nope + args.v_dim) &&
                 args.kv_b_proj.shape[1] == args.latent,
             "kv_b_proj must be BF16 [heads * (nope + v_dim), latent]");
  DFIN_CHECK(HasShape(args.cache, args.first_position + args.q.rows, args.latent + args.rope),
             "cache must be [first_position + R, latent + rope]");
  DFIN_CHECK(args.cache.page_rows > 0 && args.cache.page_rows % kMlaGrid == 0, "pages hold whole blocks of positions");
  DFIN_CHECK(HasShape(args.out, args.q.rows, args.heads * args.v_dim), "out must be [R, heads * v_dim]");
}

void CheckArgs(const SigmoidGateArgs& args) {
  DFIN_CHECK(HasShape(args.gate, args.x.rows, args.x.width), "gate must have the shape of x");
}

void CheckArgs(const MixResidualsArgs& args) {
  const int64_t rows = args.prefix_sum.rows, width = args.prefix_sum.width;
  DFIN_CHECK(!args.blocks.empty(), "AttnRes mixes at least one block with the running sum");
  for (const ConstRows& block : args.blocks) DFIN_CHECK(HasShape(block, rows, width), "blocks must be [R, H]");
  DFIN_CHECK(HasShape(args.out, rows, width), "out must be [R, H]");
  CheckVector(args.proj, width);
  CheckVector(args.norm, width);
}

void CheckArgs(const RouterArgs& args) {
  CheckMatrix(args.weight, args.x, args.scores);
  const int64_t experts = args.weight.shape[0];
  DFIN_CHECK(args.bias.dtype == DType::kF32 && args.bias.shape.elements() == experts, "bias must be F32 [experts]");
  DFIN_CHECK(args.top_k >= 1 && args.top_k <= experts, "top_k must be 1 .. experts");
  const auto chosen = static_cast<size_t>(args.x.rows * args.top_k);
  DFIN_CHECK(args.expert_ids.size() == chosen && args.expert_weights.size() == chosen, "outputs must be [R * top_k]");
}

void CheckArgs(const SituGluArgs& args) {
  DFIN_CHECK(HasShape(args.up, args.gate.rows, args.gate.width), "up must have the shape of gate");
  DFIN_CHECK(HasShape(args.out, args.gate.rows, args.gate.width), "out must have the shape of gate");
}

void CheckArgs(const ExpertMlpArgs& args) {
  CheckMxfp4(args.w1, args.w1.rows, args.x.width);
  CheckMxfp4(args.w3, args.w1.rows, args.x.width);
  CheckMxfp4(args.w2, args.x.width, args.w1.rows);
  DFIN_CHECK(args.out.width == args.x.width && args.x_rows.size() == args.out_rows.size(), "one out row per x row");
  for (const int32_t r : args.x_rows) DFIN_CHECK(r >= 0 && r < args.x.rows, "x row outside x");
  for (const int32_t r : args.out_rows) DFIN_CHECK(r >= 0 && r < args.out.rows, "out row outside out");
}

void CheckArgs(const CombineExpertsArgs& args) {
  const auto slots = static_cast<size_t>(args.out.rows * args.top_k);
  DFIN_CHECK(HasShape(args.partial, args.out.rows * args.top_k, args.out.width), "partial must be [R * top_k, L]");
  DFIN_CHECK(args.weights.size() == slots && args.order.size() == slots, "weights and order must be [R * top_k]");
  for (const int32_t slot : args.order) DFIN_CHECK(slot >= 0 && slot < args.top_k, "slot outside 0 .. top_k - 1");
}

void CheckArgs(const AddExpertArgs& args) {
  DFIN_CHECK(HasShape(args.partial, static_cast<int64_t>(args.routes.size()), args.out.width),
             "partial must be [m, L]");
  const auto slots = static_cast<size_t>(args.out.rows * args.top_k);
  DFIN_CHECK(args.weights.size() == slots && args.order.size() == slots, "weights and order must be [R * top_k]");
  for (const int32_t route : args.routes)
    DFIN_CHECK(route >= 0 && static_cast<size_t>(route) < slots, "route outside 0 .. R * top_k - 1");
}

void CheckArgs(const StoreArgs& args) {
  DFIN_CHECK((args.out.f32 == nullptr) != (args.out.bf16 == nullptr), "out is of one type");
  DFIN_CHECK(args.out.rows == args.x.rows && args.out.width == args.x.width, "shapes differ");
}

void CheckArgs(const CopyArgs& args) { DFIN_CHECK(HasShape(args.out, args.x.rows, args.x.width), "shapes differ"); }
void CheckArgs(const AddArgs& args) { DFIN_CHECK(HasShape(args.out, args.x.rows, args.x.width), "shapes differ"); }

}  // namespace deltafin
