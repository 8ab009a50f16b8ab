// `deltafin run`: one prompt in, one answer out.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/answer_stream.h"
#include "app/chat_setup.h"
#include "app/commands.h"
#include "app/conversation.h"
#include "app/draft_setup.h"
#include "app/engine_setup.h"
#include "app/exit_code.h"
#include "app/kept_turn.h"
#include "app/option_checks.h"
#include "app/run_report.h"
#include "app/sampling_options.h"
#include "app/text_model.h"
#include "base/json.h"
#include "base/units.h"
#include "bench/timed_backend.h"
#include "text/chat_encoder.h"

namespace deltafin {
namespace {

// No context holds more: a token stands for 7 bytes of ordinary text.
constexpr uint64_t kMaxPromptBytes = uint64_t{16} << 20;

struct RunOptions {
  CommonOptions common;
  SamplingOptions sampling;
  std::string prompt, prompt_file, prompt_ids, system, reasoning_effort = "max";
  bool has_prompt = false, chat = false, ids = false, json = false, stats = false, watch = false;
  bool ignore_end = false, time_operations = false;
  int64_t max_new = 0;
  std::vector<std::string> stops;
  std::string session;
};

// What is to be fed, and how the answer is to be read.
struct Prompt {
  std::vector<TokenId> ids;
  TextModel text;                            // empty when only ids are spoken
  std::optional<AnswerStream> stream;        // empty with --ids and without a tokenizer
  std::optional<Conversation> conversation;  // with --chat and --session: the first turn
  ResponseChannel continues_in = ResponseChannel::kAnswer;
};

Result<std::string> PromptText(const RunOptions& o) {
  if (o.has_prompt) return o.prompt;
  if (!o.prompt_file.empty()) {
    Result<std::string> text = ReadWholeFile(o.prompt_file, kMaxPromptBytes);
    if (!text) return Fail(ErrorCode::kInvalidArgument, "--prompt-file ", text.error().message());
    return text;
  }
  std::string text;
  char block[65536];
  while (text.size() <= kMaxPromptBytes && (std::cin.read(block, sizeof block) || std::cin.gcount() > 0))
    text.append(block, static_cast<size_t>(std::cin.gcount()));
  if (text.size() > kMaxPromptBytes)
    return Fail(ErrorCode::kInvalidArgument, "prompt on stdin: expected at most ", FormatBytes(kMaxPromptBytes),
                ", got more: no context holds that much");
  return text;
}

Status CheckOptions(const RunOptions& o) {
  const auto refuse = [](const char* what) { return Fail(ErrorCode::kInvalidArgument, what); };
  const int sources = (o.has_prompt ? 1 : 0) + (o.prompt_file.empty() ? 0 : 1) + (o.prompt_ids.empty() ? 0 : 1);
  if (sources > 1) return refuse("--prompt, --prompt-file, --prompt-ids: give one of them");
  if (o.chat && !o.prompt_ids.empty()) return refuse("--chat: makes a message of text; --prompt-ids are ids already");
  if (!o.chat && !o.system.empty()) return refuse("--system: needs --chat");
  if (!o.chat && o.reasoning_effort != "max") return refuse("--reasoning-effort: needs --chat");
  for (const std::string& stop : o.stops)
    if (stop.empty()) return refuse("--stop: expected some text, got none");
  if (o.watch && o.common.quiet) return refuse("--watch, --quiet: give one of them");
  if (!o.session.empty()) DFIN_TRY_VOID(CheckSessionOptions(o.common, o.session));
  if (o.time_operations && !o.json) return refuse("--time-operations: needs --json");
  if (o.ignore_end && (o.chat || !o.session.empty()))
    return refuse("--ignore-end: goes on behind the end of an answer, so it is not for --chat or --session");
  if (o.ids && o.json) return refuse("--ids, --json: give one of them (token events carry the ids)");
  return {};
}

Result<ChatPrompt> MakeChat(const RunOptions& o, std::string text) {
  std::vector<ChatMessage> messages;
  if (!o.system.empty()) messages.push_back(SystemMessage(o.system));
  messages.push_back(UserMessage(std::move(text)));
  DFIN_TRY(const ChatOptions options, ChatOptionsFor(o.reasoning_effort));
  return RenderChat(messages, options);
}

Result<Prompt> MakePrompt(const RunOptions& o) {
  Prompt prompt;
  if (!o.prompt_ids.empty()) {
    DFIN_TRY(prompt.ids, ParseIds(o.prompt_ids, "--prompt-ids"));
    const bool needs_text = !o.ids || !o.stops.empty();
    if (needs_text && (!o.json || !o.stops.empty() || HasTokenizer(o.common.model))) {
      DFIN_TRY(prompt.text, LoadTextModel(o.common.model));
      prompt.stream.emplace(*prompt.text.tokenizer, o.stops);
    }
    return prompt;
  }
  DFIN_TRY(std::string text, PromptText(o));
  if (text.empty()) return Fail(ErrorCode::kInvalidArgument, "prompt: expected some text, got none");
  DFIN_TRY(prompt.text, LoadTextModel(o.common.model));
  const Tokenizer& tokenizer = *prompt.text.tokenizer;
  if (!o.chat) {
    prompt.ids = tokenizer.EncodeRaw(text);
    prompt.stream.emplace(tokenizer, o.stops);
    return prompt;
  }
  if (o.session.empty()) {
    DFIN_TRY(const ChatPrompt chat, MakeChat(o, std::move(text)));
    DFIN_TRY(prompt.ids, EncodeSegments(tokenizer, chat.segments));
    prompt.continues_in = chat.continues_in;
  } else {
    DFIN_TRY(const ChatOptions options, ChatOptionsFor(o.reasoning_effort));
    DFIN_TRY(Conversation conversation, Conversation::Create(tokenizer, o.system, options));
    DFIN_TRY_VOID(conversation.AddUserMessage(text));
    prompt.ids = conversation.Prompt();
    prompt.continues_in = conversation.continues_in();
    prompt.conversation.emplace(std::move(conversation));
  }
  DFIN_TRY(AnswerStream stream, AnswerStream::ForChat(tokenizer, prompt.continues_in, o.stops));
  prompt.stream.emplace(std::move(stream));
  return prompt;
}

// Writes what the options ask for, token by token.
class Output {
 public:
  Output(const RunOptions& options, const Engine& engine, Terminal& terminal, std::optional<AnswerStream>& stream)
      : options_(options), engine_(engine), terminal_(terminal), stream_(stream) {}

