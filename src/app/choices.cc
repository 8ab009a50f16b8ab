#include "app/choices.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace deltafin {
namespace {

struct Row {
  std::string_view command, option;  // command "": every one
  std::span<const std::string_view> words;
};

constexpr std::string_view kIo[] = {"auto", "uring", "pread"};
constexpr std::string_view kIsa[] = {"auto", "avx2", "avx512", "avx512_vnni", "neon"};
constexpr std::string_view kDevice[] = {"auto", "cpu", "reference"};
constexpr std::string_view kDenseMode[] = {"auto", "resident", "stream"};
constexpr std::string_view kKvDtype[] = {"f32", "bf16"};
constexpr std::string_view kAutoOff[] = {"auto", "off"};
constexpr std::string_view kDraft[] = {"auto", "off", "ngram", "dspark", "qwen"};
constexpr std::string_view kEffort[] = {"none", "low", "high", "max"};
constexpr std::string_view kLayout[] = {"striped", "mirrored", "shards"};
constexpr std::string_view kCachePolicy[] = {"frequency", "layer-lru", "lru"};
constexpr std::string_view kPlanDense[] = {"packed", "bf16"};
constexpr std::string_view kShape[] = {"k3", "k3-slice", "nano"};  // or a file
constexpr std::string_view kRouting[] = {"skewed", "uniform"};
constexpr std::string_view kPrompts[] = {"essay", "code", "table", "long"};
constexpr std::string_view kShell[] = {"bash", "zsh", "fish"};

constexpr Row kRows[] = {{"", "--io", kIo},
                         {"", "--isa", kIsa},
                         {"", "--device", kDevice},
                         {"", "--dense-mode", kDenseMode},
                         {"", "--kv-dtype", kKvDtype},
                         {"", "--pin", kAutoOff},
                         {"", "--prefetch", kAutoOff},
                         {"", "--warm-start", kAutoOff},
                         {"", "--reasoning-effort", kEffort},
                         {"run", "--draft", kDraft},
                         {"chat", "--draft", kDraft},
                         {"serve", "--draft", kDraft},
                         {"logits", "--draft", kDraft},
                         {"decode", "--draft", kDraft},
                         {"draft", "--draft", kDraft},
                         {"plan", "--layout", kLayout},
                         {"plan", "--cache-policy", kCachePolicy},
                         {"plan", "--dense", kPlanDense},
                         {"synth", "--shape", kShape},
                         {"synth", "--routing", kRouting},
                         {"run", "--prompts", kPrompts},
                         {"completion", "shell", kShell}};

}  // namespace

std::span<const std::string_view> ChoicesOf(std::string_view command, std::string_view option) {
  for (const Row& row : kRows)
    if (row.option == option && (row.command.empty() || row.command == command)) return row.words;
  return {};
}

Status CheckChoice(std::string_view option, const std::string& value) {
  const std::span<const std::string_view> words = ChoicesOf("", option);
  if (words.empty() || std::find(words.begin(), words.end(), value) != words.end()) return {};
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += Cat(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return Fail(ErrorCode::kInvalidArgument, option, " ", value, ": expected ", text);
}

void DeclareChoices(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_expected_max() == 0) continue;  // a flag
    const std::string name =
        option->get_lnames().empty() ? option->get_name(true) : Cat("--", option->get_lnames().front());
    std::string type;
    for (const std::string_view word : ChoicesOf(app.get_name(), name)) type += Cat(type.empty() ? "" : "|", word);
    if (!type.empty()) option->type_name(type);
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) DeclareChoices(*command);
}

}  // namespace deltafin
