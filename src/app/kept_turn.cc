#include "app/kept_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "app/answer_stream.h"
#include "app/conversation.h"
#include "app/draft_setup.h"
#include "base/json.h"

namespace deltafin {

std::string TurnNote::ToText() const {
  Json note;
  note["chat"] = chat;
  note["until_message_ends"] = until_message_ends;
  note["reasons_first"] = continues_in == ResponseChannel::kReasoning;
  note["max_new"] = max_new;
  note["temperature"] = sampling.temperature;
  note["top_p"] = sampling.top_p;
  note["top_k"] = sampling.top_k;
  note["min_p"] = sampling.min_p;
  note["presence_penalty"] = sampling.presence_penalty;
  note["frequency_penalty"] = sampling.frequency_penalty;
  note["repetition_penalty"] = sampling.repetition_penalty;
  note["seed"] = sampling.seed;
  note["stops"] = stops;
  return DumpJson(note);
}

Result<TurnNote> TurnNote::FromText(const std::string& text) {
  TurnNote out;
  const auto bad = [] { return Fail(ErrorCode::kCorrupt, "session: the note of a turn is damaged"); };
  const Json note = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!note.is_object()) return bad();
  bool good = true;
  const auto take = [&]<typename T>(const char* key, T* value) {
    const auto it = note.find(key);
    const bool fits = it != note.end() && (std::is_same_v<T, bool> ? it->is_boolean() : it->is_number());
    good = good && fits;
    if (fits) *value = it->template get<T>();
  };
  bool reasons = false;
  take("chat", &out.chat);
  take("until_message_ends", &out.until_message_ends);
  take("reasons_first", &reasons);
  take("max_new", &out.max_new);
  take("temperature", &out.sampling.temperature);
  take("top_p", &out.sampling.top_p);
  take("top_k", &out.sampling.top_k);
  take("min_p", &out.sampling.min_p);
  take("presence_penalty", &out.sampling.presence_penalty);
  take("frequency_penalty", &out.sampling.frequency_penalty);
  take("repetition_penalty", &out.sampling.repetition_penalty);
  take("seed", &out.sampling.seed);
  const auto stops = note.find("stops");
  if (!good || out.max_new < 0 || stops == note.end() || !stops->is_array()) return bad();
  for (const Json& stop : *stops) {
    if (!stop.is_string()) return bad();
    out.stops.push_back(stop.get<std::string>());
  }
  out.continues_in = reasons ? ResponseChannel::kReasoning : ResponseChannel::kAnswer;
  return out;
}

bool TurnNote::AsksTheSame(const TurnNote& other) const {
  TurnNote same = other;
  same.sampling.seed = sampling.seed;
  return ToText() == same.ToText();
}

Status CheckSessionOptions(const CommonOptions& options, const std::string& name) {
  if (options.no_state)
    return Fail(ErrorCode::kInvalidArgument, "--session: is kept in the state folder; --no-state keeps nothing");
  return KeptSession::CheckName(name);
}

Result<KeptSession> OpenKeptSession(const CommonOptions& options, const std::string& name, const Engine& engine,
                                    Logger& logger) {
  DFIN_TRY(const EngineOptions engine_options, options.ToEngineOptions());
  if (engine_options.state_dir.empty())
    return Fail(ErrorCode::kInvalidArgument, "--session: no state folder is known: give --state-dir");
  return KeptSession::Open(engine_options.state_dir, name, engine, logger);
}

Result<GenerationResult> AnswerPrompt(std::span<const TokenId> prompt, std::span<const TokenId> answered,
                                      const TurnNote& note, const TurnRun& run) {
  std::vector<TokenId> stop_tokens;
  if (!run.ignore_end) stop_tokens = StopTokens(run.tokenizer, run.engine.spec());
  GenerationRequest request;
  request.prompt = prompt;
  request.answered = answered;
  request.max_new = note.max_new;
  request.sampling = note.sampling;
  request.usable_vocab = run.tokenizer == nullptr ? 0 : run.tokenizer->token_count();
  request.stop_tokens = stop_tokens;
  request.cancel = run.cancel;
  request.prefix_cache = &run.prefix_cache;
  request.drafting = run.drafting;
  request.on_token = run.on_token;
  return Generate(run.engine, run.session, run.monitor, request);
}

