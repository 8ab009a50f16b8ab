#include "bench/timed_backend.h"

#include <numeric>

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
    Time(TimedOperation::kOthers, [&] { backend_->Embed(args); });
  }
  void RmsNorm(const RmsNormArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->RmsNorm(args); });
  }
  void Linear(const LinearArgs& args) override {
    const bool head = times_.head_outputs != 0 && args.out.width == times_.head_outputs;
    Time(head ? TimedOperation::kHead : TimedOperation::kLinear, [&] { backend_->Linear(args); });
  }
  void LinearGroup(const LinearGroupArgs& args) override {
    Time(TimedOperation::kLinear, [&] { backend_->LinearGroup(args); });
  }
  void ShortConv(const ShortConvArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->ShortConv(args); });
  }
  void Kda(const KdaArgs& args) override {
    Time(TimedOperation::kKda, [&] { backend_->Kda(args); });
  }
  void GatedHeadNorm(const GatedHeadNormArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->GatedHeadNorm(args); });
  }
  void MlaAttend(const MlaAttendArgs& args) override {
    Time(TimedOperation::kMlaAttend, [&] { backend_->MlaAttend(args); });
  }
  void SigmoidGate(const SigmoidGateArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->SigmoidGate(args); });
  }
  void MixResiduals(const MixResidualsArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->MixResiduals(args); });
  }
  void Router(const RouterArgs& args) override {
    Time(TimedOperation::kRouter, [&] { backend_->Router(args); });
  }
  void SituGlu(const SituGluArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->SituGlu(args); });
  }
  void ExpertMlp(const ExpertMlpArgs& args) override {
    Time(TimedOperation::kExpertMlp, [&] { backend_->ExpertMlp(args); });
  }
  void CombineExperts(const CombineExpertsArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->CombineExperts(args); });
  }
  void Store(const StoreArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->Store(args); });
  }
  void AddExpert(const AddExpertArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->AddExpert(args); });
  }
  void Copy(const CopyArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->Copy(args); });
  }
  void Add(const AddArgs& args) override {
    Time(TimedOperation::kOthers, [&] { backend_->Add(args); });
  }
  Status Synchronize() override { return backend_->Synchronize(); }

 private:
  template <typename Operation>
  void Time(TimedOperation kind, Operation operation) {
    const int64_t start = clock_.NowNs();
    operation();
    times_.nanoseconds[static_cast<size_t>(kind)] += clock_.NowNs() - start;
    ++times_.operations;
  }

  const std::unique_ptr<Backend> backend_;
  BackendTimes& times_;
  const SteadyClock clock_;
};

}  // namespace

const char* TimedOperationName(TimedOperation operation) {
  constexpr const char* kNames[kTimedOperations] = {"dense matrices", "head",          "routed experts", "routers",
                                                    "KDA recurrence", "MLA attention", "others"};
  return kNames[static_cast<size_t>(operation)];
}

int64_t BackendTimes::total() const { return std::accumulate(nanoseconds.begin(), nanoseconds.end(), int64_t{0}); }

std::unique_ptr<Backend> MakeTimedBackend(std::unique_ptr<Backend> backend, BackendTimes& times) {
  return std::make_unique<TimedBackend>(std::move(backend), times);
}

}  // namespace deltafin
