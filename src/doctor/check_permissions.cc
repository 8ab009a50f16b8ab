// Whether this user may read the files, and whether others may change them.
#include <cstdio>

#include "doctor/checks.h"

namespace deltafin {
namespace {

constexpr uint32_t kOthersWrite = 0002;
// A damaged set of rights is told once a file; this many are enough to see what is wrong.
constexpr size_t kMostTold = 5;

std::string Rights(const PathFacts& facts) {
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", facts.mode);
  return Cat("owner ", facts.owner, ", mode ", mode);
}

}  // namespace

void CheckPermissions(const Subject& subject, Findings& findings) {
  const Host& host = subject.host;
  size_t unreadable = 0, writable = 0, looked_at = 0;
  for (const NamedFolder& folder : FoldersOf(subject)) {
    if (folder.role == "state" || host.Look(folder.path).kind != PathFacts::Kind::kFolder) continue;
    std::vector<std::string> paths = FilesOf(subject, folder);
    paths.insert(paths.begin(), folder.path);
    for (const std::string& path : paths) {
      ++looked_at;
      const PathFacts facts = host.Look(path);
      if (!host.MayRead(path) && ++unreadable <= kMostTold)
        findings.Fault(
            "permission.unreadable", Cat(path, " (", Rights(facts), ") cannot be read by user ", host.UserId()),
            "a run would end at its first read",
            ByCommand(Cat("sudo chmod ", facts.kind == PathFacts::Kind::kFolder ? "a+rx " : "a+r ", Quoted(path)),
                      "or run as its owner"));
      if ((facts.mode & kOthersWrite) != 0 && ++writable <= kMostTold)
        findings.Warning("permission.writable-by-others", Cat(path, " (", Rights(facts), ")"),
                         "any user of this machine can change the weights or files that a run trusts",
                         ByCommand(Cat("chmod o-w ", Quoted(path))));
    }
  }
  if (unreadable > kMostTold)
    findings.Fault("permission.unreadable", Cat(unreadable - kMostTold, " more files cannot be read"),
                   "a run would end at its first read", ByAdvice("as for those above"));
  if (writable > kMostTold)
    findings.Warning("permission.writable-by-others", Cat(writable - kMostTold, " more files"),
                     "any user of this machine can change them", ByAdvice("as for those above"));
  if (looked_at > 0 && unreadable == 0)
    findings.Ok("permission.readable", Cat(looked_at, " files and folders can be read by this user"));
}

}  // namespace deltafin
