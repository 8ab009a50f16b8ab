#include "bench/timed_backend.h"

#include "base/clock.h"

namespace deltafin {
namespace {

class TimedBackend final : public Backend {
 public:
  TimedBackend(std::unique_ptr<Backend> backend, BackendTimes& times) : backend_(std::move(backend)), times_(times) {}

  std::string name() const override { return backend_->name(); }
  uint64_t WorkspaceBytes(const WorkspaceLimits& limits) const override { return backend_->WorkspaceBytes(limits); }
  Status Reserve(const WorkspaceLimits& limits) override { return backend_->Reserve(limits); }

  void Embed(const EmbedArgs& args) override {
    Time([&] { backend_->Embed(args); });
  }
  void RmsNorm(const RmsNormArgs& args) override {
    Time([&] { backend_->RmsNorm(args); });
  }
  void Linear(const LinearArgs& args) override {
    Time([&] { backend_->Linear(args); });
  }
  void LinearGroup(const LinearGroupArgs& args) override {
    Time([&] { backend_->LinearGroup(args); });
  }
  void ShortConv(const ShortConvArgs& args) override {
    Time([&] { backend_->ShortConv(args); });
  }
  void Kda(const KdaArgs& args) override {
    Time([&] { backend_->Kda(args); });
  }
  void GatedHeadNorm(const GatedHeadNormArgs& args) override {
    Time([&] { backend_->GatedHeadNorm(args); });
  }
  void MlaAttend(const MlaAttendArgs& args) override {
    Time([&] { backend_->MlaAttend(args); });
  }
  void SigmoidGate(const SigmoidGateArgs& args) override {
    Time([&] { backend_->SigmoidGate(args); });
  }
  void MixResiduals(const MixResidualsArgs& args) override {
    Time([&] { backend_->MixResiduals(args); });
  }
  void Router(const RouterArgs& args) override {
    Time([&] { backend_->Router(args); });
  }
  void SituGlu(const SituGluArgs& args) override {
    Time([&] { backend_->SituGlu(args); });
  }
  void ExpertMlp(const ExpertMlpArgs& args) override {
    Time([&] { backend_->ExpertMlp(args); });
  }
  void CombineExperts(const CombineExpertsArgs& args) override {
    Time([&] { backend_->CombineExperts(args); });
  }
  void Copy(const CopyArgs& args) override {
    Time([&] { backend_->Copy(args); });
  }
  void Add(const AddArgs& args) override {
    Time([&] { backend_->Add(args); });
  }
  Status Synchronize() override { return backend_->Synchronize(); }

 private:
  template <typename Operation>
  void Time(Operation operation) {
    const int64_t start = clock_.NowNs();
    operation();
    times_.nanoseconds += clock_.NowNs() - start;
    ++times_.operations;
  }

  const std::unique_ptr<Backend> backend_;
  BackendTimes& times_;
  const SteadyClock clock_;
};

}  // namespace

std::unique_ptr<Backend> MakeTimedBackend(std::unique_ptr<Backend> backend, BackendTimes& times) {
  return std::make_unique<TimedBackend>(std::move(backend), times);
}

}  // namespace deltafin
