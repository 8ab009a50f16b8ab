// `deltafin chat`: a conversation on the terminal.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "app/answer_stream.h"
#include "app/chat_setup.h"
#include "app/commands.h"
#include "app/conversation.h"
#include "app/draft_setup.h"
#include "app/engine_setup.h"
#include "app/exit_code.h"
#include "app/kept_turn.h"
#include "app/line_reader.h"
#include "app/option_checks.h"
#include "app/run_report.h"
#include "app/sampling_options.h"
#include "app/text_model.h"
#include "base/units.h"

namespace deltafin {
namespace {

// An answer needs some room: a prompt may take all of the context but this part.
constexpr int64_t kAnswerRoomDivisor = 8;
// Forgetting means reading the rest again, so it is done seldom: down to this part of the context.
constexpr int64_t kKeptDivisor = 2;

// Prefixes that are kept: the last prompt's end and the last answer's, so that an answer that is cut inside a tag,
// which takes tokens back, costs no reading of all that was before it.
constexpr int64_t kPrefixes = 2;

constexpr const char* kHelp =
    "/reset   forget the conversation\n"
    "/stats   figures of the last answer\n"
    "/exit    leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer and keeps the conversation. A message that begins with / is written //.\n";

struct ChatCommandOptions {
  CommonOptions common;
  SamplingOptions sampling;
  std::string system, reasoning_effort = "max";
  int64_t max_new = 0;
  std::string session;
};

int64_t ChatLimit(const Session& session) {
  return session.capacity() - std::max<int64_t>(1, session.capacity() / kAnswerRoomDivisor);
}

class Chat {
 public:
  Chat(const ChatCommandOptions& options, EngineSetup& setup, const TextModel& text, Session session,
       Conversation conversation, SamplingParams sampling, std::unique_ptr<Drafting> drafting)
      : options_(options),
        setup_(setup),
        tokenizer_(*text.tokenizer),
        session_(std::move(session)),
        prefixes_(setup.engine->plan().prefix_cache_bytes, PrefixCache::IntervalFor(setup.engine->plan().chunk)),
        conversation_(std::move(conversation)),
        sampling_(sampling),
        drafting_(std::move(drafting)) {}

  // Goes on with what is kept; an answer that was interrupted is finished first.
  Status Continue(KeptSession kept) {
    kept_.emplace(std::move(kept));
    SessionJournal& journal = kept_->journal();
    if (journal.turns().empty()) return journal.Replace(conversation_.preamble(), {});
    DFIN_TRY(TurnNote note, TurnNote::FromText(journal.turns().back().note));
    if (!note.chat)
      return Fail(ErrorCode::kInvalidArgument, "--session ", options_.session, ": holds plain text, no chat: use run");
    if ((!options_.system.empty() || options_.reasoning_effort != "max") &&
        journal.preamble() != conversation_.preamble())
      return Fail(ErrorCode::kInvalidArgument, "--session ", options_.session,
                  ": began with another --system or --reasoning-effort: leave them out, or begin another session");
    RestoreConversation();
    if (!options_.common.quiet)
      Note(Cat("(session ", kept_->name(), ": ", conversation_.turns(), conversation_.turns() == 1 ? " turn" : " turns",
               " so far)\n"));
    FollowSeed(note.sampling.seed);
    if (journal.turns().back().finished) return {};
    Note("(the last answer was interrupted; it goes on)\n");
    return Answer(note, /*resumed=*/true);
  }

  // Seeds count up, one an answer: the next one is what it would have been without a restart, unless another row of
  // seeds is asked for.
  void FollowSeed(uint64_t last) {
    const std::optional<uint64_t>& asked = options_.sampling.seed;
    constexpr uint64_t kMostTurns = uint64_t{1} << 20;
    if (!asked || last - *asked < kMostTurns) sampling_.seed = last + 1;
  }

  Result<int> Loop() {
    LineReader reader("> ", setup_.interrupt.token());
    std::string line;
    for (;;) {
      const LineReader::Outcome outcome = reader.Read(&line);
      if (setup_.interrupt.terminate()) return kExitInterrupted;
      if (outcome == LineReader::Outcome::kEnd) break;
      if (outcome == LineReader::Outcome::kInterrupted) {
        setup_.interrupt.Reset();
        setup_.terminal.WriteNote("\n(Ctrl-D or /exit leaves)\n");
        continue;
      }
      if (outcome == LineReader::Outcome::kTooLong) {
        Note(Cat("(a line of more than ", FormatBytes(LineReader::kMaxBytes), ": it was not sent)\n"));
        continue;
      }
      if (line.empty()) continue;
      if (line[0] == '/' && line.rfind("//", 0) != 0) {
        if (!Command(line)) break;
        continue;
      }
      DFIN_TRY_VOID(Turn(line[0] == '/' ? line.substr(1) : line));
      if (setup_.interrupt.terminate()) return kExitInterrupted;
    }
    DFIN_TRY_VOID(setup_.terminal.StdoutStatus());
    return kExitDone;
  }

