// The files that turn text into ids and back.
#include "doctor/checks.h"
#include "text/tokenizer.h"

namespace deltafin {

void CheckTokenizer(const Subject& subject, Findings& findings) {
  if (!subject.report) return;
  const FolderReport& report = *subject.report;
  for (const FileReport& file : report.tokenizer_files)
    if (!file.present && file.name == "generation_config.json")
      findings.Note("tokenizer.no-generation-config", Cat(report.folder, "/", file.name, ": missing"),
                    "chat and serve then take temperature 1 and top-p 0.95");
    else if (!file.present)
      findings.Fault("tokenizer.missing", Cat(report.folder, "/", file.name, ": missing"),
                     "without it only token ids work: no chat, no server, no text prompts",
                     Cat("download it into ", Quoted(report.folder)));
  if (findings.has_faults()) return;
  const Result<Tokenizer> tokenizer = Tokenizer::Load(report.folder);
  if (tokenizer)
    findings.Ok("tokenizer.loads", "tokenizer files are complete");
  else
    findings.Fault("tokenizer.damaged", tokenizer.error().message(), "text cannot be turned into ids",
                   "download the tokenizer files again, of the same revision as config.json");
}

}  // namespace deltafin
