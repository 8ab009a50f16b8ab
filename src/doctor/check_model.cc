// config.json, index and shards: what inspect finds, by name.
#include <algorithm>
#include <set>

#include "base/units.h"
#include "doctor/checks.h"
#include "doctor/download.h"

namespace deltafin {
namespace {

constexpr size_t kMostTold = 20;            // of one kind
constexpr size_t kMostNamed = 5;            // in one finding
constexpr uint64_t kLeastWithHoles = kMiB;  // small files may lie inside the file system's own records

// Tells the first kMostTold of a kind, and how many more there were.
class Told {
 public:
  Told(Findings& findings, std::string name, std::string why)
      : findings_(findings), name_(std::move(name)), why_(std::move(why)) {}
  ~Told() {
    if (count_ > kMostTold) findings_.Fault(name_, Cat("and ", count_ - kMostTold, " more"), why_, last_);
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  void Add(const std::string& found, const Remedy& remedy) {
    last_ = remedy;
    if (++count_ <= kMostTold) findings_.Fault(name_, found, why_, remedy);
  }

 private:
  Findings& findings_;
  std::string name_, why_;
  Remedy last_;
  size_t count_ = 0;
};

bool IsLfsPointer(const std::string& problem) { return problem.find("git-lfs pointer") != std::string::npos; }

// One finding for all of them.
void TellMissing(const Subject& subject, const std::vector<const ShardReport*>& missing, Findings& findings) {
  if (missing.empty()) return;
  const FolderReport& report = *subject.report;
  std::string found = Cat(report.folder, "/", missing[0]->name, ": missing (", missing[0]->text_tensors, " tensors)");
  if (missing.size() > 1) {
    found = Cat(report.folder, ": ", missing.size(), " of ", report.shards.size(), " shards are missing:");
    for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i)
      found += Cat(i == 0 ? " " : ", ", missing[i]->name);
    if (missing.size() > kMostNamed) found += Cat(" and ", missing.size() - kMostNamed, " more");
  }
  findings.Fault("model.shard-missing", found, "the index puts weights there that a run needs", FetchMissing(subject));
}

void CheckShards(const Subject& subject, bool downloading, Findings& findings) {
  const FolderReport& report = *subject.report;
  std::vector<const ShardReport*> missing;
  Told truncated(findings, "model.shard-truncated", "weights at its end are not there");
  Told damaged(findings, "model.shard-damaged", "its header does not say where the weights are");
  Told pointers(findings, "model.lfs-pointer", "git keeps large files elsewhere and left a note in their place");
  int64_t vision = 0;
  for (const ShardReport& shard : report.shards) {
    if (shard.problem.empty()) continue;
    const Remedy again = FetchAgain(subject, report.folder + "/" + shard.name);
    if (!shard.has_text)
      ++vision;
    else if (!shard.present)
      missing.push_back(&shard);
    else if (IsLfsPointer(shard.problem))
      pointers.Add(shard.problem, ByCommand(Cat("git -C ", Quoted(report.folder), " lfs pull")));
    else if (shard.expected_bytes > shard.bytes)
      truncated.Add(shard.problem, again);
    else
      damaged.Add(shard.problem, again);
  }
  if (!downloading) TellMissing(subject, missing, findings);
  if (vision > 0 && !downloading)
    findings.Note("model.vision-shards", Cat(vision, " shards with vision weights only are missing or damaged"),
                  "they are not used");
}

// Files with holes: what an interrupted download or copy leaves where nothing was written.
void CheckHoles(const Subject& subject, Findings& findings) {
  const FolderReport& report = *subject.report;
  const Result<MountedDrive> drive = subject.host.DriveOf(NearestFolder(subject.host, report.folder));
  if (!drive) return;
  for (const char* compresses : {"btrfs", "zfs", "bcachefs", "f2fs", "ntfs3", "squashfs", "erofs"})
    if (drive->file_system == compresses) return;
  Told hollow(findings, "model.shard-hollow", "the rest was never written, and reads as zeros: wrong answers");
  for (const ShardReport& shard : report.shards) {
    if (!shard.present || !shard.problem.empty() || !shard.has_text) continue;
    const std::string path = report.folder + "/" + shard.name;  // not where a streamed folder keeps unfinished ones
    const PathFacts facts = subject.host.Look(path);
    if (facts.kind != PathFacts::Kind::kFile || facts.bytes < kLeastWithHoles) continue;
    if (facts.allocated_bytes < facts.bytes / 10 * 9)
      hollow.Add(Cat(path, ": only ", FormatBytes(facts.allocated_bytes), " of ", FormatBytes(facts.bytes),
                     " are on the drive"),
                 FetchAgain(subject, path));
  }
}

// Problems that belong neither to a shard nor to the expert set.
void CheckRest(const Subject& subject, Findings& findings) {
  const FolderReport& report = *subject.report;
  std::set<std::string> known;
  for (const ShardReport& shard : report.shards) known.insert(shard.problem);
  if (report.expert_set) known.insert(report.expert_set->problem);
  Told config(findings, "model.config", "it says which model this is: nothing can be read without it");
  Told index(findings, "model.index", "it says which shard holds which tensor");
  Told tensors(findings, "model.tensor-missing", "every tensor is needed for every answer");
  const std::string index_path = report.folder + "/model.safetensors.index.json";
  for (const std::string& problem : report.problems) {
    if (known.contains(problem)) continue;
    if (!report.spec)
      config.Add(problem, ByAdvice("name the folder of a Kimi K3 model with --model, or fetch its config.json again"));
    else if (problem.starts_with(index_path) || report.shards.empty())
      index.Add(problem, FetchAgain(subject, index_path));
    else
      tensors.Add(problem, FetchMissing(subject));
  }
}

void TellStreamed(const FolderReport& report, Findings& findings) {
  const StreamReport& stream = *report.stream;
  const auto experts = static_cast<uint64_t>(report.spec->num_moe_layers * report.spec->num_experts);
  findings.Note(
      "model.streamed",
      Cat(stream.experts, " of ", experts, " experts here, the rest is fetched from ", stream.repository, " as needed"),
      "the first tokens are as slow as the connection; `deltafin setup` without --dense-only brings the rest");
}

}  // namespace

void CheckModel(const Subject& subject, Findings& findings) {
  if (!subject.has_model()) {
    findings.Note("model.none", "no model was named", "only the machine was looked at",
                  ByAdvice("with a model: deltafin doctor --model DIR"));
    return;
  }
  if (!subject.report) {
    // A folder that is not there was said with its drive.
    if (subject.host.Look(subject.options.model).kind == PathFacts::Kind::kFolder)
      findings.Fault("model.unreadable", subject.report_problem, "nothing can be read from it",
                     ByAdvice("name a folder that this user may read"));
    return;
  }
  const FolderReport& report = *subject.report;
  const std::optional<std::string> download = UnfinishedDownload(subject);
  if (download) findings.Fault("setup.unfinished", *download, "a run needs all of them", FetchMissing(subject));
  CheckShards(subject, download.has_value(), findings);
  if (!download) CheckRest(subject, findings);
  CheckHoles(subject, findings);
  if (!report.spec || findings.has_faults()) return;
  if (report.stream) TellStreamed(report, findings);
  const int64_t there = report.text_tensors - report.tensors_missing;
  findings.Ok("model.complete", Cat(report.architecture, ", ", report.spec->layers.size(), " layers: ", there, " of ",
                                    report.text_tensors, " tensors in ", report.shards.size(), " shards, ",
                                    FormatBytes(report.dense_bytes + report.expert_bytes)));
}

}  // namespace deltafin