 private:
  void Note(const std::string& text) {
    setup_.terminal.EndLine();
    setup_.terminal.WriteNote(Printable(text));
  }

  // False: leave.
  bool Command(const std::string& line) {
    if (line == "/exit" || line == "/quit") return false;
    if (line == "/reset") {
      conversation_.Clear();
      if (kept_) NoteFailure(kept_->journal().Replace(kept_->journal().preamble(), {}));
      Note("(new conversation)\n");
    } else if (line == "/stats") {
      Note(last_stats_.empty() ? "(no answer yet)\n" : last_stats_);
    } else {
      Note(line == "/help" ? kHelp : "unknown command " + line + "\n" + kHelp);
    }
    return true;
  }

  // A message that does not fit is refused or makes room; only the model's or the machine's faults are errors.
  Status Turn(const std::string& message) {
    const Status added = conversation_.AddUserMessage(message);
    if (!added) {
      Note("error: " + added.error().message() + "\n");
      return {};
    }
    const int64_t limit = ChatLimit(session_);
    const int dropped =
        conversation_.prompt_tokens() > limit ? conversation_.TrimTo(session_.capacity() / kKeptDivisor) : 0;
    if (conversation_.prompt_tokens() > limit) {
      Note(Cat("(the message is too long: ", conversation_.prompt_tokens(),
               " tokens with the system message, and --context ", session_.capacity(), " leaves ", limit,
               "; it was not sent)\n"));
      conversation_.DropLastTurn();
      return {};
    }
    if (dropped > 0)
      Note(Cat("(the context is full: the oldest ", dropped, dropped == 1 ? " turn was" : " turns were",
               " forgotten, the rest is read again)\n"));
    const TurnNote note{.chat = true,
                        .until_message_ends = true,
                        .continues_in = conversation_.continues_in(),
                        .max_new = options_.max_new,
                        .sampling = sampling_,
                        .stops = {}};
    sampling_.seed += 1;  // another answer to the same question may differ
    if (kept_) {
      std::vector<SessionTurn> turns = kept_->journal().turns();
      turns.erase(turns.begin(), turns.begin() + dropped);
      if (dropped > 0) DFIN_TRY_VOID(kept_->journal().Replace(kept_->journal().preamble(), std::move(turns)));
      DFIN_TRY_VOID(kept_->journal().BeginTurn(note.ToText(), conversation_.last_turn()));
    }
    return Answer(note);
  }

  Result<GenerationResult> Generate(const TurnNote& note, std::function<bool(TokenId)> on_token) {
    const TurnRun run{*setup_.engine,           setup_.monitor,      session_,       prefixes_, &tokenizer_,
                      setup_.interrupt.token(), std::move(on_token), drafting_.get()};
    if (kept_) return AnswerTurn(*kept_, note, run);
    return AnswerPrompt(conversation_.Prompt(), {}, note, run);
  }

  void RestoreConversation() {
    std::vector<std::vector<TokenId>> turns;
    for (const SessionTurn& turn : kept_->journal().turns())
      turns.push_back(turn.finished ? turn.Tokens() : turn.prompt);
    conversation_.Restore(kept_->journal().preamble(), std::move(turns));
  }

  void NoteFailure(const Status& status) {
    if (!status) Note("error: " + status.error().message() + "\n");
  }

  // The conversation's last turn, which holds the message only.
  // `resumed`: an earlier program began with it.
  Status Answer(const TurnNote& note, bool resumed = false) {
    DFIN_TRY(AnswerStream stream, AnswerStream::ForChat(tokenizer_, note.continues_in, {}));
    thinking_ = line_is_open_ = false;
    const std::vector<DriveReport> drives_before = setup_.engine->drives();
    const std::vector<LayerLookahead> lookahead_before = setup_.engine->lookahead();
    Result<GenerationResult> result =
        Generate(note, [&](TokenId id) { return Show(stream.Append(id)) && !stream.ended(); });
    if (!result) {
      if (line_is_open_ && !setup_.terminal.stdout_is_terminal()) setup_.terminal.Write("\n");
      // What an earlier program was asked, and has answered of it, stays: another try may succeed.
      if (resumed) return Failure(std::move(result.error()));
      conversation_.DropLastTurn();
      if (kept_) NoteFailure(DropTurn(*kept_));
      // A script must hear of it; a person can try again.
      if (!setup_.terminal.stderr_is_terminal()) return Failure(std::move(result.error()));
      Note("error: " + result.error().message() + "\n(the message was taken back; the conversation goes on)\n");
      return {};
    }
    DFIN_TRY_VOID(conversation_.AddAnswer(result->tokens, stream.parser()));
    // A process that is told to end leaves the answer open, and goes on with it the next time.
    if (kept_ && !setup_.interrupt.terminate()) DFIN_TRY_VOID(EndTurn(*kept_, conversation_.last_turn()));
    Show(stream.Finish(result->reason == StopReason::kLength));
    if (setup_.terminal.stdout_is_terminal())
      setup_.terminal.EndLine();
    else
      setup_.terminal.Write("\n");
    NoteEnd(*result);
    last_stats_ =
        StatsText({std::move(*result), setup_.engine->counters(), setup_.seconds_load, setup_.engine->Describe(),
                   setup_.engine->drives(), drives_before, sampling_.temperature > 0, note.sampling.seed,
                   setup_.engine->lookahead(), lookahead_before});
    return {};
  }

