#include "app/command_table.h"

#include <CLI/CLI.hpp>

#include "app/help_format.h"

namespace deltafin {
namespace {

// A value that is one of a few words is declared with them as its type: "bash|zsh|fish".
std::vector<std::string> Choices(const std::string& type) {
  std::vector<std::string> choices;
  if (type.find('|') == std::string::npos) return choices;
  for (size_t begin = 0; begin <= type.size();) {
    const size_t end = std::min(type.find('|', begin), type.size());
    choices.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

OptionRow Row(const CLI::Option& option) {
  OptionRow row;
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  row.positional = row.names.empty();
  if (row.positional) row.names.push_back(option.get_name(true));
  if (!row.positional && option.get_positional()) row.argument = option.get_name(true);
  row.help = option.get_description();
  row.required = option.get_required();
  row.engine = option.get_group().starts_with(kEngineGroup);
  if (ValueName(option).empty()) return row;
  row.value = ValueName(option);
  row.range = ValueRange(option);
  row.repeatable = option.get_expected_max() >= CLI::detail::expected_max_vector_size;
  const bool is_file =
      row.value == "FILE" || row.value == "F" || row.value.starts_with("F.") || row.value.ends_with(".json");
  if (!is_file) row.choices = Choices(row.value);
  row.kind = !row.choices.empty() ? ValueKind::kChoice
             : row.value == "DIR" ? ValueKind::kFolder
             : is_file            ? ValueKind::kFile
                                  : ValueKind::kOther;
  return row;
}

void AddRows(const CLI::App& app, const std::vector<std::string>& words, std::vector<CommandRow>* rows) {
  CommandRow row;
  row.words = words;
  row.summary = app.get_description();
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) row.options.push_back(Row(*option));
  const auto all = [](const CLI::App*) { return true; };
  const std::vector<const CLI::App*> commands = app.get_subcommands(all);
  for (const CLI::App* command : commands) row.subcommands.push_back(command->get_name());
  rows->push_back(std::move(row));
  for (const CLI::App* command : commands) {
    std::vector<std::string> deeper = words;
    deeper.push_back(command->get_name());
    AddRows(*command, deeper, rows);
  }
}

}  // namespace

std::vector<CommandRow> CommandTable(const CLI::App& root) {
  std::vector<CommandRow> rows;
  AddRows(root, {}, &rows);
  return rows;
}

}  // namespace deltafin
