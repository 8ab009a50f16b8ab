// `deltafin completion SHELL` and `deltafin man`: what shells and man need to know, written from the options
// themselves.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "app/choices.h"
#include "app/commands.h"
#include "app/exit_code.h"
#include "app/man_page.h"
#include "app/shell_completion.h"
#include "app/version.h"

namespace deltafin {
namespace {

Result<int> Print(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0;
  if (std::fflush(stdout) == 0 && written && std::ferror(stdout) == 0) return kExitDone;
  return Fail(ErrorCode::kIo, "stdout: cannot be written: ", std::strerror(errno));
}

}  // namespace

Command AddCompletion(CLI::App& root) {
  auto shell = std::make_shared<std::string>();
  CLI::App* app =
      root.add_subcommand("completion", "Print the script that makes a shell complete commands and options");
  app->add_option("shell", *shell, "Which shell: bash, zsh or fish")->required()->check([](const std::string& name) {
    const std::span<const std::string_view> shells = ChoicesOf("completion", "shell");
    return std::find(shells.begin(), shells.end(), name) != shells.end() ? ""
                                                                         : "expected bash, zsh or fish, got " + name;
  });
  return {app, [shell, &root]() -> Result<int> {
            const std::vector<CommandRow> table = CommandTable(root);
            return Print(*shell == "bash"  ? BashCompletion(table)
                         : *shell == "zsh" ? ZshCompletion(table)
                                           : FishCompletion(table));
          }};
}

Command AddMan(CLI::App& root) {
  CLI::App* app = root.add_subcommand("man", "Print the manual page, for man -l -");
  return {app, [&root]() -> Result<int> { return Print(ManPage(CommandTable(root), ProgramVersion())); }};
}

}  // namespace deltafin
