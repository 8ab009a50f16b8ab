#include "app/help_format.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>

#include "app/terminal.h"
#include "app/wrapped_text.h"
#include "base/result.h"

namespace deltafin {
namespace {

constexpr size_t kNameColumn = 34;
constexpr int kNarrowest = 72;

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kNameColumn); }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = ValueName(*option), range = ValueRange(*option);
    std::string text = value.empty() ? "" : " " + value;
    if (!range.empty()) text += Cat(" (", range, ")");
    if (!value.empty() && !option->get_default_str().empty()) text += Cat(" [", option->get_default_str(), "]");
    if (!value.empty() && option->get_expected_max() >= CLI::detail::expected_max_vector_size) text += " ...";
    return text + (option->get_required() ? " REQUIRED" : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const auto width = static_cast<size_t>(std::max(Terminal::Width(), kNarrowest));
    return Wrapped(option->get_description(), width - kNameColumn);
  }
};

constexpr struct {
  const char* group;
  std::string_view options;  // each with a space on both sides
} kGroups[] = {
    {"memory and processor", " --memory --expert-cache --context --chunk --threads --pin --device --isa --kv-dtype "},
    {"reading weights",
     " --experts --dense --dense-mode --io --prefetch --warm-start --expert-trace --verify-reads --state-dir "
     "--no-state "},
    {"experts over the network",
     " --offline --connections --fetch-attempts --check-twice --keep-experts --token-file --proxy "},
    {"drafting", " --draft --draft-model --max-drafts "}};

// "1" of "1.000000".
std::string Short(std::string number) {
  if (number.find('.') == std::string::npos || number.find('e') != std::string::npos) return number;
  while (number.back() == '0') number.pop_back();
  if (number.back() == '.') number.pop_back();
  return number;
}

}  // namespace

void GroupOptions(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) GroupOptions(*command);
  const bool has_engine = app.get_option_no_throw("--expert-cache") != nullptr;
  if (!has_engine) return;
  for (CLI::Option* option : app.get_options())
    for (const auto& row : kGroups)
      if (!option->get_lnames().empty() &&
          row.options.find(Cat(" --", option->get_lnames().front(), " ")) != std::string_view::npos)
        option->group(Cat(kEngineGroup, row.group));
}

void UseHelpFormat(CLI::App& root) { root.formatter(std::make_shared<HelpFormat>()); }

std::string ValueName(const CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_expected_max() == 0) return "";
  std::string name = option.get_type_name();
  // Validators add themselves: "INT:INT in [1 - 64]"; "NAME:OPTIONS" is one of ours.
  for (const char* number : {"INT", "UINT", "FLOAT"})
    if (name == number || name.starts_with(Cat(number, ":"))) return "N";
  return name.substr(0, name.find(":INT in ["));
}

std::string ValueRange(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find(" in ["), dash = type.find(" - ", open), close = type.find(']', open);
  if (open == std::string::npos || dash == std::string::npos || close == std::string::npos || dash > close) return "";
  return Cat(Short(type.substr(open + 5, dash - open - 5)), " to ", Short(type.substr(dash + 3, close - dash - 3)));
}

}  // namespace deltafin
