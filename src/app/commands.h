// commands.h: the subcommands. Each adds itself to the command line and returns what runs when it was chosen.
//
// A command's function returns the exit code (exit_code.h); an Error becomes one line on stderr in main.cc.
#pragma once

#include <functional>

#include "base/result.h"

namespace CLI {
class App;
}

namespace deltafin {

struct Command {
  CLI::App* app = nullptr;
  std::function<Result<int>()> run;
};

Command AddRun(CLI::App& root);
Command AddChat(CLI::App& root);
Command AddServe(CLI::App& root);
Command AddLogits(CLI::App& root);
Command AddInspect(CLI::App& root);
Command AddSynth(CLI::App& root);
Command AddDrives(CLI::App& root);
Command AddPack(CLI::App& root);
Command AddVerify(CLI::App& root);
Command AddDoctor(CLI::App& root);
Command AddSetup(CLI::App& root);
Command AddPlan(CLI::App& root);
Command AddBench(CLI::App& root);
Command AddCompletion(CLI::App& root);
Command AddMan(CLI::App& root);
Command AddBenchDecode(CLI::App& bench);  // these three: commands of bench
Command AddBenchContext(CLI::App& bench);
Command AddBenchDraft(CLI::App& bench);

}  // namespace deltafin
