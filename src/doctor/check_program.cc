// What the program is made of.
#include "doctor/checks.h"

namespace deltafin {

void CheckProgram(const Subject& subject, Findings& findings) {
  std::string text;
  for (const std::string& version : subject.options.versions) text += (text.empty() ? "" : ", ") + version;
  if (!text.empty()) findings.Ok("program.versions", text);
}

}  // namespace deltafin
