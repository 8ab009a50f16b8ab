#include "app/bench_arms.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/option_checks.h"
#include "bench/child_run.h"

namespace deltafin {
namespace {

// Set by the protocol, or of no use to a run that keeps nothing.
constexpr const char* kNotForArms[] = {"--model", "--state-dir",    "--no-state",
                                       "--quiet", "--expert-trace", "--warm-start"};

bool IsForArms(const std::string& name) {
  return std::find(std::begin(kNotForArms), std::end(kNotForArms), name) == std::end(kNotForArms);
}

std::vector<std::string> CommonArguments(const CLI::App& given) {
  CLI::App known;
  CommonOptions ignored;
  ignored.AddTo(known);
  std::vector<std::string> out;
  for (const CLI::Option* option : known.get_options()) {
    const std::string name = option->get_name();
    if (name != "--model" && !IsForArms(name)) continue;
    const CLI::Option* ours = given.get_option_no_throw(name);
    if (ours == nullptr || ours->count() == 0) continue;
    const bool is_flag = ours->get_type_size() == 0 || ours->get_expected_max() == 0;
    if (is_flag) out.push_back(name);
    for (const std::string& value : ours->results())
      if (!is_flag) out.push_back(name + "=" + value);
  }
  return out;
}

// What run would say to them.
Result<CommonOptions> Check(const BenchArm& arm, const std::vector<std::string>& common) {
  const auto refuse = [&](const std::string& what) {
    return Fail(ErrorCode::kInvalidArgument, "--arm ", arm.name, ": ", what);
  };
  for (const std::string& name : OptionNames(arm.arguments))
    if (!IsForArms(name)) return refuse(name + ": is not for a single arm");
  CLI::App app;
  CommonOptions options;
  options.AddTo(app);
  RefuseEmptyValues(app);
  std::vector<std::string> arguments = ArmArguments(common, arm);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    return refuse("--help: is no option to measure");
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  const Result<EngineOptions> engine = options.ToEngineOptions();
  if (!engine) return refuse(engine.error().message());
  return options;
}

}  // namespace

Result<std::vector<std::string>> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
      in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return Fail(ErrorCode::kInvalidArgument, "expected the quote to end: ", text);
  if (in_word) words.push_back(std::move(word));
  return words;
}

Result<BenchArms> ParseBenchArms(const CLI::App& given, const std::vector<std::string>& texts,
                                 const std::vector<std::string>& inexact) {
  BenchArms out;
  out.common = CommonArguments(given);
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    BenchArm arm{text.substr(0, colon), {}, false};
    if (arm.name.empty() || arm.name.find_first_of(" \t\n,|\"<>&") != std::string::npos)
      return Fail(ErrorCode::kInvalidArgument, "--arm ", text, ": expected NAME:OPTIONS with a name without blanks");
    if (colon != std::string::npos) {
      Result<std::vector<std::string>> words = SplitWords(text.substr(colon + 1));
      if (!words) return FailWith(std::move(words), "--arm " + arm.name);
      arm.arguments = std::move(*words);
    }
    out.arms.push_back(std::move(arm));
  }
  if (out.arms.empty()) out.arms.push_back({"default", {}, false});
  for (const std::string& name : inexact) {
    const auto arm = std::find_if(out.arms.begin(), out.arms.end(), [&](const BenchArm& a) { return a.name == name; });
    if (arm == out.arms.end())
      return Fail(ErrorCode::kInvalidArgument, "--inexact ", name, ": expected the name of an arm");
    arm->inexact = true;
  }
  for (const BenchArm& arm : out.arms) {
    DFIN_TRY(CommonOptions settings, Check(arm, out.common));
    out.settings.push_back(std::move(settings));
  }
  return out;
}

}  // namespace deltafin
