// POST /v1/completions: raw text is continued. Special spellings in it are ordinary text.
#include <algorithm>

#include "server/chat_call.h"
#include "server/endpoints.h"
#include "server/json_text.h"
#include "server/sse_writer.h"
#include "server/token_json.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;  // the API's own

struct CompletionCall {
  std::vector<std::vector<TokenId>> prompts;
  GenerationSettings settings;
  bool echo = false;
  bool no_answer = false;  // max_tokens: 0
  int64_t choices() const { return std::ssize(prompts) * settings.choices; }
};

bool TakeIds(const PythonJson& list, TokenId count, std::vector<TokenId>* ids) {
  for (const PythonJson& item : list.items) {
    const std::optional<int64_t> id = item.AsInt64();
    if (!id || *id < 0 || *id >= count) return false;
    ids->push_back(static_cast<TokenId>(*id));
  }
  return !ids->empty();
}

void ReadPrompts(RequestFields& fields, const ServerContext& context, CompletionCall* call) {
  const PythonJson* prompt = fields.Any("prompt");
  const Tokenizer& tokenizer = context.tokenizer;
  const auto bad = [&] { fields.Fault("prompt", "text, token ids, or a list of either, none of them empty"); };
  if (prompt == nullptr) return bad();
  PythonJson list = PythonJson::Array();
  if (prompt->is_string() ||
      (prompt->is_array() && !prompt->items.empty() && prompt->items[0].kind == PythonJson::Kind::kInteger))
    list.items.push_back(*prompt);
  else if (prompt->is_array())
    list = *prompt;
  if (list.items.empty()) return bad();
  if (std::ssize(list.items) > context.limits.prompts)
    return fields.Fault("prompt", Cat("at most ", context.limits.prompts, " prompts"));
  for (const PythonJson& item : list.items) {
    std::vector<TokenId> ids;
    if (item.is_string())
      ids = tokenizer.EncodeRaw(item.text);
    else if (!item.is_array() || !TakeIds(item, tokenizer.token_count(), &ids))
      return bad();
    if (ids.empty()) return bad();
    const int64_t most = context.service.engine().plan().context;
    if (std::ssize(ids) > most)
      return fields.Fault(ApiError{400,
                                   Cat("prompt: ", ids.size(), " tokens, and the context holds ", most,
                                       ": shorten it, or start the server with a larger --context"),
                                   "prompt", "context_length_exceeded"});
    call->prompts.push_back(std::move(ids));
  }
}

std::optional<ApiError> Read(const ServerContext& context, const PythonJson& body, CompletionCall* call) {
  RequestFields fields(body, "");
  CheckModel(fields, context);
  ReadPrompts(fields, context, call);
  ReadCommonSettings(fields, context, &call->settings);
  call->echo = fields.Bool("echo").value_or(false);
  call->settings.max_new = fields.Whole("max_tokens", 0, INT32_MAX).value_or(kDefaultMaxTokens);
  call->no_answer = call->settings.max_new == 0;
  if (call->no_answer && !call->echo) fields.Fault("max_tokens", "at least 1, unless echo is true");
  call->settings.top_scores = fields.Whole("logprobs", 0, 20).value_or(-1);
  fields.Refuse("suffix", "the model has no form for text that is filled in");
  const std::optional<int64_t> best_of = fields.Whole("best_of", 1, context.limits.choices);
  if (best_of && *best_of != call->settings.choices)
    fields.Fault(ApiError{400, "best_of: answers are not ranked: leave it out, or give n's value", "best_of",
                          "unsupported_value"});
  fields.Ignore({"user", "metadata", "safety_identifier", "prompt_cache_key"});
  fields.Refuse("store", "answers are not stored", {"false"});
  fields.Refuse("service_tier", "there is one tier", {"\"auto\"", "\"default\""});
  return fields.Finish();
}

