// Packed dense weights: are they whole, are they this model's.
#include "base/units.h"
#include "checkpoint/dense_model_id.h"
#include "checkpoint/dense_set.h"
#include "doctor/checks.h"
#include "doctor/readers.h"
#include "pack/disk.h"

namespace deltafin {
namespace {

Remedy PackAgain(const Subject& subject) {
  return ByCommand(
      Cat("deltafin pack --dense --model ", Quoted(subject.options.model), " --to ", Quoted(subject.options.dense)));
}

void CheckSet(const Subject& subject, const Readers& readers, Findings& findings) {
  const Result<DenseSet> set = DenseSet::Open(subject.options.dense, *readers.checkpoint);
  if (!set) {
    const std::string& message = set.error().message();
    const bool other = message.find("another model") != std::string::npos;
    findings.Fault(other ? "dense.other-model" : "dense.damaged", message, "a run refuses them", PackAgain(subject));
    return;
  }
  const Result<uint64_t> model_id = DenseModelId(*readers.checkpoint, *readers.io, subject.options.cancel);
  const Status same = model_id ? set->CheckModel(*model_id) : Failure(model_id.error());
  if (!same && same.error().code() == ErrorCode::kCorrupt)
    findings.Fault("dense.other-model", same.error().message(),
                   "dense weights of another model give nonsense: a run refuses them", PackAgain(subject));
  else if (!same)
    findings.Fault("model.unreadable", same.error().message(), "weights cannot be read",
                   ByAdvice("look at the drive (dmesg, smartctl), or download the file again"));
  else
    findings.Ok("dense.complete", Cat(set->manifest().units.size(), " files, ", FormatBytes(set->manifest().bytes())));
}

}  // namespace

void CheckDense(const Subject& subject, Findings& findings) {
  const std::string& folder = subject.options.dense;
  if (folder.empty() || subject.host.Look(folder).kind != PathFacts::Kind::kFolder) return;
  if (FileExists(Cat(folder, "/", kDensePartialName))) {
    findings.Fault("dense.unfinished", folder + ": packing dense weights there was interrupted",
                   "the folder cannot be used before it has ended", PackAgain(subject));
    return;
  }
  if (!subject.weights_complete()) return;
  const Result<Readers> readers = Readers::Open(subject, {});
  if (readers)
    CheckSet(subject, *readers, findings);
  else
    findings.Fault("model.refused", readers.error().message(), "a run would end there",
                   ByCommand(Cat("deltafin inspect --model ", Quoted(subject.options.model))));
}

}  // namespace deltafin
