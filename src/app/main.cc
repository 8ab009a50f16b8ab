// The program: finds the subcommand, runs it, turns its error into a line on stderr and an exit code.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "app/command_line.h"
#include "app/exit_code.h"
#include "app/terminal.h"
#include "app/unknown_word.h"

namespace deltafin {
namespace {

int Run(int argc, char** argv) {
  CLI::App root("Deltafin runs the complete Kimi K3 on one machine, streaming its experts from disk.", "deltafin");
  const std::vector<Command> commands = AddCommands(root);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return root.exit(e, std::cout, std::cerr);
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (const std::string unknown = UnknownWord(root, words); !unknown.empty())
      std::fprintf(stderr, "deltafin: %s\n`deltafin help` lists the commands, `deltafin help COMMAND` its options.\n",
                   Printable(unknown).c_str());
    else
      root.exit(e, std::cout, std::cerr);
    return kExitUsage;
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
    // What std::thread throws; other refusals of the system have nothing to do with threads.
    const bool thread = e.code() == std::errc::resource_unavailable_try_again;
    std::fprintf(stderr, "deltafin: the system refused %s%s\n", thread ? "a thread: " : "", e.what());
    if (thread) std::fputs("deltafin: use fewer --threads, or raise the limit (ulimit -u)\n", stderr);
    return thread ? deltafin::kExitResources : deltafin::kExitIo;
  } catch (const std::bad_alloc&) {
    std::fputs("deltafin: the system gave no more memory: use a smaller --memory\n", stderr);
    return deltafin::kExitResources;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "deltafin: internal error: %s\n", e.what());
    return deltafin::kExitIo;
  }
}