QueuedRequest MakeRequest(const ServerContext& context, const CompletionCall& call, int64_t index,
                          const std::shared_ptr<AnswerChannel>& channel, const std::shared_ptr<CancelSource>& cancel) {
  const GenerationSettings& settings = call.settings;
  const std::vector<TokenId>& prompt = call.prompts[static_cast<size_t>(index / settings.choices)];
  FeedOptions options{
      .choice = index, .chat = std::nullopt, .stops = settings.stops, .scores = settings.top_scores >= 0};
  if (call.echo) options.echo = prompt;
  options.echo_scores = call.echo && settings.top_scores >= 0;
  // Without a chat there is nothing that Create() could refuse.
  std::shared_ptr<AnswerFeed> feed = *AnswerFeed::Create(context.tokenizer, channel, std::move(options));
  QueuedRequest one;
  one.request.prompt = prompt;
  one.request.max_new = settings.max_new;
  one.request.no_answer = call.no_answer;
  one.request.sampling = settings.sampling;
  one.request.sampling.seed += static_cast<uint64_t>(index);
  one.request.logit_bias = settings.logit_bias;
  one.request.usable_vocab = context.tokenizer.token_count();
  one.request.stop_tokens.assign(context.tokenizer.stop_ids().begin(), context.tokenizer.stop_ids().end());
  one.request.top_scores = settings.top_scores;
  one.request.score_prompt = call.echo && settings.top_scores >= 0;
  one.request.cancel = cancel->token();
  one.request.events = feed.get();
  one.owner = std::move(feed);
  one.cancel = cancel;
  return one;
}

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// The older form of scores: four lists side by side.
std::string ScoreLists(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, bool prompt_begins,
                       int64_t offset) {
  std::string texts, logprobs, tops, offsets;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const char* comma = i == 0 ? "" : ", ";
    const std::string text = ToValidUtf8(tokenizer.BytesOf(tokens[i].id));
    // Nothing says how likely a first token is.
    const bool first = prompt_begins && i == 0;
    texts += Cat(comma, JsonString(text));
    logprobs += Cat(comma, first ? "null" : LogprobText(tokens[i].scores.logprob));
    offsets += Cat(comma, offset);
    offset += Characters(text);
    PythonObjectBuilder top;
    for (const TokenScore& score : tokens[i].scores.top)
      top.Set(ToValidUtf8(tokenizer.BytesOf(score.id)), PythonJson::Float(std::max(score.logprob, -9999.0)));
    tops += Cat(comma, first ? "null" : JsonText(top.Take()));
  }
  return Cat("{\"tokens\": [", texts, "], \"token_logprobs\": [", logprobs, "], \"top_logprobs\": [", tops,
             "], \"text_offset\": [", offsets, "]}");
}

struct CompletionUsage {
  int64_t prompt = 0, cached = 0, completion = 0;
  std::string Text() const {
    return Cat("{\"prompt_tokens\": ", prompt, ", \"completion_tokens\": ", completion,
               ", \"total_tokens\": ", prompt + completion, ", \"prompt_tokens_details\": {\"cached_tokens\": ", cached,
               "}}");
  }
  void Add(const CompletionCall& call, const AnswerPiece& piece) {
    completion += piece.end.new_tokens;
    if (piece.choice % call.settings.choices != 0) return;  // n answers share a prompt
    prompt += piece.end.prompt_tokens;
    cached += piece.end.cached_tokens;
  }
};

// Both forms are made of the same pieces: "text", scores, then an end.
class CompletionChunks {
 public:
  CompletionChunks(const ServerContext& context, const CompletionCall& call) : context_(context), call_(call) {
    head_ = Cat("{\"id\": ", JsonString(NewId("cmpl-")),
                ", \"object\": \"text_completion\", \"created\": ", SecondsSince1970(),
                ", \"model\": ", JsonString(context.model), ", \"choices\": [");
    texts_.resize(static_cast<size_t>(call.choices()));
    scores_.resize(static_cast<size_t>(call.choices()));
    finish_.resize(static_cast<size_t>(call.choices()));
  }
  // Keeps a piece for Whole().
  void Keep(const AnswerPiece& piece) {
    const auto i = static_cast<size_t>(piece.choice);
    texts_[i] += piece.text;
    scores_[i].insert(scores_[i].end(), piece.tokens.begin(), piece.tokens.end());
    if (piece.kind != AnswerPiece::Kind::kEnd) return;
    finish_[i] = piece.end.finish;
    usage_.Add(call_, piece);
  }
  std::string Chunk(const AnswerPiece& piece) {
    const auto i = static_cast<size_t>(piece.choice);
    const bool ends = piece.kind == AnswerPiece::Kind::kEnd;
    const std::string choice = Choice(piece.choice, piece.text, piece.tokens, texts_[i].empty() && call_.echo,
                                      Characters(texts_[i]), ends ? JsonString(piece.end.finish) : "null");
    texts_[i] += piece.text;
    if (ends) usage_.Add(call_, piece);
    return Cat(head_, choice, "]", call_.settings.include_usage ? ", \"usage\": null" : "", "}");
  }
  std::string UsageChunk() const { return Cat(head_, "], \"usage\": ", usage_.Text(), "}"); }
  std::string Whole() const {
    std::string choices;
    for (size_t i = 0; i < texts_.size(); ++i)
      choices += Cat(i == 0 ? "" : ", ",
                     Choice(static_cast<int64_t>(i), texts_[i], scores_[i], call_.echo, 0, JsonString(finish_[i])));
    return Cat(head_, choices, "], \"usage\": ", usage_.Text(), "}");
  }

