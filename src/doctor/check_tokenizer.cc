// The files that turn text into ids and back.
#include "doctor/checks.h"
#include "doctor/download.h"
#include "text/tokenizer.h"

namespace deltafin {

void CheckTokenizer(const Subject& subject, Findings& findings) {
  if (!subject.report || UnfinishedDownload(subject)) return;  // said with the model
  const FolderReport& report = *subject.report;
  for (const FileReport& file : report.tokenizer_files) {
    const std::string path = report.folder + "/" + file.name;
    if (!file.present && subject.host.Look(path).kind == PathFacts::Kind::kOther) {
      findings.Fault("tokenizer.not-a-file", Cat(path, ": expected a regular file, got a pipe, device or socket"),
                     "a run does not read from it", FetchAgain(subject, path));
      continue;
    }
    if (!file.present && file.name == "generation_config.json")
      findings.Note("tokenizer.no-generation-config", Cat(report.folder, "/", file.name, ": missing"),
                    "chat and serve then take temperature 1 and top-p 0.95");
    else if (!file.present)
      findings.Fault("tokenizer.missing", Cat(report.folder, "/", file.name, ": missing"),
                     "without it only token ids work: no chat, no server, no text prompts", FetchMissing(subject));
  }
  if (findings.has_faults()) return;
  const Result<Tokenizer> tokenizer = Tokenizer::Load(report.folder);
  if (tokenizer)
    findings.Ok("tokenizer.loads", "tokenizer files are complete");
  else
    findings.Fault("tokenizer.damaged", tokenizer.error().message(), "text cannot be turned into ids",
                   FetchAgain(subject, report.folder + "/tiktoken.model"));
}

}  // namespace deltafin
