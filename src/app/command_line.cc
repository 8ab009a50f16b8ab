#include "app/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/bundled_model.h"
#include "app/choices.h"
#include "app/cmd_help.h"
#include "app/help_format.h"
#include "app/option_checks.h"
#include "app/version.h"

namespace deltafin {
namespace {

bool Named(const CLI::Option& option, const char* name) {
  const std::vector<std::string>& names = option.get_lnames();
  return std::find(names.begin(), names.end(), name) != names.end();
}

void PrepareOptions(CLI::App& app) {
  RefuseEmptyValues(app);
  for (CLI::Option* option : app.get_options())
    if ((Named(*option, "model") || Named(*option, "draft-model")) && option->get_expected_max() > 0)
      option->transform([](std::string name) { return ModelFolder(name); });
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) PrepareOptions(*command);
}

}  // namespace

std::vector<Command> AddCommands(CLI::App& root) {
  root.set_version_flag("--version", VersionText());
  root.require_subcommand(1);
  root.failure_message(CLI::FailureMessage::simple);
  UseHelpFormat(root);
  const std::vector<Command> commands = {AddRun(root),     AddChat(root),       AddServe(root), AddLogits(root),
                                         AddInspect(root), AddSynth(root),      AddSetup(root), AddDrives(root),
                                         AddPack(root),    AddVerify(root),     AddPlan(root),  AddDoctor(root),
                                         AddBench(root),   AddCompletion(root), AddMan(root),   AddHelp(root)};
  for (const Command& command : commands) {
    command.app->set_version_flag("--version", VersionText());
    PrepareOptions(*command.app);
  }
  DeclareChoices(root);
  GroupOptions(root);
  return commands;
}

}  // namespace deltafin
