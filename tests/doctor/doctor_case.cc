#include "doctor/doctor_case.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>
#include <span>

#include "app/command_line.h"
#include "app/command_table.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "support/test_data.h"

namespace deltafin::test {

namespace fs = std::filesystem;

DoctorOptions OptionsFor(const std::string& model) {
  static const std::vector<BackendFactory> backends = {{"cpu", CreateCpuBackend},
                                                       {"reference", CreateReferenceBackend}};
  DoctorOptions options;
  options.model = model;
  options.quick = true;
  options.backends = &backends;
  return options;
}

namespace {

// The words of a command line, as a shell would cut them.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'')
      quoted = !quoted;
    else if (c == ' ' && !quoted)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

// "" when `words` after "deltafin" are a command with options that it has, each with its value, and all that it needs.
std::string WrongWith(std::span<const std::string> words) {
  static CLI::App root("", "deltafin");
  static const std::vector<Command> commands = AddCommands(root);
  static const std::vector<CommandRow> table = CommandTable(root);
  std::vector<std::string> path;
  size_t at = 0;
  const auto find = [&] {
    return std::find_if(table.begin(), table.end(), [&](const CommandRow& row) { return row.words == path; });
  };
  for (; at < words.size() && words[at][0] != '-'; ++at) {
    path.push_back(words[at]);
    if (find() != table.end()) continue;
    path.pop_back();
    break;
  }
  const CommandRow& row = *find();
  if (path.empty() || !row.subcommands.empty()) return "no command";
  std::set<std::string> given;
  for (; at < words.size(); ++at) {
    if (words[at][0] != '-') {
      const bool takes = std::any_of(row.options.begin(), row.options.end(),
                                     [](const OptionRow& o) { return o.positional || o.names[0] == "--folder"; });
      if (!takes) return "no argument is expected: " + words[at];
      continue;
    }
    const auto option = std::find_if(row.options.begin(), row.options.end(), [&](const OptionRow& o) {
      return std::find(o.names.begin(), o.names.end(), words[at]) != o.names.end();
    });
    if (option == row.options.end()) return "no such option: " + words[at];
    given.insert(option->names[0]);
    if (option->kind != ValueKind::kNone && (++at == words.size() || words[at].empty() || words[at][0] == '-'))
      return option->names[0] + ": no value";
  }
  for (const OptionRow& option : row.options)
    if (option.required && !given.contains(option.names[0])) return option.names[0] + " is missing";
  return "";
}

// A command of ours that can be given as it stands, or one of the system's.
void ExpectRunnable(const Finding& finding) {
  static const std::set<std::string> system = {"sysctl", "tee",     "echo",   "chmod", "chown",
                                               "ulimit", "swapoff", "swapon", "rm",    "git"};
  std::string rest = finding.fix;
  while (!rest.empty()) {
    const size_t both = std::min(rest.find(" && "), rest.find(" | "));
    std::vector<std::string> words = Words(rest.substr(0, both));
    rest = both == std::string::npos ? "" : rest.substr(rest.find(' ', both + 1) + 1);
    if (words[0] == "sudo") words.erase(words.begin());
    if (words[0] == "deltafin")
      EXPECT_EQ(WrongWith(std::span(words).subspan(1)), "") << finding.name << ": " << finding.fix;
    else
      EXPECT_TRUE(system.contains(words[0])) << finding.name << ": " << finding.fix;
    for (const std::string& word : words)
      EXPECT_TRUE(word != "DIR" && word != "..." && word != "OWNER/NAME") << finding.name << ": " << finding.fix;
  }
}

}  // namespace

std::vector<Finding> Examine(const DoctorOptions& options, const Host& host) {
  Result<std::vector<Finding>> findings = RunDoctor(options, host);
  EXPECT_TRUE(findings) << (findings ? "" : findings.error().message());
  if (findings)
    for (const Finding& finding : *findings) ExpectRunnable(finding);
  return findings ? std::move(*findings) : std::vector<Finding>();
}

Finding Named(const std::vector<Finding>& findings, const std::string& name) {
  const auto it = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.name == name; });
  return it == findings.end() ? Finding() : *it;
}

std::string Problems(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings)
    if (f.state == FindingState::kWarning || f.state == FindingState::kFault)
      text += Cat(ToString(f.state), " ", f.name, ": ", f.found, "\n");
  return text;
}

void ExpectFinding(const std::vector<Finding>& findings, FindingState state, const std::string& name,
                   const std::string& text) {
  const auto matches = [&](const Finding& f) {
    return f.name == name && f.state == state && f.found.find(text) != std::string::npos;
  };
  const auto it = std::find_if(findings.begin(), findings.end(), matches);
  ASSERT_NE(it, findings.end()) << "no " << ToString(state) << " " << name << " with \"" << text << "\" among\n"
                                << Problems(findings);
  if (state == FindingState::kOk) return;
  EXPECT_NE(it->why, "") << name;
  EXPECT_TRUE(state == FindingState::kNote || !it->fix.empty() || !it->advice.empty()) << name;
}

void LinkNano(const std::string& folder) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(RepoPath("models/k3-nano"))) {
    const fs::path to = fs::path(folder) / entry.path().filename();
    if (entry.path().extension() == ".safetensors")
      fs::create_symlink(entry.path(), to);
    else
      fs::copy_file(entry.path(), to);
  }
}

}  // namespace deltafin::test
