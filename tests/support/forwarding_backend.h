// ForwardingBackend: hands every operation to another backend; a test overrides those that it wants to see or change.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"

namespace deltafin::test {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> to) : to_(std::move(to)) {}

  std::string name() const override { return to_->name(); }
  uint64_t WorkspaceBytes(const WorkspaceLimits& limits) const override { return to_->WorkspaceBytes(limits); }
  Status Reserve(const WorkspaceLimits& limits) override { return to_->Reserve(limits); }
  void Embed(const EmbedArgs& args) override { to_->Embed(args); }
  void RmsNorm(const RmsNormArgs& args) override { to_->RmsNorm(args); }
  void Linear(const LinearArgs& args) override { to_->Linear(args); }
  void LinearGroup(const LinearGroupArgs& args) override { to_->LinearGroup(args); }
  void ShortConv(const ShortConvArgs& args) override { to_->ShortConv(args); }
  void Kda(const KdaArgs& args) override { to_->Kda(args); }
  void GatedHeadNorm(const GatedHeadNormArgs& args) override { to_->GatedHeadNorm(args); }
  void MlaAttend(const MlaAttendArgs& args) override { to_->MlaAttend(args); }
  void SigmoidGate(const SigmoidGateArgs& args) override { to_->SigmoidGate(args); }
  void MixResiduals(const MixResidualsArgs& args) override { to_->MixResiduals(args); }
  void Router(const RouterArgs& args) override { to_->Router(args); }
  void SituGlu(const SituGluArgs& args) override { to_->SituGlu(args); }
  void ExpertMlp(const ExpertMlpArgs& args) override { to_->ExpertMlp(args); }
  void CombineExperts(const CombineExpertsArgs& args) override { to_->CombineExperts(args); }
  void AddExpert(const AddExpertArgs& args) override { to_->AddExpert(args); }
  void Store(const StoreArgs& args) override { to_->Store(args); }
  void Copy(const CopyArgs& args) override { to_->Copy(args); }
  void Add(const AddArgs& args) override { to_->Add(args); }
  Status Synchronize() override { return to_->Synchronize(); }

 private:
  const std::unique_ptr<Backend> to_;
};

}  // namespace deltafin::test
