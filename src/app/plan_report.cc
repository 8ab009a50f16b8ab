#include "app/plan_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "base/units.h"

namespace deltafin {
namespace {

using simulate::Totals;

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text,
                value >= 100   ? "%.0f"
                : value >= 10  ? "%.1f"
                : value >= 0.1 ? "%.2f"
                               : "%.4f",
                value);
  return text;
}

// Digits of a rate as the user wrote them, 13.6 and 7.1.
std::string Short(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string Percent(double part, bool sign) {
  char text[40];
  std::snprintf(text, sizeof text, sign ? "%+.0f %%" : "%.0f %%", 100 * part);
  return text;
}

// Of another engine on the reference machine: over 512 tokens, with drafts, and with a prompt of 512.
constexpr double kPublishedRate = 0.92, kPublishedDraftRate = 1.00, kPublishedFirstToken = 375;
constexpr size_t kNames = 13;  // columns of what stands before a text

// Words of `text` behind a name, in lines of at most `columns` where the words allow it.
std::string Entry(const std::string& name, const std::string& text, size_t columns, size_t indent = kNames) {
  std::string out = name;
  size_t at = name.size();
  if (at < indent) {
    out.append(indent - at, ' ');
    at = indent;
  }
  bool first = true;
  std::istringstream words(text);
  for (std::string word; words >> word; first = false) {
    if (!first && at + 1 + word.size() > columns) {
      out += '\n';
      out.append(indent, ' ');
      at = indent;
    } else if (!first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
  }
  out += '\n';
  return out;
}

std::string MemoryText(const PlanReport& report) {
  const simulate::MemorySplit& m = report.answer.memory;
  const simulate::ModelShape& shape = report.job->request.shape;
  std::string text =
      Cat(FormatBytes(m.dense), " of dense weights, ", m.packed ? "in 12 bits, " : "as released (BF16), ");
  text += m.resident_dense >= 1
              ? "all of them in memory"
              : Percent(m.resident_dense, false) + " of them in memory, the others read for every step";
  return Cat(text, "; ", m.slots, " of ", shape.expert_layers() * shape.experts, " experts (", FormatBytes(m.experts),
             "), ", FormatBytes(m.conversation), " for a conversation, prompts in chunks of ", m.chunk);
}

std::string TimeText(const PlanReport& report) {
  const Totals& t = report.answer.decode.totals;
  const auto share = [&](double seconds) { return Percent(seconds / t.seconds, false); };
  std::string text = Cat("waits for experts ", share(t.expert_wait));
  if (t.dense_bytes > 0) text += Cat(", for dense weights ", share(t.dense_wait));
  return Cat(text, "; computes dense parts ", share(t.dense_compute), ", experts ", share(t.expert_compute));
}

std::string ReadText(const PlanReport& report) {
  const simulate::DecodeRun& run = report.answer.decode;
  const Totals& t = run.totals;
  std::string text = FormatBytes(static_cast<uint64_t>(run.bytes_per_token()));
  if (t.dense_bytes > 0)
    text += Cat(" (", FormatBytes(static_cast<uint64_t>(t.dense_bytes / run.tokens)), " of them dense weights)");
  const double possible = report.job->request.machine.summed_rate() * t.seconds;
  return Cat(text, " a token, ", Percent((t.expert_bytes + t.dense_bytes) / possible, false),
             " of what all drives could deliver meanwhile; ",
             Percent(static_cast<double>(t.found) / static_cast<double>(std::max<uint64_t>(1, t.wanted)), false),
             " of the experts are there when their layer begins");
}

// A table, or where that is wider than the terminal two lines each.
std::string AlternativeLines(const std::vector<simulate::Alternative>& alternatives, size_t columns) {
  constexpr size_t kTable = 72;
  char line[160];
  std::snprintf(line, sizeof line, "\n%-38s %10s %7s %13s\n", "instead", "tokens/s", "gain", "first token");
  std::string text = columns < kTable ? "\ninstead\n" : line;
  for (const simulate::Alternative& a : alternatives) {
    const std::string rate = Number(a.tokens_per_second), gain = Percent(a.gain, true),
                      first = FormatSeconds(a.seconds_first_token);
    if (columns < kTable) {
      text += Entry("  ", a.change, columns, 2);
      text += Entry("    ", Cat(rate, " tokens/s, ", gain, ", first token ", first), columns, 4);
      continue;
    }
    std::snprintf(line, sizeof line, "%-38s %10s %7s %13s\n", a.change.c_str(), rate.c_str(), gain.c_str(),
                  first.c_str());
    text += line;
  }
  return text;
}

Json MachineJson(const simulate::Machine& machine) {
  Json out;
  out["drives"] = Json::array();
  for (const simulate::Drive& drive : machine.drives) {
    Json d;
    d["bytes_per_second"] = drive.bytes_per_second;
    d["first_byte_seconds"] = drive.first_byte_seconds;
    d["hub_bytes_per_second"] = drive.hub < 0 ? Json() : Json(machine.hub_rates[static_cast<size_t>(drive.hub)]);
    out["drives"].push_back(std::move(d));
  }
  out["ram_bytes"] = machine.ram_bytes;
  out["memory_bytes_per_second"] = machine.memory_bytes_per_second;
  out["flops_per_second"] = machine.flops_per_second;
  return out;
}

Json MemoryJson(const simulate::MemorySplit& m) {
  Json out;
  out["budget_bytes"] = m.budget;
  out["dense_bytes"] = m.dense;
  out["dense_packed"] = m.packed;
  out["dense_resident_part"] = m.resident_dense;
  out["expert_slots"] = m.slots;
  out["expert_bytes"] = m.experts;
  out["conversation_bytes"] = m.conversation;
  out["activation_bytes"] = m.activations;
  out["chunk"] = m.chunk;
  return out;
}

Json TokenJson(const simulate::DecodeRun& run) {
  const Totals& t = run.totals;
  Json out;
  out["seconds_expert_wait"] = t.expert_wait / run.tokens;
  out["seconds_dense_wait"] = t.dense_wait / run.tokens;
  out["seconds_dense_compute"] = t.dense_compute / run.tokens;
  out["seconds_expert_compute"] = t.expert_compute / run.tokens;
  out["expert_bytes"] = t.expert_bytes / run.tokens;
  out["dense_bytes"] = t.dense_bytes / run.tokens;
  out["experts_found_part"] = t.wanted > 0 ? static_cast<double>(t.found) / static_cast<double>(t.wanted) : 0;
  return out;
}

Json RowsJson(const std::vector<simulate::TargetRow>& rows) {
  Json out = Json::array();
  for (const simulate::TargetRow& row : rows) {
    Json r;
    r["id"] = row.id;
    r["what"] = row.what;
    r["unit"] = row.unit;
    r["low"] = row.low;
    r["high"] = row.high;
    r["simulated"] = row.simulated;
    r["difference"] = row.difference();
    r["allowed"] = row.allowed();
    r["seeds"] = row.seeds;
    r["least"] = row.seeds > 1 ? row.least : row.simulated;
    r["most"] = row.seeds > 1 ? row.most : row.simulated;
    r["set_by_it"] = row.role != simulate::RowRole::kPrediction;
    r["verdict"] = row.verdict();
    r["holds"] = row.holds();
    out.push_back(std::move(r));
  }
  return out;
}

std::string Verdict(const std::vector<simulate::TargetRow>& rows) {
  size_t predictions = 0, held = 0, set = 0;
  for (const simulate::TargetRow& row : rows) {
    const bool predicted = row.role == simulate::RowRole::kPrediction;
    predictions += predicted ? 1 : 0;
    held += predicted && row.holds() ? 1 : 0;
    set += predicted ? 0 : 1;
  }
  std::string text = Cat(held, " of ", predictions, " predictions hold");
  if (set > 0) text += Cat("; ", set, " rows set parameters or their own scenario, and predict nothing");
  return text + "\n";
}

}  // namespace

std::string MachineLine(const simulate::Machine& machine) {
  std::string rates, hubs;
  for (size_t d = 0; d < machine.drives.size(); ++d)
    rates += Cat(d == 0 ? "" : " + ", Short(machine.drives[d].bytes_per_second / 1e9));
  for (size_t h = 0; h < machine.hub_rates.size(); ++h) {
    std::string behind;
    for (const simulate::Drive& drive : machine.drives)
      if (drive.hub == static_cast<int>(h))
        behind += Cat(behind.empty() ? "" : " + ", Short(drive.bytes_per_second / 1e9));
    if (!behind.empty()) hubs += Cat(", ", behind, " behind a hub of ", Short(machine.hub_rates[h] / 1e9), " GB/s");
  }
  return Cat(machine.drives.size(), machine.drives.size() == 1 ? " drive (" : " drives (", rates, " GB/s)", hubs, ", ",
             FormatBytes(machine.ram_bytes), ", memory read at ", FormatRate(machine.memory_bytes_per_second), ", ",
             Short(machine.flops_per_second / 1e12), " TFLOP/s");
}

std::string ChangeLine(const PlanReport& report) {
  if (!report.base_answer) return "before the change the memory is too small for the model";
  const simulate::PlanAnswer& base = *report.base_answer;
  return Cat(Number(base.tokens_per_second), " tokens/s before, ", Number(report.answer.tokens_per_second),
             " after, gain ", Percent(report.answer.tokens_per_second / base.tokens_per_second - 1, true),
             "; first token after ", FormatSeconds(base.seconds_first_token), " before, ",
             FormatSeconds(report.answer.seconds_first_token), " after");
}

std::string PlanText(const PlanReport& report, size_t columns) {
  const simulate::PlanRequest& request = report.job->request;
  std::string text = "Simulated, not measured.\n";
  const auto add = [&](const char* name, const std::string& words) { text += Entry(name, words, columns); };
  if (report.job->base) add("before", MachineLine(*report.job->base));
  add("machine", Cat(MachineLine(request.machine), ", experts ", simulate::ToString(request.layout.kind)));
  add("memory", MemoryText(report));
  if (report.job->base) add("what if", ChangeLine(report));
  add("tokens/s", Number(report.answer.tokens_per_second));
  add("first token",
      Cat(FormatSeconds(report.answer.seconds_first_token), " after a prompt of ", request.prompt_tokens));
  add("limited by", report.answer.limited_by + ": twice as much of it would bring the most");
  add("a token", TimeText(report));
  add("reads", ReadText(report));
  if (report.answer.drafts > 0)
    add("drafts",
        Cat(Short(report.answer.drafts), " a step, each right with a chance of ", Short(request.draft_chance)));
  if (report.reference)
    add("published",
        Cat("on this machine another engine was measured at ", Number(kPublishedRate), " tokens/s (",
            Number(kPublishedDraftRate), " with drafts) in 512 tokens, first token of a prompt of 512 after ",
            Number(kPublishedFirstToken), " s"));
  text += AlternativeLines(report.alternatives, columns);
  text += "\nassumed\n";
  for (const std::string& line : report.job->assumptions) text += Entry("  -", line, columns, 4);
  return text;
}

std::string PlanJson(const PlanReport& report) {
  Json out;
  out["simulated"] = true;
  out["tokens_per_second"] = report.answer.tokens_per_second;
  out["seconds_first_token"] = report.answer.seconds_first_token;
  out["limited_by"] = report.answer.limited_by;
  out["alternatives"] = Json::array();
  for (const simulate::Alternative& a : report.alternatives) {
    Json entry;
    entry["change"] = a.change;
    entry["tokens_per_second"] = a.tokens_per_second;
    entry["seconds_first_token"] = a.seconds_first_token;
    entry["gain"] = a.gain;
    out["alternatives"].push_back(std::move(entry));
  }
  out["machine"] = MachineJson(report.job->request.machine);
  if (report.job->base) {
    Json base;
    base["machine"] = MachineJson(*report.job->base);
    if (report.base_answer) {
      base["tokens_per_second"] = report.base_answer->tokens_per_second;
      base["seconds_first_token"] = report.base_answer->seconds_first_token;
      out["gain"] = report.answer.tokens_per_second / report.base_answer->tokens_per_second - 1;
    }
    out["base"] = std::move(base);
  }
  if (report.reference) {
    out["published"]["tokens_per_second"] = kPublishedRate;
    out["published"]["tokens_per_second_drafts"] = kPublishedDraftRate;
    out["published"]["seconds_first_token"] = kPublishedFirstToken;
  }
  out["layout"] = simulate::ToString(report.job->request.layout.kind);
  out["memory"] = MemoryJson(report.answer.memory);
  out["token"] = TokenJson(report.answer.decode);
  out["prompt_tokens"] = report.job->request.prompt_tokens;
  out["drafts_per_step"] = report.answer.drafts;
  out["assumptions"] = report.job->assumptions;
  return DumpJson(out) + "\n";
}

std::string ComparisonText(const std::vector<simulate::TargetRow>& published,
                           const std::vector<simulate::TargetRow>& own) {
  return Cat("The published engine on the published machines:\n\n", simulate::ToMarkdown(published), "\n",
             Verdict(published), "\nThis engine on throttled drives:\n\n", simulate::ToMarkdown(own), "\n",
             Verdict(own));
}

std::string ComparisonJson(const std::vector<simulate::TargetRow>& published,
                           const std::vector<simulate::TargetRow>& own) {
  Json out;
  out["published"] = RowsJson(published);
  out["own"] = RowsJson(own);
  return DumpJson(out) + "\n";
}

}  // namespace deltafin
