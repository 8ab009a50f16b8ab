// `deltafin bench draft`: what drafting brings, by drafter, number of drafts and kind of text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "app/chat_setup.h"
#include "app/commands.h"
#include "app/draft_setup.h"
#include "app/drafts_report.h"
#include "app/engine_setup.h"
#include "app/exit_code.h"
#include "app/text_model.h"
#include "base/json.h"
#include "base/units.h"
#include "bench/draft_bench.h"
#include "text/chat_encoder.h"

namespace deltafin {
namespace {

struct DraftBenchCommand {
  CommonOptions common;
  std::vector<int64_t> widths = {1, 2, 3, 5, 7};
  int64_t new_tokens = 96;
  bool json = false;
};

// Texts that go on with what they were given, code, questions, and ids without any sense.
constexpr const char* kGrounded[] = {
    "The capital of Japan is Tokyo. The capital of France is Paris. The capital of Italy is Rome. The capital of Japan "
    "is "
    "Tokyo. The capital of France is Paris. The capital of Italy is Rome. The capital of Japan is",
    "apples: 3\npears: 5\nplums: 8\nnuts: 13\n\napples: 3\npears: 5\nplums: 8\nnuts: 13\n\napples: 3\npears:",
    "Name: Ada. City: London. Year: 1843.\nName: Ada. City: London. Year: 1843.\nName: Ada. City: London. Year: "
    "1843.\nName:"};
constexpr const char* kCode[] = {
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "for i in range(10):\n    print(i)\n\nfor j in range(20):\n    print(j)\n\nfor k in range(30):\n",
    "int main() {\n  int sum = 0;\n  for (int i = 0; i < 10; ++i) {\n    sum += i;\n  }\n"};
constexpr const char* kChat[] = {"What is the capital of France?", "Tell me a short story about a dog.",
                                 "What is 12 + 30?"};
constexpr int kRandomPrompts = 3, kRandomTokens = 48;

Result<std::vector<DraftBenchTexts>> MakeTexts(const Tokenizer& tokenizer) {
  std::vector<DraftBenchTexts> out;
  const auto raw = [&](const char* kind, std::span<const char* const> texts) {
    out.push_back({kind, {}});
    for (const char* text : texts) out.back().prompts.push_back(tokenizer.EncodeRaw(text));
  };
  raw("grounded", kGrounded);
  raw("code", kCode);
  out.push_back({"chat", {}});
  DFIN_TRY(const ChatOptions options, ChatOptionsFor("none"));
  for (const char* text : kChat) {
    DFIN_TRY(const ChatPrompt prompt, RenderChat({UserMessage(text)}, options));
    DFIN_TRY(std::vector<TokenId> ids, EncodeSegments(tokenizer, prompt.segments));
    out.back().prompts.push_back(std::move(ids));
  }
  out.push_back({"random", {}, /*ends=*/false});  // the model soon ends what makes no sense
  std::mt19937 random(1);
  for (int i = 0; i < kRandomPrompts; ++i) {
    std::vector<TokenId> ids(kRandomTokens);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.base()));
    out.back().prompts.push_back(std::move(ids));
  }
  return out;
}

std::string WidthText(const DraftBenchRow& row) {
  return row.drafts == DraftBenchRow::kAuto ? "auto" : std::to_string(row.drafts);
}

// Drafted tokens that were checked, and those of them that were right, of all drafters.
std::pair<uint64_t, uint64_t> Tried(const DraftBenchRow& row) {
  uint64_t drafted = 0, right = 0;
  for (const DraftReport::OfDrafter& d : row.report.drafters) {
    drafted += d.tried();
    right += d.right();
  }
  return {drafted, right};
}

// Of each number of rows that a step had: the tokens that such steps brought, and those at which they would have paid,
// by the time and the bytes measured and by K3's logs; proposals are not counted.
Json BreakEvens(const DraftBenchRow& row, const DraftBenchRow& plain) {
  Json out = Json::array();
  for (size_t rows = 1; rows < row.report.by_rows.size(); ++rows) {
    const DraftReport::Steps& s = row.report.by_rows[rows];
    if (s.steps == 0) continue;
    const auto steps = static_cast<double>(s.steps);
    Json one = {{"rows", rows},
                {"steps", s.steps},
                {"tokens_per_step", static_cast<double>(s.tokens) / steps},
                {"break_even", s.seconds / steps / plain.seconds_per_token()},
                {"break_even_at_k3_costs", DraftBenchRow::UsualCost(static_cast<int64_t>(rows))}};
    if (plain.bytes_per_token() > 0)
      one["break_even_by_bytes"] = static_cast<double>(s.payload_bytes) / steps / plain.bytes_per_token();
    out.push_back(std::move(one));
  }
  return out;
}

// What the steps, those of the prompt too, wanted of each layer, and where it came from.
Json ExpertFigures(const EngineCounters& used) {
  return {{"wanted", used.experts_distinct},
          {"held", used.cache_hits},
          {"record_bytes", used.record_bytes},
          {"bytes_demand", used.expert_bytes_demand},
          {"bytes_prefetch_useful", used.expert_bytes_prefetch_useful},
          {"bytes_prefetch_wasted", used.expert_bytes_prefetch_wasted}};
}

