// ref_ops.h: the operations of ReferenceBackend as free functions, one source file a family.
//
// Formulas and shapes are those of backend/op_args.h. Nothing here is shared with the fast backends, so that an error
// in one cannot hide in the other. Arguments have been checked. Thread rule: pure functions of their arguments.
#pragma once

#include <cmath>

#include "backend/op_args.h"
#include "base/float_types.h"

namespace deltafin::ref {

void Embed(const EmbedArgs& args);
void RmsNorm(const RmsNormArgs& args);
void Linear(const LinearArgs& args);
// Outputs [first, first + out.width) only.
void Linear(const TensorView& weight, const ConstRows& x, const Rows& out, int64_t first);
void ShortConv(const ShortConvArgs& args);
void Kda(const KdaArgs& args);
void GatedHeadNorm(const GatedHeadNormArgs& args);
void MlaAttend(const MlaAttendArgs& args);
void SigmoidGate(const SigmoidGateArgs& args);
void MixResiduals(const MixResidualsArgs& args);
void Router(const RouterArgs& args);
void SituGlu(const SituGluArgs& args);
void ExpertMlp(const ExpertMlpArgs& args);
void CombineExperts(const CombineExpertsArgs& args);
void AddExpert(const AddExpertArgs& args);
void Store(const StoreArgs& args);
void Copy(const CopyArgs& args);
void Add(const AddArgs& args);

// Element i of a BF16 or F32 weight.
inline double WeightAt(const TensorView& weight, int64_t i) {
  return weight.dtype == DType::kBF16 ? Bf16ToFloat(weight.bf16()[i]) : weight.f32()[i];
}

inline double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline double SituGluAt(double gate, double up, double beta, double linear_beta) {
  return beta * std::tanh(gate / beta) * Sigmoid(gate) * linear_beta * std::tanh(up / linear_beta);
}

}  // namespace deltafin::ref
