#include "backend/reference/reference_backend.h"

#include "backend/check_args.h"
#include "backend/reference/ref_ops.h"

namespace deltafin {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  uint64_t WorkspaceBytes(const WorkspaceLimits&) const override { return 0; }
  Status Reserve(const WorkspaceLimits&) override { return {}; }

  void Embed(const EmbedArgs& args) override { CheckArgs(args), ref::Embed(args); }
  void RmsNorm(const RmsNormArgs& args) override { CheckArgs(args), ref::RmsNorm(args); }
  void Linear(const LinearArgs& args) override { CheckArgs(args), ref::Linear(args); }
  void LinearGroup(const LinearGroupArgs& args) override {
    CheckArgs(args);
    for (const LinearGroupArgs::Part& part : args.parts) ref::Linear(part.weight, args.x, part.out, part.first);
  }
  void ShortConv(const ShortConvArgs& args) override { CheckArgs(args), ref::ShortConv(args); }
  void Kda(const KdaArgs& args) override { CheckArgs(args), ref::Kda(args); }
  void GatedHeadNorm(const GatedHeadNormArgs& args) override { CheckArgs(args), ref::GatedHeadNorm(args); }
  void MlaAttend(const MlaAttendArgs& args) override { CheckArgs(args), ref::MlaAttend(args); }
  void SigmoidGate(const SigmoidGateArgs& args) override { CheckArgs(args), ref::SigmoidGate(args); }
  void MixResiduals(const MixResidualsArgs& args) override { CheckArgs(args), ref::MixResiduals(args); }
  void Router(const RouterArgs& args) override { CheckArgs(args), ref::Router(args); }
  void SituGlu(const SituGluArgs& args) override { CheckArgs(args), ref::SituGlu(args); }
  void ExpertMlp(const ExpertMlpArgs& args) override { CheckArgs(args), ref::ExpertMlp(args); }
  void CombineExperts(const CombineExpertsArgs& args) override { CheckArgs(args), ref::CombineExperts(args); }
  void AddExpert(const AddExpertArgs& args) override { CheckArgs(args), ref::AddExpert(args); }
  void Store(const StoreArgs& args) override { CheckArgs(args), ref::Store(args); }
  void Copy(const CopyArgs& args) override { CheckArgs(args), ref::Copy(args); }
  void Add(const AddArgs& args) override { CheckArgs(args), ref::Add(args); }

  Status Synchronize() override { return {}; }
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateReferenceBackend(const BackendOptions& options) {
  if (options.isa != "auto") {
    return Fail(ErrorCode::kInvalidArgument, "--isa ", options.isa,
                ": the reference backend has no instruction sets: expected auto, or choose --device cpu");
  }
  if (options.threads < 1) {
    return Fail(ErrorCode::kInvalidArgument, "--threads ", options.threads, ": expected 1 or more");
  }
  return std::make_unique<ReferenceBackend>();
}

}  // namespace deltafin
