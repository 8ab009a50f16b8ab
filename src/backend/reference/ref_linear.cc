// Embed, Linear, RmsNorm and the elementwise operations.
#include <vector>

#include "backend/reference/ref_ops.h"
#include "tensor/bf12.h"

namespace deltafin::ref {

void Embed(const EmbedArgs& args) {
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const int64_t first = args.ids[static_cast<size_t>(r)] * args.out.width;
    for (int64_t c = 0; c < args.out.width; ++c) args.out.row(r)[c] = Bf16ToFloat(args.table.bf16()[first + c]);
  }
}

void RmsNorm(const RmsNormArgs& args) {
  const int64_t width = args.x.width;
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const float* x = args.x.row(r);
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += static_cast<double>(x[c]) * x[c];
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + args.eps);
    for (int64_t c = 0; c < width; ++c)
      args.out.row(r)[c] = static_cast<float>(x[c] * factor * WeightAt(args.weight, c));
  }
}

namespace {

// The values of a 12-bit matrix, as BF16.
std::vector<uint16_t> Decode(const TensorView& weight) {
  const Bf12View matrix(weight);
  std::vector<uint16_t> values(static_cast<size_t>(weight.shape.elements()));
  for (int64_t n = 0; n < matrix.rows(); ++n)
    DecodeBf12Row(matrix.Row(n), matrix.columns(), values.data() + n * matrix.columns());
  return values;
}

}  // namespace

void Linear(const TensorView& weight, const ConstRows& x, const Rows& out, int64_t first) {
  if (weight.dtype == DType::kBf12) {
    const std::vector<uint16_t> values = Decode(weight);
    Linear({reinterpret_cast<const std::byte*>(values.data()), DType::kBF16, weight.shape}, x, out, first);
    return;
  }
  const int64_t inner = weight.shape[1];
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t n = 0; n < out.width; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += WeightAt(weight, (first + n) * inner + k) * x.row(r)[k];
      out.row(r)[n] = static_cast<float>(sum);
    }
  }
}

void Linear(const LinearArgs& args) { Linear(args.weight, args.x, args.out, 0); }

void SigmoidGate(const SigmoidGateArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    float* x = args.x.row(r);
    for (int64_t c = 0; c < args.x.width; ++c) x[c] = static_cast<float>(x[c] * Sigmoid(args.gate.row(r)[c]));
  }
}

void SituGlu(const SituGluArgs& args) {
  for (int64_t r = 0; r < args.gate.rows; ++r) {
    for (int64_t c = 0; c < args.gate.width; ++c) {
      args.out.row(r)[c] =
          static_cast<float>(SituGluAt(args.gate.row(r)[c], args.up.row(r)[c], args.beta, args.linear_beta));
    }
  }
}

void Store(const StoreArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t c = 0; c < args.x.width; ++c) {
      const int64_t at = r * args.x.width + c;
      if (args.out.f32 != nullptr)
        args.out.f32[at] = args.x.row(r)[c];
      else
        args.out.bf16[at] = FloatToBf16(args.x.row(r)[c]);
    }
  }
}

void Copy(const CopyArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t c = 0; c < args.x.width; ++c) args.out.row(r)[c] = args.x.row(r)[c];
  }
}

void Add(const AddArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t c = 0; c < args.x.width; ++c) args.out.row(r)[c] += args.x.row(r)[c];
  }
}

}  // namespace deltafin::ref
