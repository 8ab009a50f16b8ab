#include "app/doctor_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/terminal.h"

namespace deltafin {
namespace {

constexpr int kGroupWidth = 16;
constexpr int kIndent = 4;
constexpr int kNarrowest = 40;

class Writer {
 public:
  explicit Writer(const DoctorTextStyle& style) : style_(style) {}

  std::string Write(std::span<const Finding> findings) {
    std::vector<std::string> groups;
    for (const Finding& finding : findings)
      if (std::find(groups.begin(), groups.end(), finding.group) == groups.end()) groups.push_back(finding.group);
    for (const std::string& group : groups) {
      std::vector<Finding> members;
      std::copy_if(findings.begin(), findings.end(), std::back_inserter(members),
                   [&](const Finding& f) { return f.group == group; });
      Group(group, members);
    }
    Summary(CountFindings(findings));
    return std::move(text_);
  }

 private:
  static const char* Colour(FindingState state) {
    switch (state) {
      case FindingState::kOk:
        return "\033[32m";
      case FindingState::kNote:
        return "\033[36m";
      case FindingState::kWarning:
        return "\033[33m";
      case FindingState::kFault:
        return "\033[1;31m";
    }
    return "";
  }
  std::string Styled(const char* code, const std::string& text) const {
    return style_.colour ? code + text + "\033[0m" : text;
  }
  std::string State(FindingState state) const { return Styled(Colour(state), std::string(ToString(state))); }

  void Group(const std::string& group, const std::vector<Finding>& members) {
    const FindingCounts counts = CountFindings(members);
    std::string line =
        group + std::string(static_cast<size_t>(std::max<int>(1, kGroupWidth - static_cast<int>(group.size()))), ' ');
    std::string states;
    const auto add = [&](int count, FindingState state, const char* many) {
      if (count == 0) return;
      states += states.empty() ? "" : ", ";
      states += count == 1 && state != FindingState::kOk ? State(state) : Cat(count, " ") + Styled(Colour(state), many);
    };
    add(counts.faults, FindingState::kFault, "faults");
    add(counts.warnings, FindingState::kWarning, "warnings");
    add(counts.notes, FindingState::kNote, "notes");
    add(counts.ok, FindingState::kOk, "ok");
    text_ += Styled("\033[1m", line) + states + "\n";
    for (const Finding& finding : members)
      if (finding.state != FindingState::kOk || style_.verbose) One(finding);
  }

  void One(const Finding& finding) {
    const std::string head = std::string(ToString(finding.state)) + "  " + finding.name + ": ";
    const std::string shown = Cat(State(finding.state), "  ", Styled("\033[1m", finding.name), ": ");
    Wrapped(kIndent, head.size(), shown, finding.found);
    if (!finding.why.empty()) Wrapped(kIndent + 4, 5, "why: ", finding.why);
    if (!finding.fix.empty()) Wrapped(kIndent + 4, 5, "fix: ", finding.fix);
    if (!finding.advice.empty()) Wrapped(kIndent + 4, 5, finding.fix.empty() ? "do:  " : "     ", finding.advice);
  }

  // `label` takes `label_width` columns.
  void Wrapped(int indent, size_t label_width, const std::string& label, const std::string& raw) {
    const std::string text = Printable(raw);
    const auto margin = static_cast<size_t>(indent);
    text_ += std::string(margin, ' ') + label;
    const size_t width = static_cast<size_t>(std::max(style_.width, kNarrowest));
    size_t column = margin + label_width, at = 0;
    bool first = true;
    while (at < text.size()) {
      size_t end = text.find(' ', at);
      if (end == std::string::npos) end = text.size();
      const size_t word = end - at;
      if (!first && style_.width > 0 && column + 1 + word > width) {
        text_ += Cat("\n", std::string(margin + 5, ' '));
        column = margin + 5;
      } else if (!first) {
        text_ += ' ';
        ++column;
      }
      text_.append(text, at, word);
      column += word;
      first = false;
      at = end + 1;
    }
    text_ += "\n";
  }

  void Summary(const FindingCounts& counts) {
    const auto count = [](int n, const char* one) { return Cat(n, " ", one, n == 1 ? "" : "s"); };
    const FindingState worst = counts.faults > 0     ? FindingState::kFault
                               : counts.warnings > 0 ? FindingState::kWarning
                                                     : FindingState::kOk;
    const std::string text = Cat(count(counts.faults, "fault"), ", ", count(counts.warnings, "warning"), ", ",
                                 count(counts.notes, "note"), ", ", counts.ok, " ok");
    text_ += Cat("\n", Styled(Colour(worst), text), "\n");
  }

  const DoctorTextStyle& style_;
  std::string text_;
};

}  // namespace

FindingCounts CountFindings(std::span<const Finding> findings) {
  FindingCounts counts;
  for (const Finding& finding : findings) {
    counts.ok += finding.state == FindingState::kOk ? 1 : 0;
    counts.notes += finding.state == FindingState::kNote ? 1 : 0;
    counts.warnings += finding.state == FindingState::kWarning ? 1 : 0;
    counts.faults += finding.state == FindingState::kFault ? 1 : 0;
  }
  return counts;
}

Json DoctorJson(std::span<const Finding> findings) {
  const FindingCounts counts = CountFindings(findings);
  Json out;
  out["state"] = counts.faults > 0 ? "fault" : counts.warnings > 0 ? "warning" : "ok";
  out["faults"] = counts.faults;
  out["warnings"] = counts.warnings;
  out["notes"] = counts.notes;
  out["ok"] = counts.ok;
  out["findings"] = Json::array();
  for (const Finding& finding : findings) {
    Json one;
    one["state"] = ToString(finding.state);
    one["group"] = finding.group;
    one["name"] = finding.name;
    one["found"] = finding.found;
    one["why"] = finding.why;
    one["fix"] = finding.fix;
    one["advice"] = finding.advice;
    out["findings"].push_back(std::move(one));
  }
  return out;
}

std::string DoctorText(std::span<const Finding> findings, const DoctorTextStyle& style) {
  return Writer(style).Write(findings);
}

}  // namespace deltafin