  // False when nobody wants more.
  bool Token(TokenId id) {
    std::vector<AnswerStream::Piece> pieces;
    if (stream_) pieces = stream_->Append(id);
    if (options_.ids) return Write((first_ ? "" : " ") + std::to_string(id)) && Next();
    if (options_.json) {
      Json event = TokenEvent(id, pieces);
      AddStepFigures(event);
      return terminal_.Write(DumpJson(event) + "\n") && Next();
    }
    return Show(pieces) && Next();
  }

  void Finish(bool length_limit) {
    std::vector<AnswerStream::Piece> pieces;
    if (stream_) pieces = stream_->Finish(length_limit);
    if (options_.json && !pieces.empty())
      terminal_.Write(DumpJson(TokenEvent(-1, pieces)) + "\n");
    else if (!options_.ids)
      Show(pieces);
    if (!options_.json) terminal_.Write("\n");
  }

  // After an error in the middle: shows what was held back, and leaves no half line before the message.
  void Break() {
    if (first_) return;
    std::vector<AnswerStream::Piece> pieces;
    if (stream_) pieces = stream_->Finish(true);
    if (options_.json && !pieces.empty()) terminal_.Write(DumpJson(TokenEvent(-1, pieces)) + "\n");
    if (options_.json) return;
    if (!options_.ids) Show(pieces);
    if (line_is_open_) terminal_.Write("\n");
  }

