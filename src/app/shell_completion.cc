#include "app/shell_completion.h"

#include <algorithm>

#include "base/result.h"

namespace deltafin {
namespace {

// "/bench/kernels"; "" for the program.
std::string Path(const CommandRow& command) {
  std::string path;
  for (const std::string& word : command.words) path += "/" + word;
  return path;
}

std::string Joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// `what` replaced by `with` in `text`.
std::string Replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// Inside single quotes, for bash and zsh.
std::string InQuotes(const std::string& text) { return Replaced(text, "'", "'\\''"); }

std::string AllPaths(std::span<const CommandRow> commands) {
  std::vector<std::string> paths;
  for (const CommandRow& command : commands)
    if (!command.words.empty()) paths.push_back(Path(command));
  return Joined(paths, "|");
}

std::vector<std::string> NamesOf(const CommandRow& command, ValueKind kind) {
  std::vector<std::string> names;
  for (const OptionRow& option : command.options)
    if (option.kind == kind && !option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

constexpr const char* kBashStart = R"(# bash completion for deltafin; written by `deltafin completion bash`
_deltafin() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path="" i
  local commands="" options="" folders="" files="" values="" words="" argument=""
  COMPREPLY=()
  if [[ $word == "=" ]]; then
    word=""
  elif [[ $previous == "=" ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path/${COMP_WORDS[i]}" in
)";

constexpr const char* kBashEnd = R"(  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  elif [[ " $folders " == *" $previous "* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$word")
  elif [[ " $files " == *" $previous "* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  elif [[ " $values " == *" $previous "* ]]; then
    return
  elif [[ $argument == folder && $word != -* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$word")
  elif [[ $argument == file && $word != -* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  elif [[ $word == -* || -z $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  fi
}
complete -F _deltafin deltafin
)";

std::string BashCommand(const CommandRow& command) {
  std::string out = Cat("    '", Path(command), "')\n");
  std::vector<std::string> options, commands = command.subcommands;
  for (const OptionRow& option : command.options) {
    if (option.positional || !option.argument.empty()) {
      if (option.kind == ValueKind::kFolder || option.kind == ValueKind::kFile)
        out += Cat("      argument=", option.kind == ValueKind::kFolder ? "folder" : "file", "\n");
    }
    if (!option.positional)
      options.insert(options.end(), option.names.begin(), option.names.end());
    else
      commands.insert(commands.end(), option.choices.begin(), option.choices.end());
  }
  const auto set = [&](const char* name, const std::vector<std::string>& words) {
    if (!words.empty()) out += Cat("      ", name, "='", Joined(words, " "), "'\n");
  };
  set("commands", commands);
  set("options", options);
  set("folders", NamesOf(command, ValueKind::kFolder));
  set("files", NamesOf(command, ValueKind::kFile));
  set("values", NamesOf(command, ValueKind::kOther));
  if (const std::vector<std::string> chosen = NamesOf(command, ValueKind::kChoice); !chosen.empty()) {
    out += "      case \"$previous\" in\n";
    for (const OptionRow& option : command.options)
      if (option.kind == ValueKind::kChoice && !option.positional)
        out += Cat("        ", Joined(option.names, "|"), ") words='", Joined(option.choices, " "), "' ;;\n");
    out += "      esac\n";
  }
  return out + "      ;;\n";
}

// A description inside the brackets of an _arguments specification.
std::string ZshText(const std::string& text) {
  std::string out;
  for (const char c : InQuotes(text)) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

// What completes a value; " ": nothing does.
std::string ZshValues(const OptionRow& option) {
  switch (option.kind) {
    case ValueKind::kFolder:
      return "_files -/";
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kChoice:
      return Cat("(", Joined(option.choices, " "), ")");
    case ValueKind::kNone:
    case ValueKind::kOther:
      return " ";
  }
  return " ";
}

std::string ZshAction(const OptionRow& option) {
  if (option.kind == ValueKind::kNone) return "";
  return Cat(":", ZshText(option.value.empty() ? "value" : option.value), ":", ZshValues(option));
}

std::string ZshCommand(const CommandRow& command, std::span<const CommandRow> all) {
  std::string out = Cat("    '", Path(command), "')\n");
  if (!command.subcommands.empty()) {
    out += "      commands=(\n";
    for (const CommandRow& other : all)
      if (other.words.size() == command.words.size() + 1 &&
          std::equal(command.words.begin(), command.words.end(), other.words.begin()))
        out += Cat("        '", other.words.back(), ":", Replaced(InQuotes(other.summary), ":", "\\:"), "'\n");
    out += "      )\n";
  }
  out += "      options=(\n";
  int argument = 0;
  for (const OptionRow& option : command.options) {
    if (option.positional || !option.argument.empty()) {
      const std::string place = option.repeatable ? "*" : std::to_string(++argument);
      const std::string name = option.positional ? option.names[0] : option.argument;
      out += Cat("        '", place, ":", ZshText(name), ":", ZshValues(option), "'\n");
    }
    if (option.positional) continue;
    for (const std::string& name : option.names)
      out += Cat("        '*", name, "[", ZshText(option.help), "]", ZshAction(option), "'\n");
  }
  return out + "      )\n      ;;\n";
}

constexpr const char* kZshStart = R"(#compdef deltafin
# zsh completion for deltafin; written by `deltafin completion zsh`
_deltafin() {
  local at="" word
  local -i taken=0 i
  local -a commands options
  for ((i = 2; i < CURRENT; i++)); do
    case "$at/$words[i]" in
)";

constexpr const char* kZshEnd = R"(  if (( $#commands )) && [[ $words[CURRENT] != -* ]]; then
    _describe command commands
    return
  fi
  if (( taken )); then
    shift $taken words
    (( CURRENT -= taken ))
  fi
  _arguments $options
}
_deltafin "$@"
)";

// Inside single quotes, for fish.
std::string FishText(const std::string& text) { return Replaced(Replaced(text, "\\", "\\\\"), "'", "\\'"); }

// Of the words before the cursor fish asks only whether they are there: `bench run` is not `run`.
std::string FishCondition(const CommandRow& command, std::span<const CommandRow> all) {
  if (command.words.empty()) return "__fish_use_subcommand";
  std::string condition;
  if (command.words.size() == 1)
    for (const CommandRow& other : all)
      if (other.words.size() == 2 && other.words[1] == command.words[0])
        condition += Cat("not __fish_seen_subcommand_from ", other.words[0]);
  for (const std::string& word : command.words)
    condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
  return condition;
}

std::string FishArgument(const OptionRow& option, const std::string& when) {
  const std::string start = Cat("complete -c deltafin", when), end = Cat(" -d '", FishText(option.help), "'\n");
  switch (option.kind) {
    case ValueKind::kFolder:
      return start + " -a '(__fish_complete_directories)'" + end;
    case ValueKind::kFile:
      return start + " -F" + end;
    case ValueKind::kChoice:
      return Cat(start, " -a '", Joined(option.choices, " "), "'", end);
    case ValueKind::kNone:
    case ValueKind::kOther:
      return "";
  }
  return "";
}

std::string FishOption(const OptionRow& option) {
  std::string out;
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  switch (option.kind) {
    case ValueKind::kNone:
      break;
    case ValueKind::kFolder:
      out += " -x -a '(__fish_complete_directories)'";
      break;
    case ValueKind::kFile:
      out += " -r -F";
      break;
    case ValueKind::kChoice:
      out += Cat(" -x -a '", Joined(option.choices, " "), "'");
      break;
    case ValueKind::kOther:
      out += " -x";
      break;
  }
  return out;
}

}  // namespace

std::string BashCompletion(std::span<const CommandRow> commands) {
  std::string out = kBashStart;
  out += Cat("      ", AllPaths(commands), ") path=$path/${COMP_WORDS[i]} ;;\n    esac\n  done\n  case \"$path\" in\n");
  for (const CommandRow& command : commands) out += BashCommand(command);
  return out + "  esac\n" + kBashEnd;
}

std::string ZshCompletion(std::span<const CommandRow> commands) {
  std::string out = kZshStart;
  out += Cat("      ", AllPaths(commands),
             ") at=$at/$words[i]; taken=$((i - 1)) ;;\n    esac\n  done\n  case \"$at\" in\n");
  for (const CommandRow& command : commands) out += ZshCommand(command, commands);
  return out + "  esac\n" + kZshEnd;
}

std::string FishCompletion(std::span<const CommandRow> commands) {
  std::string out = "# fish completion for deltafin; written by `deltafin completion fish`\ncomplete -c deltafin -f\n";
  for (const CommandRow& command : commands) {
    const std::string when = Cat(" -n '", FishCondition(command, commands), "'");
    for (const OptionRow& option : command.options) {
      if (option.positional || !option.argument.empty()) out += FishArgument(option, when);
      if (option.positional) continue;
      out += Cat("complete -c deltafin", when, FishOption(option), " -d '", FishText(option.help), "'\n");
    }
    if (command.words.empty()) continue;
    CommandRow parent = command;
    parent.words.pop_back();
    const std::string not_yet =
        parent.words.empty() ? "" : "; and not __fish_seen_subcommand_from " + command.words.back();
    out += Cat("complete -c deltafin -n '", FishCondition(parent, commands), not_yet, "' -a '", command.words.back(),
               "' -d '", FishText(command.summary), "'\n");
  }
  return out;
}

}  // namespace deltafin
