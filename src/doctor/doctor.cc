#include "doctor/doctor.h"

#include "doctor/checks.h"

namespace deltafin {
namespace {

// In the order in which they are shown; several may share a group.
constexpr auto kFast = DoctorCheck::Kind::kFast;
constexpr auto kOfWeights = DoctorCheck::Kind::kOfWeights;
constexpr auto kReadsWeights = DoctorCheck::Kind::kReadsWeights;
constexpr DoctorCheck kChecks[] = {
    {"program", kFast, CheckProgram},
    {"processor", kFast, CheckProcessor},
    {"memory", kFast, CheckMemory},
    {"limits", kFast, CheckLimits},
    {"kernel", kFast, CheckKernel},
    {"drives", kFast, CheckDrives},
    {"room for Kimi K3", kFast, CheckFitness},
    {"permissions", kOfWeights, CheckPermissions},
    {"model", kOfWeights, CheckModel},
    {"tokenizer", kFast, CheckTokenizer},
    {"experts", kOfWeights, CheckExperts},
    {"dense weights", kOfWeights, CheckDense},
    {"state", kFast, CheckState},
    {"start of a run", kFast, CheckStart},
    {"samples", kReadsWeights, CheckExpertSamples},
    {"samples", kReadsWeights, CheckDenseSamples},
    {"samples", kReadsWeights, CheckShardSamples},
    {"arithmetic", kReadsWeights, CheckArithmetic},
};

}  // namespace

std::span<const DoctorCheck> AllChecks() { return kChecks; }

Result<std::vector<Finding>> RunDoctor(const DoctorOptions& options, const Host& host) {
  if (options.progress) options.progress("files");
  Subject subject = Subject::Make(options, host);
  std::vector<Finding> all;
  for (const DoctorCheck& check : AllChecks()) {
    if (options.quick && check.kind == kReadsWeights) continue;
    if (options.cancel.cancelled()) return Fail(ErrorCode::kCancelled, "doctor: stopped");
    if (options.progress) options.progress(check.group);
    Findings findings(check.group);
    check.run(subject, findings);
    if (check.kind == kOfWeights && findings.has_faults()) subject.weights_have_faults = true;
    all.insert(all.end(), findings.list().begin(), findings.list().end());
  }
  return all;
}

}  // namespace deltafin