 private:
  bool Write(const std::string& text) {
    if (!text.empty()) line_is_open_ = text.back() != '\n';
    return terminal_.Write(text);
  }

  bool Next() {
    first_ = false;
    return !stream_ || !stream_->stop_string_met();
  }

  static Json TokenEvent(TokenId id, const std::vector<AnswerStream::Piece>& pieces) {
    Json event;
    event["event"] = "token";
    if (id >= 0) event["id"] = id;
    for (const AnswerStream::Piece& piece : pieces) {
      const char* key = piece.channel == AnswerStream::Channel::kThought    ? "thought"
                        : piece.channel == AnswerStream::Channel::kToolCall ? "tool_call"
                                                                            : "text";
      event[key] = event.value(key, std::string()) + piece.text;
    }
    return event;
  }

  // What this token took; the first one includes the prompt.
  void AddStepFigures(Json& event) {
    const int64_t now = clock_.NowNs();
    const EngineCounters counters = engine_.counters();
    const EngineCounters step = counters.Since(before_);
    event["seconds"] = SecondsBetween(before_ns_, now);
    event["seconds_expert_wait"] = step.expert_wait_seconds;
    event["seconds_dense_wait"] = step.dense_wait_seconds;
    event["seconds_compute"] =
        std::max(0.0, SecondsBetween(before_ns_, now) - step.expert_wait_seconds - step.dense_wait_seconds);
    event["expert_bytes_demand"] = step.expert_bytes_demand;
    event["expert_bytes_prefetch_useful"] = step.expert_bytes_prefetch_useful;
    event["expert_bytes_prefetch_late"] = step.expert_bytes_prefetch_late;
    event["expert_bytes_prefetch_wasted"] = step.expert_bytes_prefetch_wasted;
    before_ = counters;
    before_ns_ = now;
  }

  // Thoughts go to a terminal only, dimmed; the answer is all that stdout ever sees.
  bool Show(const std::vector<AnswerStream::Piece>& pieces) {
    for (const AnswerStream::Piece& piece : pieces) {
      if (piece.channel == AnswerStream::Channel::kAnswer) {
        if (thinking_) {
          terminal_.WriteNote("\n");
          thinking_ = false;
        }
        if (!Write(piece.text)) return false;
      } else if (terminal_.stderr_is_terminal() && !options_.common.quiet) {
        terminal_.WriteDim(piece.text);
        thinking_ = true;
      }
    }
    return true;
  }

