#include "app/unknown_word.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "app/help_format.h"
#include "base/result.h"

namespace deltafin {
namespace {

constexpr size_t kMostWrong = 3;     // letters, for a word to be taken for a mistyped other
constexpr size_t kLongestWord = 64;  // longer ones are nobody's slip

// Letters to insert, remove, change or swap with their neighbour.
size_t Distance(const std::string& a, const std::string& b) {
  const size_t rows = a.size() + 1, columns = b.size() + 1;
  std::vector<size_t> cost(rows * columns);
  const auto at = [&](size_t i, size_t j) -> size_t& { return cost[i * columns + j]; };
  for (size_t i = 0; i < rows; ++i) at(i, 0) = i;
  for (size_t j = 0; j < columns; ++j) at(0, j) = j;
  for (size_t i = 1; i < rows; ++i)
    for (size_t j = 1; j < columns; ++j) {
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  return cost.back();
}

std::string Nearest(const std::string& word, const std::vector<std::string>& words) {
  if (word.size() > kLongestWord) return "";
  std::string nearest;
  size_t best = std::min(kMostWrong, word.size() / 2) + 1;
  for (const std::string& other : words)
    if (const size_t distance = Distance(word, other); distance < best) {
      best = distance;
      nearest = other;
    }
  return nearest;
}

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string FullName(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* parent = app.get_parent(); parent != nullptr; parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  return name;
}

// Null: no such option.
const CLI::Option* FindOption(const CLI::App& app, const std::string& name, std::vector<std::string>* all) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& other : NamesOf(*option)) {
      if (other == name) return option;
      all->push_back(other);
    }
  return nullptr;
}

std::string NoSuchOption(const CLI::App& app, const std::string& name, const std::vector<std::string>& all) {
  const std::string nearest = Nearest(name, all);
  return Cat("no such option of ", FullName(app), ": ", name,
             nearest.empty() ? "" : Cat(": did you mean ", nearest, "?"));
}

}  // namespace

const CLI::App* FindCommand(const CLI::App& app, const std::string& word) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == word) return command;
  return nullptr;
}

std::string NoSuchCommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> all;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    all.push_back(command->get_name());
  const std::string nearest = Nearest(word, all);
  const std::string what =
      Cat("no such command", app.get_parent() == nullptr ? "" : " of " + FullName(app), ": ", word);
  return nearest.empty() ? what : Cat(what, ": did you mean ", nearest, "?");
}

std::string UnknownWord(const CLI::App& root, std::span<const std::string> words) {
  const CLI::App* app = &root;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return "";
    if (word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9')) {
      const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
      std::vector<std::string> all;
      const CLI::Option* option = FindOption(*app, name, &all);
      if (option == nullptr) return NoSuchOption(*app, name, all);
      if (!ValueName(*option).empty() && word.find('=') == std::string::npos) ++i;  // its value
      continue;
    }
    if (app->get_subcommands([](const CLI::App*) { return true; }).empty()) continue;  // an argument
    const CLI::App* next = FindCommand(*app, word);
    if (next == nullptr) return NoSuchCommand(*app, word);
    app = next;
  }
  return "";
}

}  // namespace deltafin