Result<GenerationResult> AnswerTurn(KeptSession& kept, const TurnNote& note, const TurnRun& run) {
  const std::vector<TokenId> answered = kept.journal().turns().back().answer;
  std::vector<TokenId> prompt = kept.journal().Tokens();
  if (run.session.length() == 0) kept.Load(prompt, run.session);
  prompt.resize(prompt.size() - answered.size());
  size_t reported = 0;
  TurnRun keeping = run;
  keeping.on_token = [&](TokenId id) {
    if (reported++ >= answered.size()) kept.AddAnswer(id, run.session);
    return !run.on_token || run.on_token(id);
  };
  Result<GenerationResult> result = AnswerPrompt(prompt, answered, note, keeping);
  if (result) kept.SaveState(run.session);
  return result;
}

Status EndTurn(KeptSession& kept, const std::vector<TokenId>& turn) {
  SessionJournal& journal = kept.journal();
  const std::vector<TokenId> known = journal.turns().back().Tokens();
  const auto [at, differs] = std::mismatch(turn.begin(), turn.end(), known.begin(), known.end());
  if (differs == known.end()) return journal.EndTurn({at, turn.end()});
  // Closing took something back: ids of a tag that was cut.
  std::vector<SessionTurn> turns = journal.turns();
  SessionTurn& last = turns.back();
  const auto kept_answer = (at - turn.begin()) - static_cast<std::ptrdiff_t>(last.prompt.size());
  last.answer.resize(static_cast<size_t>(std::max<std::ptrdiff_t>(0, kept_answer)));
  last.closing = {at, turn.end()};
  last.finished = true;
  return journal.Replace(journal.preamble(), std::move(turns));
}

Status DropTurn(KeptSession& kept) {
  std::vector<SessionTurn> turns = kept.journal().turns();
  if (!turns.empty()) turns.pop_back();
  return kept.journal().Replace(kept.journal().preamble(), std::move(turns));
}

Result<std::vector<TokenId>> CloseChatTurn(const Tokenizer& tokenizer, const TurnNote& note,
                                           const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer) {
  DFIN_TRY(ResponseParser parser, ResponseParser::Create(tokenizer, note.continues_in));
  for (const TokenId id : answer) parser.Append(id);
  DFIN_TRY(Conversation conversation, Conversation::Create(tokenizer, "", {}));
  conversation.Restore({}, {prompt});
  DFIN_TRY_VOID(conversation.AddAnswer(answer, parser));
  return conversation.Prompt();
}

Result<bool> FinishTurn(KeptSession& kept, TurnRun run) {
  const SessionTurn begun = kept.journal().turns().back();
  DFIN_TRY(const TurnNote note, TurnNote::FromText(begun.note));
  std::optional<AnswerStream> stream;
  if (run.tokenizer != nullptr && note.chat) {
    DFIN_TRY(AnswerStream chat, AnswerStream::ForChat(*run.tokenizer, note.continues_in, note.stops));
    stream.emplace(std::move(chat));
  } else if (run.tokenizer != nullptr) {
    stream.emplace(*run.tokenizer, note.stops);
  }
  run.on_token = [&](TokenId id) {
    if (!stream) return true;
    stream->Append(id);
    return note.until_message_ends ? !stream->ended() : !stream->stop_string_met();
  };
  DFIN_TRY(const GenerationResult result, AnswerTurn(kept, note, run));
  if (result.reason == StopReason::kCancelled) return false;
  if (!note.chat) {
    DFIN_TRY_VOID(EndTurn(kept, kept.journal().turns().back().Tokens()));
    return true;
  }
  DFIN_TRY(const std::vector<TokenId> turn, CloseChatTurn(*run.tokenizer, note, begun.prompt, result.tokens));
  DFIN_TRY_VOID(EndTurn(kept, turn));
  return true;
}

}  // namespace deltafin