  void NoteEnd(const GenerationResult& result) {
    if (result.reason == StopReason::kCancelled) {
      Note("(stopped)\n");
      setup_.interrupt.Reset();
    } else if (result.reason == StopReason::kLength) {
      const bool by_option = options_.max_new != 0 && static_cast<int64_t>(result.tokens.size()) >= options_.max_new;
      Note(by_option ? "(cut at --max-new)\n" : "(cut: the context is full)\n");
    }
  }

  bool Show(const std::vector<AnswerStream::Piece>& pieces) {
    for (const AnswerStream::Piece& piece : pieces) {
      if (piece.channel == AnswerStream::Channel::kAnswer) {
        if (thinking_) setup_.terminal.EndLine();
        thinking_ = false;
        if (!piece.text.empty()) line_is_open_ = piece.text.back() != '\n';
        if (!setup_.terminal.Write(piece.text)) return false;
      } else {
        setup_.terminal.WriteDim(piece.text);
        thinking_ = true;
      }
    }
    return true;
  }

  const ChatCommandOptions& options_;
  EngineSetup& setup_;
  const Tokenizer& tokenizer_;
  Session session_;
  PrefixCache prefixes_;
  std::optional<KeptSession> kept_;  // with --session
  Conversation conversation_;
  SamplingParams sampling_;
  std::unique_ptr<Drafting> drafting_;  // null: without
  bool thinking_ = false;
  bool line_is_open_ = false;  // what was shown of the answer does not end with a line break
  std::string last_stats_;
};

Result<int> RunChat(const ChatCommandOptions& o) {
  DFIN_TRY(const SamplingParams defaults, ModelSamplingDefaults(o.common.model));
  DFIN_TRY(const SamplingParams sampling, o.sampling.Resolve(defaults));
  DFIN_TRY(const ChatOptions chat, ChatOptionsFor(o.reasoning_effort));
  if (!o.session.empty()) DFIN_TRY_VOID(CheckSessionOptions(o.common, o.session));
  EngineSetup setup(/*end_after=*/3);
  DFIN_TRY(const TextModel text, LoadTextModel(o.common.model));
  DFIN_TRY(Conversation conversation, Conversation::Create(*text.tokenizer, o.system, chat));
  DFIN_TRY(const DraftBridge draft_bridge, LoadDraftBridge(o.common, text.tokenizer, /*raw=*/false));
  DFIN_TRY_VOID(setup.Open(o.common, {.tokenizer_bytes = text.bytes,
                                      .prefix_checkpoints = kPrefixes,
                                      .generates = true,
                                      .draft_bridge = draft_bridge}));
  DFIN_TRY(Session session, setup.engine->NewSession());
  if (setup.terminal.stderr_is_terminal() && !o.common.quiet)
    setup.terminal.WriteNote(Cat(setup.engine->Describe(), "; /help for commands\n"));
  if (conversation.prompt_tokens() >= ChatLimit(session))
    return Fail(ErrorCode::kInvalidArgument, "--system: ", conversation.prompt_tokens(),
                " tokens with what the format adds, and "
                "--context ",
                session.capacity(), " leaves ", ChatLimit(session), " for the whole conversation");
  DFIN_TRY(std::unique_ptr<Drafting> drafting, MakeDrafting(*setup.engine, text.tokenizer.get(), draft_bridge.bridge));
  Chat talk(o, setup, text, std::move(session), std::move(conversation), sampling, std::move(drafting));
  if (!o.session.empty()) {
    DFIN_TRY(KeptSession kept, OpenKeptSession(o.common, o.session, *setup.engine, setup.logger));
    DFIN_TRY_VOID(talk.Continue(std::move(kept)));
    if (setup.interrupt.terminate()) return kExitInterrupted;
  }
  return talk.Loop();
}

}  // namespace

Command AddChat(CLI::App& root) {
  auto o = std::make_shared<ChatCommandOptions>();
  CLI::App* app = root.add_subcommand("chat", "Talk with the model");
  o->common.AddTo(*app);
  o->sampling.AddTo(*app);
  app->add_option("--system", o->system, "System message at the beginning")->type_name("TEXT");
  app->add_option("--reasoning-effort", o->reasoning_effort, "none, low, high or max")->type_name("LEVEL");
  app->add_option("--session", o->session, "Go on with the conversation of this name, also after a restart")
      ->type_name("NAME");
  app->add_option("--max-new", o->max_new, "Most new tokens of an answer (default: as many as the context allows)")
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
  return {app, [o] { return RunChat(*o); }};
}

}  // namespace deltafin
