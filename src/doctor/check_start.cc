// A run that stops before it reads weights: everything is opened as a run would, and the memory plan is made.
#include "base/units.h"
#include "doctor/checks.h"
#include "engine/engine.h"

namespace deltafin {
namespace {

// As a plan does when it is not told (engine/memory_plan.cc): a sixteenth is left to the rest of the machine.
constexpr uint64_t kLeftToSystemDivisor = 16;

struct Outcome {
  std::optional<MemoryPlan> plan;
  Status status;  // without a plan
};

Outcome OpenAndStop(const Subject& subject, uint64_t memory) {
  Outcome outcome;
  EngineOptions options;
  options.model = subject.options.model;
  options.experts = subject.experts;
  options.dense = subject.options.dense;
  options.memory = memory;
  options.usage_counts = false;
  options.stream.offline = true;  // nothing is fetched; a run fetches what it wants
  EngineMonitor monitor;
  Logger logger([](const std::string&) {});
  const auto stop = [&](const ModelSpec&, const MemoryPlan& plan) -> Status {
    outcome.plan = plan;
    return Fail(ErrorCode::kCancelled, "the plan is known");
  };
  Result<std::unique_ptr<Engine>> engine = Engine::Create(options, {.backends = *subject.options.backends,
                                                                    .monitor = monitor,
                                                                    .logger = logger,
                                                                    .cancel = subject.options.cancel,
                                                                    .on_plan = stop,
                                                                    .io_engine = {},
                                                                    .tune_io = {},
                                                                    .wrap_backend = {}});
  if (!engine) outcome.status = Failure(std::move(engine.error()));
  return outcome;
}

}  // namespace

void CheckStart(const Subject& subject, Findings& findings) {
  if (!subject.has_model()) return;
  if (!subject.weights_complete() || subject.weights_have_faults) {
    findings.Note("start.not-tried", "not tried", "the weights are not in order yet: see above");
    return;
  }
  const uint64_t available = subject.host.AvailableMemory();
  const uint64_t memory = subject.options.memory.value_or(available - available / kLeftToSystemDivisor);
  const Outcome outcome = OpenAndStop(subject, memory);
  if (outcome.plan) {
    const MemoryPlan& plan = *outcome.plan;
    findings.Ok("start.plan", Cat(FormatBytes(plan.total()), " of memory: ", FormatBytes(plan.resident_dense_bytes),
                                  " dense weights, room for ", plan.expert_slots, " of ", plan.experts_total,
                                  " experts, context ", plan.context));
    if (plan.streamed_dense_bytes > 0)
      findings.Note("memory.streams-dense", FormatBytes(plan.streamed_dense_bytes) + " of dense weights do not fit",
                    "they are read again for every token",
                    subject.options.dense.empty()
                        ? ByAdvice(Cat("deltafin pack --dense --model ", Quoted(subject.options.model),
                                       " --to DIR, then --dense DIR: a quarter less"))
                        : ByAdvice("more memory, or a smaller --context"));
    return;
  }
  const std::string& message = outcome.status.error().message();
  if (subject.is_streamed() && outcome.status.error().code() == ErrorCode::kUnavailable) {
    findings.Note("start.not-tried", message, "another process uses the folder: it is looked at when that has ended");
    return;
  }
  if (outcome.status.error().code() != ErrorCode::kOutOfMemory) {
    findings.Fault("start.refused", message, "a run would end there",
                   ByCommand(Cat("deltafin inspect --model ", Quoted(subject.options.model)),
                             "it shows what is there; the message names what is expected"));
    return;
  }
  // The engine was told what we would have taken, not what the user said.
  const size_t expected = message.find(": expected");
  const std::string text = subject.options.memory || expected == std::string::npos
                               ? message
                               : Cat("available memory ", FormatBytes(memory), message.substr(expected));
  findings.Fault(
      "memory.below-floor", text, "a run is refused before it reads anything large",
      ByAdvice(subject.options.memory ? "give a larger --memory or leave it out, or give a smaller --context"
                                      : "free memory, raise the control group's limit, or give a smaller --context"));
}

}  // namespace deltafin