  const RunOptions& options_;
  const Engine& engine_;
  const SteadyClock clock_;
  EngineCounters before_ = engine_.counters();
  int64_t before_ns_ = clock_.NowNs();
  Terminal& terminal_;
  std::optional<AnswerStream>& stream_;
  bool first_ = true;
  bool thinking_ = false;
  bool line_is_open_ = false;  // the answer so far does not end with a line break
};

// The turn that the prompt begins in the session. False: interrupted before that.
Result<bool> BeginTurn(const RunOptions& o, const Prompt& prompt, KeptSession& kept, Terminal& terminal, TurnNote* note,
                       const TurnRun& run) {
  SessionJournal& journal = kept.journal();
  if (!journal.turns().empty()) {
    DFIN_TRY(const TurnNote first, TurnNote::FromText(journal.turns().front().note));
    if (first.chat != o.chat)
      return Fail(ErrorCode::kInvalidArgument, "--session ", o.session,
                  first.chat ? ": is a chat: add --chat" : ": holds plain text, no chat: leave --chat out");
  }
  if (o.chat && journal.turns().empty())
    DFIN_TRY_VOID(journal.Replace(prompt.conversation->preamble(), {}));
  else if (o.chat && (!o.system.empty() || o.reasoning_effort != "max") &&
           journal.preamble() != prompt.conversation->preamble())
    return Fail(ErrorCode::kInvalidArgument, "--session ", o.session,
                ": began with another --system or --reasoning-effort: leave them out, or begin another session");
  const std::vector<TokenId>& turn = o.chat ? prompt.conversation->last_turn() : prompt.ids;
  if (!journal.turns().empty() && !journal.turns().back().finished) {
    DFIN_TRY(const TurnNote begun, TurnNote::FromText(journal.turns().back().note));
    const bool same_seed = !o.sampling.seed || note->sampling.seed == begun.sampling.seed;
    if (journal.turns().back().prompt != turn) {
      if (!o.common.quiet) {
        terminal.EndLine();
        terminal.WriteNote(Cat("session ", o.session, ": an answer was interrupted; it is finished first\n"));
      }
      DFIN_TRY(const bool finished, FinishTurn(kept, run));
      if (!finished) return false;
    } else if (note->AsksTheSame(begun) && same_seed) {
      *note = begun;
      return true;
    } else {
      DFIN_TRY_VOID(DropTurn(kept));
    }
  }
  std::vector<TokenId> all = journal.Tokens();
  all.insert(all.end(), turn.begin(), turn.end());
  DFIN_TRY_VOID(CheckTokens(run.engine.spec(), all, 0, run.session.capacity()));
  DFIN_TRY_VOID(journal.BeginTurn(note->ToText(), turn));
  return true;
}

// Whatever ended the answer: only a process that dies leaves a turn open.
Status FinishKept(KeptSession& kept, const Prompt& prompt, const TurnNote& note, const GenerationResult& result) {
  if (result.tokens.empty()) return DropTurn(kept);  // stopped before it said anything
  const SessionTurn& turn = kept.journal().turns().back();
  if (!note.chat) return EndTurn(kept, turn.Tokens());
  DFIN_TRY(const std::vector<TokenId> closed, CloseChatTurn(*prompt.text.tokenizer, note, turn.prompt, result.tokens));
  return EndTurn(kept, closed);
}

EngineSetup::Request RequestOf(const RunOptions& o, const Prompt& prompt, BackendTimes& times) {
  EngineSetup::Request request{.json = o.json,
                               .watch = o.watch,
                               .tokenizer_bytes = prompt.text.bytes,
                               .prompt = prompt.ids,
                               .generates = true};
  if (o.time_operations)
    request.wrap_backend = [&times](std::unique_ptr<Backend> backend) {
      return MakeTimedBackend(std::move(backend), times);
    };
  return request;
}

TurnNote NoteOf(const RunOptions& o, const Prompt& prompt, const SamplingParams& sampling) {
  return {.chat = o.chat,
          .continues_in = prompt.continues_in,
          .max_new = o.max_new,
          .sampling = sampling,
          .stops = o.stops};
}

Result<int> RunRun(const RunOptions& o) {
  DFIN_TRY_VOID(CheckOptions(o));
  DFIN_TRY(const SamplingParams sampling, o.sampling.Resolve({}));
  BackendTimes times;  // outlives the engine
  EngineSetup setup;   // early: from here on Ctrl-C is an answer of ours
  DFIN_TRY(Prompt prompt, MakePrompt(o));
  if (setup.interrupt.happened()) return kExitInterrupted;
  DFIN_TRY(const DraftBridge draft_bridge, LoadDraftBridge(o.common, prompt.text.tokenizer, /*raw=*/!o.chat));
  EngineSetup::Request request = RequestOf(o, prompt, times);
  request.draft_bridge = draft_bridge;
  DFIN_TRY_VOID(setup.Open(o.common, request));
  Engine& engine = *setup.engine;
  times.head_outputs = engine.spec().vocab_size;
  DFIN_TRY(Session session, engine.NewSession());

  Output output(o, engine, setup.terminal, prompt.stream);
  const Tokenizer* tokenizer = prompt.text.tokenizer.get();
  TurnNote note = NoteOf(o, prompt, sampling);
  DFIN_TRY(const std::unique_ptr<Drafting> drafting, MakeDrafting(engine, tokenizer, draft_bridge.bridge));
  PrefixCache nothing_kept(0);
  std::optional<BackendTimes> prompt_times;  // when the first token was there
  const BackendTimes load_times = times;
  const TurnRun turn_run{
      engine, setup.monitor, session, nothing_kept, tokenizer, setup.interrupt.token(), [&](TokenId id) {
        if (!prompt_times) prompt_times = times;
        return output.Token(id);
      },
      drafting.get(), o.ignore_end};
  std::optional<KeptSession> kept;
  if (!o.session.empty()) {
    DFIN_TRY(KeptSession opened, OpenKeptSession(o.common, o.session, engine, setup.logger));
    kept.emplace(std::move(opened));
    DFIN_TRY(const bool begun, BeginTurn(o, prompt, *kept, setup.terminal, &note, turn_run));
    if (!begun) return kExitInterrupted;
  }
  const std::vector<DriveReport> drives_before = engine.drives();
  const std::vector<LayerLookahead> lookahead_before = engine.lookahead();
  Result<GenerationResult> result =
      kept ? AnswerTurn(*kept, note, turn_run) : AnswerPrompt(prompt.ids, {}, note, turn_run);
  if (!result) {
    setup.StopViews();
    output.Break();
    setup.StopProgress();
    return Failure(std::move(result.error()));
  }
  setup.StopViews();
  output.Finish(result->reason == StopReason::kLength || result->reason == StopReason::kCancelled);
  const bool cancelled = result->reason == StopReason::kCancelled;
  if (kept && !setup.interrupt.terminate()) DFIN_TRY_VOID(FinishKept(*kept, prompt, note, *result));

  RunReport report{std::move(*result), engine.counters(), setup.seconds_load,       engine.Describe(),
                   engine.drives(),    drives_before,     sampling.temperature > 0, note.sampling.seed,
                   engine.lookahead(), lookahead_before};
  if (o.time_operations) report.operations = OperationTimes(load_times, prompt_times.value_or(times), times);
  if (o.json) setup.terminal.Write(DumpJson(StatsEvent(report)) + "\n");
  if (o.stats) setup.terminal.WriteNote(StatsText(report));
  DFIN_TRY_VOID(setup.terminal.StdoutStatus());
  return cancelled ? kExitInterrupted : kExitDone;
}

}  // namespace

Command AddRun(CLI::App& root) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* app = root.add_subcommand("run", "Answer one prompt");
  o->common.AddTo(*app);
  o->sampling.AddTo(*app);
  const CLI::Option* prompt =
      app->add_option("--prompt", o->prompt, "The prompt (default: read from stdin)")->type_name("TEXT");
  app->add_option("--prompt-file", o->prompt_file, "File with the prompt")->type_name("F");
  app->add_option("--prompt-ids", o->prompt_ids, "Token ids, comma-separated")->type_name("1,2,3");
  app->add_flag("--chat", o->chat, "The prompt is one user message");
  app->add_option("--system", o->system, "System message before it")->type_name("TEXT");
  app->add_option("--reasoning-effort", o->reasoning_effort, "With --chat: none, low, high or max")->type_name("LEVEL");
  app->add_option("--max-new", o->max_new, "Most new tokens (default: as many as the context allows)")
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
  app->add_option("--stop", o->stops, "End the answer at this text (repeatable)")->type_name("TEXT");
  app->add_option("--session", o->session, "Go on with the conversation of this name, also after a restart")
      ->type_name("NAME");
  app->add_flag("--ignore-end", o->ignore_end, "Go on after the model ended its answer, up to --max-new (for measuring)");
  app->add_flag("--time-operations", o->time_operations,
                "With --json: how long each kind of computing took, in the last event");
  app->add_flag("--ids", o->ids, "Print only the new token ids");
  app->add_flag("--json", o->json, "Print events, one JSON object a line");
  app->add_flag("--watch", o->watch, "Show drives, cache and where the time goes while it runs (needs a terminal)");
  app->add_flag("--stats", o->stats, "Figures of the run on stderr");
  return {app, [o, prompt] {
            o->has_prompt = prompt->count() > 0;
            return RunRun(*o);
          }};
}

}  // namespace deltafin