 private:
  std::string Choice(int64_t index, const std::string& text, const std::vector<ScoredToken>& tokens, bool prompt_begins,
                     int64_t offset, const std::string& finish) const {
    const bool scored = call_.settings.top_scores >= 0;
    return Cat("{\"index\": ", index, ", \"text\": ", JsonString(text),
               ", \"logprobs\": ", scored ? ScoreLists(context_.tokenizer, tokens, prompt_begins, offset) : "null",
               ", \"finish_reason\": ", finish, "}");
  }

  const ServerContext& context_;
  const CompletionCall& call_;
  std::string head_;
  std::vector<std::string> texts_, finish_;
  std::vector<std::vector<ScoredToken>> scores_;
  CompletionUsage usage_;
};

void StreamCompletion(const ServerContext& context, const CompletionCall& call, RunningAnswers& answers,
                      const std::function<bool()>& gone, const HttpWriter& write) {
  SseWriter out(write, context.comment_seconds);
  CompletionChunks chunks(context, call);
  bool failed = false;
  while (out.ok() && !failed) {
    const std::optional<AnswerPiece> piece = answers.Next(gone, [&] { out.Idle(); });
    if (!piece) break;
    if (piece->kind == AnswerPiece::Kind::kProgress) {
      out.Progress(*piece);
      continue;
    }
    out.EndProgress();
    failed = piece->end.error.has_value();
    out.Data(failed ? ErrorBody(*piece->end.error, ApiShape::kOpenAi) : chunks.Chunk(*piece));
  }
  if (failed || !answers.ended()) return;
  if (call.settings.include_usage) out.Data(chunks.UsageChunk());
  out.Data("[DONE]");
}

}  // namespace

HttpResponse Completions(const ServerContext& context, const ApiRequest& request) {
  auto call = std::make_shared<CompletionCall>();
  if (const std::optional<ApiError> error = Read(context, request.body, call.get()))
    return ErrorResponse(*error, ApiShape::kOpenAi);
  auto channel = std::make_shared<AnswerChannel>();
  auto cancel = std::make_shared<CancelSource>();
  std::vector<QueuedRequest> group;
  for (int64_t i = 0; i < call->choices(); ++i) group.push_back(MakeRequest(context, *call, i, channel, cancel));
  const Status queued = context.service.Submit(request.client, std::move(group));
  if (!queued) return ErrorResponse(ToApiError(queued.error()), ApiShape::kOpenAi);
  auto answers = std::make_shared<RunningAnswers>(context.service, channel, cancel, call->choices(), 0);
  if (call->settings.stream)
    return EventStream([&context, call, answers, gone = request.http.client_gone](const HttpWriter& write) {
      StreamCompletion(context, *call, *answers, gone, write);
    });
  CompletionChunks chunks(context, *call);
  std::optional<ApiError> error;
  while (const std::optional<AnswerPiece> piece = answers->Next(request.http.client_gone)) {
    if (piece->end.error) error = piece->end.error;
    chunks.Keep(*piece);
  }
  if (error) return ErrorResponse(*error, ApiShape::kOpenAi);
  return {200, "application/json", chunks.Whole()};
}

}  // namespace deltafin
