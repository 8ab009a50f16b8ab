// The expert set: is it whole, is it this model's, is a pack unfinished.
#include "checkpoint/expert_model_id.h"
#include "checkpoint/expert_set.h"
#include "doctor/checks.h"
#include "doctor/readers.h"
#include "pack/disk.h"
#include "pack/journal.h"

namespace deltafin {
namespace {

void CheckJournals(const Subject& subject, Findings& findings) {
  for (const std::string& folder : subject.experts) {
    const Result<std::optional<PackJournal::Contents>> journal = PackJournal::Read(folder);
    const std::string path = folder + "/" + kJournalName;
    if (!journal && FileExists(path)) {
      findings.Fault("pack.journal-damaged", journal.error().message(),
                     "it says which experts an interrupted pack moved; with --move they may be nowhere else",
                     ByAdvice("do not delete it; bring it back from a backup if there is one"));
    } else if (journal && *journal) {
      findings.Warning("pack.unfinished",
                       Cat(path, ": a pack was interrupted, ", (*journal)->entries.size(), " steps of it are done"),
                       "its space is taken, and experts that it moved are reachable only when it has ended",
                       ByAdvice("give the same `deltafin pack` command again: it goes on where it stopped"));
    }
  }
}

void CheckOwner(const Subject& subject, Findings& findings) {
  const Result<ExpertSet> set = ExpertSet::Open(subject.experts, *subject.report->spec, ExpertSet::Need::kAnyRecords);
  if (!set) return;
  const Result<Readers> readers = Readers::Open(subject, {});
  if (!readers) return;  // the dense weights are not all there: said by the check of the model
  const Result<uint64_t> model_id = ExpertModelId(*readers->checkpoint, *readers->io, subject.options.cancel);
  const Status same = model_id ? CheckExpertModel(set->manifest(), *model_id) : Failure(model_id.error());
  if (!same && same.error().code() == ErrorCode::kCorrupt)
    findings.Fault("experts.other-model", same.error().message(),
                   "experts of another model give fluent nonsense: a run refuses them",
                   ByAdvice("name the set that was packed from this model with --experts, or pack again"));
  else if (!same)
    findings.Fault("model.unreadable", same.error().message(), "weights cannot be read",
                   ByAdvice("look at the drive (dmesg, smartctl), or fetch the file again"));
}

// What the set says of itself when it is opened (checkpoint/expert_set.cc).
void TellDegraded(const Subject& subject, const std::string& warning, Findings& findings) {
  const auto says = [&](const char* words) { return warning.find(words) != std::string::npos; };
  if (says("are on one device")) return;  // drive.shared
  std::string verify = Cat("deltafin verify --model ", Quoted(subject.options.model));
  if (!subject.experts_noted)
    for (const std::string& folder : subject.experts) verify += Cat(" --experts ", Quoted(folder));
  if (says("second copies"))
    findings.Warning("experts.degraded", warning,
                     "experts are read from fewer drives: slower, and one more loss is one too many",
                     ByCommand(verify + " --repair", "if the drive is only not mounted, mount it instead"));
  else if (says("can be resumed"))
    findings.Warning("experts.degraded", warning, "the newer generation takes room and is not used",
                     ByAdvice("give the same `deltafin pack` command again: it goes on where it stopped"));
  else if (says("read directly"))
    findings.Warning("experts.degraded", warning, "slower, and the page cache's memory is not in the plan",
                     ByAdvice("keep the files on ext4, xfs or btrfs, not on an overlay or tmpfs"));
  else
    findings.Warning("experts.degraded", warning, "the set is used without it",
                     ByCommand(verify, "it reads every expert and names what is damaged"));
}

}  // namespace

void CheckExperts(const Subject& subject, Findings& findings) {
  if (!subject.noted_problem.empty())
    findings.Fault("experts.note-damaged", subject.noted_problem, "it says where pack put the experts",
                   ByAdvice("name the folders with --experts; `deltafin pack` writes it again"));
  CheckJournals(subject, findings);
  if (!subject.report || !subject.report->expert_set) return;
  const ExpertSetReport& set = *subject.report->expert_set;
  for (const std::string& warning : set.warnings) TellDegraded(subject, warning, findings);
  if (!set.problem.empty()) {
    findings.Fault(set.reachable ? "experts.incomplete" : "experts.unreachable", set.problem,
                   "a run needs every expert",
                   ByAdvice(set.reachable ? "fetch the missing shards, then give the `deltafin pack` command again"
                                          : "mount the drives and name all folders of the set, or pack again"));
    return;
  }
  CheckOwner(subject, findings);
  if (!findings.has_faults())
    findings.Ok("experts.complete", Cat("expert set ", set.set_id, ", generation ", set.generation, ": ", set.experts,
                                        " of ", set.experts_expected, " experts in ", set.folders.size(),
                                        set.folders.size() == 1 ? " folder" : " folders"));
}

}  // namespace deltafin
