// `deltafin help [COMMAND]`: the same as COMMAND --help.
#include "app/cmd_help.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/exit_code.h"
#include "app/terminal.h"
#include "app/unknown_word.h"

namespace deltafin {

Command AddHelp(CLI::App& root) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* app = root.add_subcommand("help", "Show the options of a command, as COMMAND --help does");
  app->add_option("command", *words, "A command, such as run, or bench run")->type_name("COMMAND");
  return {app, [words, &root]() -> Result<int> {
            const CLI::App* found = &root;
            std::string name = root.get_name();
            for (const std::string& word : *words) {
              const CLI::App* next = FindCommand(*found, word);
              if (next == nullptr) return Fail(ErrorCode::kInvalidArgument, NoSuchCommand(*found, word));
              name += " " + word;
              found = next;
            }
            Terminal terminal;
            // App::help() would be that of the command that was parsed: this one.
            terminal.Write(found->get_formatter()->make_help(found, name, CLI::AppFormatMode::Normal));
            DFIN_TRY_VOID(terminal.StdoutStatus());
            return kExitDone;
          }};
}

}  // namespace deltafin