Json ToJson(const std::string& engine, const std::vector<DraftBenchRow>& rows) {
  Json out;
  out["engine"] = engine;
  out["results"] = Json::array();
  const DraftBenchRow* plain = nullptr;  // of the kind: it comes first
  for (const DraftBenchRow& row : rows) {
    if (row.drafter.empty()) plain = &row;
    const auto [drafted, right] = Tried(row);
    Json result;
    result["text"] = row.kind;
    result["drafter"] = row.drafter.empty() ? "off" : row.drafter;
    result["drafts"] = WidthText(row);
    result["tokens"] = row.tokens;
    result["tokens_per_step"] = row.tokens_per_step();
    result["acceptance"] = drafted == 0 ? 0.0 : static_cast<double>(right) / static_cast<double>(drafted);
    result["seconds_per_token"] = row.seconds_per_token();
    result["seconds_drafting"] = row.seconds_drafting();
    result["payload_bytes_per_token"] = row.bytes_per_token();
    result["speed_up"] = plain->seconds_per_token() / row.seconds_per_token();
    result["speed_up_at_usual_costs"] = row.usual_speed_up();
    result["break_even"] = row.break_even(*plain);
    result["break_even_at_k3_costs"] = row.usual_break_even();
    result["break_evens"] = BreakEvens(row, *plain);
    result["experts"] = ExpertFigures(row.used);
    result["details"] = DraftFigures(row.report);
    out["results"].push_back(std::move(result));
  }
  return out;
}

std::string ToText(const std::string& engine, const std::vector<DraftBenchRow>& rows) {
  std::string text =
      engine +
      "\ntext      drafter drafts  right        tokens/step  to pay  at K3's   ms/token   payload/token  "
      "speed-up\n";
  const DraftBenchRow* plain = nullptr;
  for (const DraftBenchRow& row : rows) {
    if (row.drafter.empty()) plain = &row;
    const auto [drafted, right] = Tried(row);
    const std::string of = Cat(right, "/", drafted);
    char line[200];
    std::snprintf(line, sizeof line, "%-9s %-7s %-6s  %-12s %-12.2f %-7.2f %-9.2f %-9.3f  %-13s  %.2f\n",
                  row.kind.c_str(), row.drafter.empty() ? "off" : row.drafter.c_str(), WidthText(row).c_str(),
                  of.c_str(), row.tokens_per_step(), row.break_even(*plain), row.usual_break_even(),
                  row.seconds_per_token() * 1e3, FormatBytes(static_cast<uint64_t>(row.bytes_per_token())).c_str(),
                  plain->seconds_per_token() / row.seconds_per_token());
    text += line;
  }
  return text;
}

Result<int> RunDraftBench(const DraftBenchCommand& o) {
  if (o.common.draft == "off")
    return Fail(ErrorCode::kInvalidArgument, "--draft off: there is nothing to measure then");
  EngineSetup setup;
  DFIN_TRY(const TextModel text, LoadTextModel(o.common.model));
  DFIN_TRY(const DraftBridge draft_bridge, LoadDraftBridge(o.common, text.tokenizer, /*raw=*/true));
  DFIN_TRY_VOID(setup.Open(
      o.common,
      {.tokenizer_bytes = text.bytes, .usage_counts = false, .generates = true, .draft_bridge = draft_bridge}));
  setup.StopProgress();
  DraftBenchOptions options;
  DFIN_TRY(options.texts, MakeTexts(*text.tokenizer));
  options.widths = o.widths;
  options.new_tokens = o.new_tokens;
  options.stop_tokens = StopTokens(text.tokenizer.get(), setup.engine->spec());
  options.first_special = text.tokenizer->base();
  options.usable_vocab = text.tokenizer->token_count();
  options.bridge = draft_bridge.bridge;
  options.cancel = setup.interrupt.token();
  const bool show = !o.common.quiet && setup.terminal.stderr_is_terminal();
  if (show) options.progress = [&](const std::string& what) { setup.terminal.ShowStatus(what); };
  const Result<std::vector<DraftBenchRow>> rows = BenchDrafts(*setup.engine, setup.monitor, options);
  if (show) setup.terminal.ClearStatus();
  if (!rows) return Failure(rows.error());
  const std::string engine = setup.engine->Describe();
  setup.terminal.Write(o.json ? DumpJson(ToJson(engine, *rows)) + "\n" : ToText(engine, *rows));
  DFIN_TRY_VOID(setup.terminal.StdoutStatus());
  return kExitDone;
}

}  // namespace

Command AddBenchDraft(CLI::App& bench) {
  auto o = std::make_shared<DraftBenchCommand>();
  CLI::App* app = bench.add_subcommand("draft", "Drafting by drafter, number of drafts and kind of text");
  o->common.AddTo(*app);
  app->add_option("--drafts", o->widths, "Numbers of drafts that are measured")
      ->delimiter(',')
      ->check(CLI::Range(1, static_cast<int>(kMostDrafts)))
      ->capture_default_str();
  app->add_option("--new", o->new_tokens, "Tokens of an answer")->check(CLI::Range(2, 1 << 20))->capture_default_str();
  app->add_flag("--json", o->json, "One JSON object on stdout");
  return {app, [o] { return RunDraftBench(*o); }};
}

}  // namespace deltafin
