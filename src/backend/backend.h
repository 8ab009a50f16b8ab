// Backend: what a device must be able to do: paper-level operations on rows of activations.
//
// The model (src/model) is written once against this interface. Implementations: backend/reference (plain scalar C++, the
// oracle) and backend/cpu (SIMD and threads). Operations cannot fail: a wrong shape is a programmer error (DFIN_CHECK), and
// everything a file or a user can get wrong has been refused before. A backend that queues work finishes it in
// Synchronize(); these two compute before they return.
// Memory: both work on host memory that the caller owns. Scratch is taken once, in Reserve(), so that nothing is allocated
// while generating.
// Thread rule: one caller at a time (the engine thread).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/op_args.h"
#include "base/result.h"

namespace deltafin {

// Upper limits of what calls will ask for; they size the scratch memory.
struct WorkspaceLimits {
  int64_t max_rows = 0;           // R
  int64_t max_inner = 0;          // K of any Linear, or L / I of an expert
  int64_t max_expert_inner = 0;   // max(L, I)
  int64_t max_experts = 0;
  int64_t mla_heads = 0;
  int64_t mla_latent_width = 0;   // latent + rope
  int64_t kda_head_dim = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "reference" or "cpu/avx512": device and instruction set, the unit for which results are bit-identical.
  virtual std::string name() const = 0;

  // Scratch needed for `limits`, and taking it. Called once, before the first operation.
  virtual uint64_t WorkspaceBytes(const WorkspaceLimits& limits) const = 0;
  virtual Status Reserve(const WorkspaceLimits& limits) = 0;

  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void Linear(const LinearArgs& args) = 0;
  virtual void LinearGroup(const LinearGroupArgs& args) = 0;
  virtual void ShortConv(const ShortConvArgs& args) = 0;
  virtual void Kda(const KdaArgs& args) = 0;
  virtual void GatedHeadNorm(const GatedHeadNormArgs& args) = 0;
  virtual void MlaAttend(const MlaAttendArgs& args) = 0;
  virtual void SigmoidGate(const SigmoidGateArgs& args) = 0;
  virtual void MixResiduals(const MixResidualsArgs& args) = 0;
  virtual void Router(const RouterArgs& args) = 0;
  virtual void SituGlu(const SituGluArgs& args) = 0;
  virtual void ExpertMlp(const ExpertMlpArgs& args) = 0;
  virtual void CombineExperts(const CombineExpertsArgs& args) = 0;
  virtual void AddExpert(const AddExpertArgs& args) = 0;
  virtual void Store(const StoreArgs& args) = 0;
  virtual void Copy(const CopyArgs& args) = 0;
  virtual void Add(const AddArgs& args) = 0;

  virtual Status Synchronize() = 0;
};

}  // namespace deltafin
