// config.json, index and shards: what inspect finds, by name.
#include <algorithm>
#include <set>

#include "base/units.h"
#include "doctor/checks.h"

namespace deltafin {
namespace {

constexpr size_t kMostTold = 20;  // of one kind

// Tells the first kMostTold of a kind, and how many more there were.
class Told {
 public:
  Told(Findings& findings, std::string name, std::string why, std::string fix)
      : findings_(findings), name_(std::move(name)), why_(std::move(why)), fix_(std::move(fix)) {}
  ~Told() {
    if (count_ > kMostTold) findings_.Fault(name_, Cat("and ", count_ - kMostTold, " more"), why_, fix_);
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  void Add(const std::string& found) {
    if (++count_ <= kMostTold) findings_.Fault(name_, found, why_, fix_);
  }
  size_t count() const { return count_; }

 private:
  Findings& findings_;
  std::string name_, why_, fix_;
  size_t count_ = 0;
};

bool IsLfsPointer(const std::string& problem) { return problem.find("git-lfs pointer") != std::string::npos; }

void CheckShards(const FolderReport& report, Findings& findings) {
  const std::string again = Cat("download it again into ", Quoted(report.folder));
  Told missing(findings, "model.shard-missing", "the index puts weights into it that a run needs", again);
  Told truncated(findings, "model.shard-truncated", "weights at its end are not there", again);
  Told damaged(findings, "model.shard-damaged", "its header does not say where the weights are", again);
  Told pointers(findings, "model.lfs-pointer", "git keeps large files elsewhere and left a note in their place",
                Cat("git lfs pull  (in ", Quoted(report.folder), ")"));
  int64_t vision = 0;
  for (const ShardReport& shard : report.shards) {
    if (shard.problem.empty()) continue;
    if (!shard.has_text)
      ++vision;
    else if (!shard.present)
      missing.Add(Cat(report.folder, "/", shard.name, ": missing (", shard.text_tensors, " tensors)"));
    else if (IsLfsPointer(shard.problem))
      pointers.Add(shard.problem);
    else if (shard.expected_bytes > shard.bytes)
      truncated.Add(shard.problem);
    else
      damaged.Add(shard.problem);
  }
  if (vision > 0)
    findings.Note("model.vision-shards", Cat(vision, " shards with vision weights only are missing or damaged"),
                  "they are not used");
}

// Problems that belong neither to a shard nor to the expert set.
void CheckRest(const FolderReport& report, Findings& findings) {
  std::set<std::string> known;
  for (const ShardReport& shard : report.shards) known.insert(shard.problem);
  if (report.expert_set) known.insert(report.expert_set->problem);
  Told config(findings, "model.config", "it says which model this is: nothing can be read without it",
              "download config.json again, or name another --model");
  Told index(findings, "model.index", "it says which shard holds which tensor",
             "download model.safetensors.index.json again, of the same revision as config.json");
  Told tensors(findings, "model.tensor-missing", "every tensor is needed for every answer",
               "download the shards again that should hold them");
  const std::string index_path = report.folder + "/model.safetensors.index.json";
  for (const std::string& problem : report.problems) {
    if (known.contains(problem)) continue;
    if (!report.spec)
      config.Add(problem);
    else if (problem.starts_with(index_path) || report.shards.empty())
      index.Add(problem);
    else
      tensors.Add(problem);
  }
}

}  // namespace

void CheckModel(const Subject& subject, Findings& findings) {
  if (!subject.has_model()) {
    findings.Note("model.none", "no model was named", "only the machine was looked at", "deltafin doctor --model DIR");
    return;
  }
  if (!subject.report) {
    // A folder that is not there was said with its drive.
    if (subject.host.Look(subject.options.model).kind == PathFacts::Kind::kFolder)
      findings.Fault("model.unreadable", subject.report_problem, "nothing can be read from it",
                     "name a folder that this user may read");
    return;
  }
  const FolderReport& report = *subject.report;
  CheckShards(report, findings);
  CheckRest(report, findings);
  if (!report.spec || findings.has_faults()) return;
  const int64_t there = report.text_tensors - report.tensors_missing;
  findings.Ok("model.complete", Cat(report.architecture, ", ", report.spec->layers.size(), " layers: ", there, " of ",
                                    report.text_tensors, " tensors in ", report.shards.size(), " shards, ",
                                    FormatBytes(report.dense_bytes + report.expert_bytes)));
}

}  // namespace deltafin
