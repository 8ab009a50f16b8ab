#include "app/command_table.h"

#include <CLI/CLI.hpp>

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
  row.help = option.get_description();
  row.required = option.get_required();
  if (option.get_type_size() == 0 || option.get_expected_max() == 0) return row;
  const std::string type = option.get_type_name();
  row.value = type.substr(0, type.find(':'));
  row.choices = Choices(row.value);
  const bool is_file = row.value == "FILE" || row.value == "F" || row.value.starts_with("F.");
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
