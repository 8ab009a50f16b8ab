#include "app/man_page.h"

#include "base/result.h"

namespace deltafin {
namespace {

// Text as troff prints it: nothing in it is a request, hyphens can be copied.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\n')
      out += ' ';
    else if ((c == '.' || c == '\'') && out.empty())
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

std::string Bold(const std::string& text) { return Cat("\\fB", Escaped(text), "\\fR"); }
std::string Italic(const std::string& text) { return Cat("\\fI", Escaped(text), "\\fR"); }

std::string FullName(const CommandRow& command) {
  std::string name = "deltafin";
  for (const std::string& word : command.words) name += " " + word;
  return name;
}

void AddOption(const OptionRow& option, std::string* out) {
  *out += ".TP\n";
  for (size_t i = 0; i < option.names.size(); ++i)
    *out += (i == 0 ? "" : ", ") + (option.positional ? Italic(option.names[i]) : Bold(option.names[i]));
  if (!option.value.empty() && !option.positional) *out += Cat(" ", Italic(option.value));
  *out += Cat("\n", Escaped(option.help), (option.required ? " (required)" : ""), "\n");
}

void AddCommand(const CommandRow& command, std::string* out) {
  if (command.words.empty()) return;
  *out += Cat(".SS \"", FullName(command), "\"\n", Escaped(command.summary), ".\n");
  for (const OptionRow& option : command.options) AddOption(option, out);
}

constexpr const char* kDescription = R"(.SH DESCRIPTION
Runs the complete Kimi K3 on one machine. Routed experts stay on disk and are read as the model asks for them; weights are
used as released. The answer, the ids or JSON lines go to standard output; plan, progress and warnings to standard error.
.PP
Sizes are written with a unit: KB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.
)";

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
.B 0
done; of \fBdoctor\fR: nothing but warnings
.TP
.B 2
a wrong option or argument
.TP
.B 3
model or data missing, damaged or not supported
.TP
.B 4
not enough memory, or a feature that this machine lacks
.TP
.B 5
a drive or file failed
.TP
.B 6
\fBverify\fR or \fBdoctor\fR found faults
.TP
.B 130
interrupted
.SH FILES
.TP
.I $XDG_STATE_HOME/deltafin\fR, else \fI~/.local/state/deltafin
What is kept between runs: header index, drive profiles, counts of use, sessions, kept prompts. \fB\-\-state\-dir\fR names
another folder, \fB\-\-no\-state\fR keeps nothing.
.TP
.I deltafin\-experts.json
In a model's folder: where \fBpack\fR put its experts.
.TP
.I share/deltafin/models
Beside the program's folder \fIbin\fR: the small models that come with it, k3\-nano and its drafter.
.SH ENVIRONMENT
.TP
.B XDG_STATE_HOME\fR, \fBHOME
Where the state folder is.
.TP
.B NO_COLOR
Not empty: no colours.
)";

}  // namespace

std::string ManPage(std::span<const CommandRow> commands, const std::string& version) {
  std::string out = Cat(".TH DELTAFIN 1 \"\" \"deltafin ", Escaped(version), "\" \"User Commands\"\n.nh\n.SH NAME\n");
  out += "deltafin \\- run Kimi K3 on one machine, streaming its experts from disk\n.SH SYNOPSIS\n";
  out += ".B deltafin\n.I COMMAND\n[\\fIoptions\\fR]\n";
  out += kDescription;
  for (const CommandRow& command : commands) {
    if (!command.words.empty()) continue;
    out += ".SH OPTIONS\n";
    for (const OptionRow& option : command.options) AddOption(option, &out);
  }
  out += ".SH COMMANDS\n";
  for (const CommandRow& command : commands) AddCommand(command, &out);
  out += kEnd;
  return out;
}

}  // namespace deltafin
