// `deltafin bench compare`: two results of bench run beside each other.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cmd_bench_run.h"
#include "app/exit_code.h"
#include "app/option_checks.h"
#include "bench/compare.h"

namespace deltafin {
namespace {

struct CompareOptions {
  std::string a, b, arm_a, arm_b;
  bool json = false;
};

Result<int> RunCompare(const CompareOptions& o) {
  DFIN_TRY(const BenchFile a, ReadBenchFile(o.a));
  DFIN_TRY(const BenchFile b, ReadBenchFile(o.b));
  DFIN_TRY(const Comparison comparison, CompareResults(a, b, o.arm_a, o.arm_b));
  const std::string text = o.json ? DumpJson(ComparisonToJson(comparison)) + "\n" : ComparisonMarkdown(comparison);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Fail(ErrorCode::kIo, "stdout: the comparison could not be written: ", std::strerror(errno));
  return kExitDone;
}

}  // namespace

Command AddBenchCompare(CLI::App& bench) {
  auto o = std::make_shared<CompareOptions>();
  CLI::App* app =
      bench.add_subcommand("compare", "Two results of bench run: medians, spread and ratio of the same prompts");
  app->add_option("A", o->a, "Result of bench run: bench.json, or the folder it is in")
      ->required()
      ->type_name("A.json");
  app->add_option("B", o->b, "The other one; the same file to compare two of its arms round by round")
      ->required()
      ->type_name("B.json");
  app->add_option("--arm-a", o->arm_a, "Arm of A (needed if there are several)")->type_name("NAME");
  app->add_option("--arm-b", o->arm_b, "Arm of B (needed if there are several)")->type_name("NAME");
  app->add_flag("--json", o->json, "One JSON object on stdout instead of a table in Markdown");
  RefuseEmptyValues(*app);
  return {app, [o] { return RunCompare(*o); }};
}

}  // namespace deltafin
