// The program: finds the subcommand, runs it, turns its error into a line on stderr and an exit code.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "app/commands.h"
#include "app/exit_code.h"
#include "app/option_checks.h"
#include "app/terminal.h"
#include "app/version.h"

namespace deltafin {
namespace {

int Run(int argc, char** argv) {
  CLI::App root("Deltafin runs the complete Kimi K3 on one machine, streaming its experts from disk.", "deltafin");
  root.set_version_flag("--version", VersionText());
  root.require_subcommand(1);
  root.failure_message(CLI::FailureMessage::simple);
  const std::vector<Command> commands = {AddRun(root),     AddChat(root),       AddServe(root), AddLogits(root),
                                         AddInspect(root), AddSynth(root),      AddSetup(root), AddDrives(root),
                                         AddPack(root),    AddVerify(root),     AddPlan(root),  AddDoctor(root),
                                         AddBench(root),   AddCompletion(root), AddMan(root)};
  for (const Command& command : commands) {
    command.app->set_version_flag("--version", VersionText());
    RefuseEmptyValues(*command.app);
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = root.exit(e, std::cout, std::cerr);
    return code == 0 ? kExitDone : kExitUsage;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const Result<int> code = command.run();
    if (code) return *code;
    if (code.error().code() != ErrorCode::kCancelled)
      std::fprintf(stderr, "deltafin %s: %s\n", command.app->get_name().c_str(),
                   Printable(code.error().message()).c_str());
    return ToExitCode(code.error().code());
  }
  return kExitUsage;
}

}  // namespace
}  // namespace deltafin

int main(int argc, char** argv) {
  try {
    return deltafin::Run(argc, argv);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) {
      std::fprintf(stderr, "deltafin: internal error: %s\n", e.what());
      return deltafin::kExitIo;
    }
    std::fprintf(
        stderr,
        "deltafin: the system refused a thread or another resource: %s: use fewer --threads, or raise the limit "
        "(ulimit -u)\n",
        e.what());
    return deltafin::kExitResources;
  } catch (const std::bad_alloc&) {
    std::fputs("deltafin: the system gave no more memory: use a smaller --memory\n", stderr);
    return deltafin::kExitResources;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "deltafin: internal error: %s\n", e.what());
    return deltafin::kExitIo;
  }
}
