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
  *out += Cat("\n", Escaped(option.help), (option.range.empty() ? "" : Cat(" (", Escaped(option.range), ")")),
              (option.required ? " (required)" : ""), "\n");
}

// "deltafin run --model DIR [options]".
std::string Usage(const CommandRow& command) {
  std::string usage = Bold(FullName(command));
  bool more = !command.subcommands.empty();
  std::string arguments;
  for (const OptionRow& option : command.options) {
    if (option.positional || !option.argument.empty()) {
      const std::string name = Italic(option.positional ? option.names[0] : option.argument);
      arguments += Cat(" ", option.required ? name : Cat("[", name, "]"), option.repeatable ? "..." : "");
    } else if (option.required) {
      usage += Cat(" ", Bold(option.names.back()), " ", Italic(option.value));
    } else {
      more = true;
    }
  }
  return Cat(usage, arguments, more ? " [\\fIoptions\\fR]" : "");
}

// Options that several commands share, told once.
bool IsShared(const OptionRow& option) { return option.engine; }

void AddEngineOptions(std::span<const CommandRow> commands, std::string* out) {
  *out += ".SH ENGINE OPTIONS\nOf each command that computes; the commands that take them refer to this section.\n";
  for (const CommandRow& command : commands) {
    if (command.words != std::vector<std::string>{"run"}) continue;
    for (const OptionRow& option : command.options)
      if (IsShared(option)) AddOption(option, out);
  }
}

void AddCommand(const CommandRow& command, std::string* out) {
  if (command.words.empty()) return;
  *out += Cat(".SS \"", FullName(command), "\"\n", Usage(command), "\n.PP\n", Escaped(command.summary), ".\n");
  bool shared = false;
  for (const OptionRow& option : command.options) {
    shared = shared || IsShared(option);
    if (!IsShared(option)) AddOption(option, out);
  }
  if (shared) *out += ".PP\nAlso the options of the section ENGINE OPTIONS.\n";
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
done; of \fBdoctor\fR: nothing worse than warnings
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
\fBverify\fR, \fBdoctor\fR or \fBsetup \-\-from\-cache\fR found faults; a text of \fBbench run\fR is not the expected one
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
.B HF_HUB_CACHE\fR, \fBHF_HOME\fR, \fBXDG_CACHE_HOME
Where \fBsetup \-\-from\-cache\fR looks for the hub's own cache, in this order; else in \fI~/.cache/huggingface/hub\fR.
.TP
.B https_proxy\fR, \fBhttp_proxy\fR, \fBall_proxy\fR, \fBno_proxy
Proxies for fetching, where \fB\-\-proxy\fR does not name one.
.TP
.B NO_COLOR
Not empty: no colours.
.TP
.B TERM
\fBdumb\fR: no colours either.
.SH EXAMPLES
.TP
.B deltafin run \-\-model k3\-nano \-\-chat \-\-prompt "What is the capital of France?"
The miniature model that comes with the program answers a question.
.TP
.B deltafin doctor
Whether this machine is fit for Kimi K3, and what is wrong with it.
.TP
.B deltafin drives && deltafin plan \-\-this\-machine
How fast Kimi K3 would be here, simulated.
.TP
.B deltafin setup \-\-repo OWNER/NAME \-\-to /mnt/k3
Brings a model here; the same command goes on after an interruption.
.TP
.B deltafin pack \-\-model /mnt/k3 \-\-to /mnt/a/k3 \-\-to /mnt/b/k3
Spreads its experts over two drives; \fBrun\fR finds them by itself.
.TP
.B deltafin serve \-\-model /mnt/k3
A server with OpenAI's and Anthropic's APIs, and a page, at http://127.0.0.1:8000/.
.TP
.B deltafin bench run \-\-model /mnt/k3 \-\-arm plain: \-\-arm off:"\-\-draft off" \-\-out results
Two ways of running it, compared by cold runs.
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
  AddEngineOptions(commands, &out);
  out += kEnd;
  return out;
}

}  // namespace deltafin
