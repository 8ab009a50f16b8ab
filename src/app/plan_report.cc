#include "app/plan_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

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

std::string MemoryLines(const PlanReport& report) {
  const simulate::MemorySplit& m = report.answer.memory;
  const simulate::ModelShape& shape = report.job->request.shape;
  const int64_t all = shape.expert_layers() * shape.experts;
  std::string text =
      Cat("memory       ", FormatBytes(m.dense), " of dense weights, ", m.packed ? "in 12 bits" : "as released (BF16)");
  text += m.resident_dense >= 1
              ? ", all of them in memory\n"
              : Cat(", ", Percent(m.resident_dense, false), " of them in memory, the others read for every step\n");
  text += Cat("             ", m.slots, " of ", all, " experts (", FormatBytes(m.experts), "), ",
              FormatBytes(m.conversation), " for a conversation, prompts in chunks of ", m.chunk, "\n");
  return text;
}

std::string TimeLines(const PlanReport& report) {
  const simulate::DecodeRun& run = report.answer.decode;
  const Totals& t = run.totals;
  const auto share = [&](double seconds) { return Percent(seconds / t.seconds, false); };
  std::string text = Cat("a token      waits for experts ", share(t.expert_wait));
  if (t.dense_bytes > 0) text += Cat(", for dense weights ", share(t.dense_wait));
  text += Cat("; computes dense parts ", share(t.dense_compute), ", experts ", share(t.expert_compute), "\n");
  const double possible = report.job->request.machine.summed_rate() * t.seconds;
  text +=
      Cat("             reads ", FormatBytes(static_cast<uint64_t>(run.bytes_per_token())), ", ",
          Percent((t.expert_bytes + t.dense_bytes) / possible, false), " of what all drives could deliver meanwhile; ",
          Percent(static_cast<double>(t.found) / static_cast<double>(std::max<uint64_t>(1, t.wanted)), false),
          " of the experts are there when their layer begins\n");
  if (report.answer.drafts > 0)
    text += Cat("drafts       ", Short(report.answer.drafts), " a step, each right with a chance of ",
                Short(report.job->request.draft_chance), "\n");
  return text;
}

std::string AlternativeLines(const std::vector<simulate::Alternative>& alternatives) {
  char line[160];
  std::snprintf(line, sizeof line, "\n%-38s %10s %7s %13s\n", "instead", "tokens/s", "gain", "first token");
  std::string text = line;
  for (const simulate::Alternative& a : alternatives) {
    std::snprintf(line, sizeof line, "%-38s %10s %7s %13s\n", a.change.c_str(), Number(a.tokens_per_second).c_str(),
                  Percent(a.gain, true).c_str(), FormatSeconds(a.seconds_first_token).c_str());
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
    r["set_by_it"] = row.is_set;
    r["holds"] = row.holds();
    out.push_back(std::move(r));
  }
  return out;
}

std::string Verdict(const std::vector<simulate::TargetRow>& rows) {
  const auto missed =
      std::count_if(rows.begin(), rows.end(), [](const simulate::TargetRow& row) { return !row.holds(); });
  return Cat(rows.size() - static_cast<size_t>(missed), " of ", rows.size(), " rows hold\n");
}

}  // namespace

std::string MachineLine(const simulate::Machine& machine) {
  std::string rates;
  for (size_t d = 0; d < machine.drives.size(); ++d)
    rates += Cat(d == 0 ? "" : " + ", Short(machine.drives[d].bytes_per_second / 1e9));
  return Cat(machine.drives.size(), machine.drives.size() == 1 ? " drive (" : " drives (", rates, " GB/s), ",
             FormatBytes(machine.ram_bytes), ", memory read at ", FormatRate(machine.memory_bytes_per_second), ", ",
             Short(machine.flops_per_second / 1e12), " TFLOP/s");
}

std::string PlanText(const PlanReport& report) {
  const simulate::PlanRequest& request = report.job->request;
  std::string text = "Simulated, not measured.\n";
  text +=
      Cat("machine      ", MachineLine(request.machine), ", experts ", simulate::ToString(request.layout.kind), "\n");
  text += MemoryLines(report);
  text += Cat("tokens/s     ", Number(report.answer.tokens_per_second), "\n");
  text += Cat("first token  ", FormatSeconds(report.answer.seconds_first_token), " after a prompt of ",
              request.prompt_tokens, "\n");
  text += Cat("limited by   ", report.answer.limited_by, ": twice as much of it would bring the most\n");
  text += TimeLines(report);
  if (report.reference)
    text +=
        "published    on this machine another engine was measured at 0.92 tokens/s (1.00 with drafts) in 512 tokens, "
        "first token of a prompt of 512 after 375 s\n";
  text += AlternativeLines(report.alternatives);
  text += "\nassumed\n";
  for (const std::string& line : report.job->assumptions) text += "  " + line + "\n";
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
