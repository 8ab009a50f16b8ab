// POST /v1/chat/completions.
#include <algorithm>

#include "server/chat_call.h"
#include "server/endpoints.h"
#include "server/json_text.h"
#include "server/sse_writer.h"
#include "server/token_json.h"

namespace deltafin {
namespace {

void ReadTokenLimit(RequestFields& fields, GenerationSettings* settings) {
  const std::optional<int64_t> older = fields.Whole("max_tokens", 1, INT32_MAX);
  const std::optional<int64_t> newer = fields.Whole("max_completion_tokens", 1, INT32_MAX);
  settings->max_new = newer.value_or(older.value_or(0));
  if (newer) settings->max_new_field = "max_completion_tokens";
}

void ReadScores(RequestFields& fields, GenerationSettings* settings) {
  const bool scores = fields.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.Whole("top_logprobs", 0, 20);
  if (top && !scores) fields.Fault("top_logprobs", "logprobs: true beside it");
  if (scores) settings->top_scores = top.value_or(0);
}

void ReadRest(RequestFields& fields) {
  fields.Ignore({"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"});
  fields.Refuse("store", "answers are not stored", {"false"});
  fields.Refuse("service_tier", "there is one tier", {"\"auto\"", "\"default\""});
  fields.Refuse("modalities", "only text is written", {"[\"text\"]"});
  fields.Refuse("audio", "only text is written");
  fields.Refuse("prediction", "not supported");
  fields.Refuse("functions", "the older form of tools: use tools");
  fields.Refuse("function_call", "the older form of tool_choice: use tool_choice");
  fields.Refuse("verbosity", "the model has no such setting", {"\"medium\""});
  fields.Refuse("web_search_options", "the server does not search");
}

std::optional<ApiError> Read(const ServerContext& context, const PythonJson& body, ChatCall* call) {
  RequestFields fields(body, "");
  CheckModel(fields, context);
  call->messages = ReadMessages(fields, context.limits);
  call->tools = ReadTools(fields, context.limits, call->messages, &call->options);
  ReadToolChoice(fields, call->tools, &call->options, &call->named_tool);
  call->one_call = !fields.Bool("parallel_tool_calls").value_or(true);
  ReadThinking(fields, &call->options);
  ReadResponseFormat(fields, context.limits, &call->options.response_format);
  ReadCommonSettings(fields, context, &call->settings);
  ReadTokenLimit(fields, &call->settings);
  ReadScores(fields, &call->settings);
  ReadRest(fields);
  return fields.Finish();
}

std::string UsageText(const TokenUsage& usage) {
  return Cat("{\"prompt_tokens\": ", usage.prompt, ", \"completion_tokens\": ", usage.completion,
             ", \"total_tokens\": ", usage.prompt + usage.completion,
             ", \"prompt_tokens_details\": {\"cached_tokens\": ", usage.cached,
             "}, \"completion_tokens_details\": {\"reasoning_tokens\": ", usage.reasoning, "}}");
}

std::string CallText(const ParsedToolCall& call, const std::string& id) {
  return Cat("\"id\": ", JsonString(id), ", \"type\": \"function\", \"function\": {\"name\": ", JsonString(call.name),
             ", \"arguments\": ", JsonString(call.ArgumentsText()), "}");
}

std::string ChoiceText(const ServerContext& context, const WholeAnswer& answer, size_t index, bool scores) {
  std::string message = "{\"role\": \"assistant\", \"content\": ";
  message += answer.content.empty() ? "null" : JsonString(answer.content);
  if (!answer.reasoning.empty()) message += ", \"reasoning_content\": " + JsonString(answer.reasoning);
  if (!answer.calls.empty()) {
    message += ", \"tool_calls\": [";
    for (size_t i = 0; i < answer.calls.size(); ++i)
      message += Cat(i == 0 ? "{" : ", {", CallText(answer.calls[i], NewId("call_")), "}");
    message += "]";
  }
  return Cat("{\"index\": ", index, ", \"message\": ", message, "}, \"logprobs\": ",
             scores ? Cat("{\"content\": ", ScoresJson(context.tokenizer, answer.tokens), "}") : "null",
             ", \"finish_reason\": ", JsonString(answer.end.finish), "}");
}

// The chunks of one streamed request.
class ChunkWriter {
 public:
  ChunkWriter(const ServerContext& context, const GenerationSettings& settings, SseWriter& out)
      : context_(context), settings_(settings), out_(out) {
    head_ = Cat("{\"id\": ", JsonString(NewId("chatcmpl-")),
                ", \"object\": \"chat.completion.chunk\", \"created\": ", SecondsSince1970(),
                ", \"model\": ", JsonString(context.model), ", \"choices\": [");
    calls_.resize(static_cast<size_t>(settings.choices));
    for (int64_t i = 0; i < settings.choices; ++i) Delta(i, "\"role\": \"assistant\", \"content\": \"\"", {});
  }

  void Write(const AnswerPiece& piece) {
    switch (piece.kind) {
      case AnswerPiece::Kind::kProgress:
        out_.Progress(piece);
        break;
      case AnswerPiece::Kind::kReasoning:
        Delta(piece.choice, "\"reasoning_content\": " + JsonString(piece.text), {});
        break;
      case AnswerPiece::Kind::kContent:
        Delta(piece.choice, "\"content\": " + JsonString(piece.text), piece.tokens);
        break;
      case AnswerPiece::Kind::kToolCall:
        Delta(piece.choice,
              Cat("\"tool_calls\": [{\"index\": ", calls_[static_cast<size_t>(piece.choice)]++, ", ",
                  CallText(piece.call, NewId("call_")), "}]"),
              {});
        break;
      case AnswerPiece::Kind::kEnd:
        End(piece);
        break;
    }
  }

  bool failed() const { return failed_; }
  void Finish() {
    if (settings_.include_usage) out_.Data(Cat(head_, "], \"usage\": ", UsageText(usage_), "}"));
    out_.Data("[DONE]");
  }

 private:
  void Delta(int64_t choice, const std::string& delta, const std::vector<ScoredToken>& tokens) {
    out_.EndProgress();
    const std::string scores =
        tokens.empty() ? "null" : Cat("{\"content\": ", ScoresJson(context_.tokenizer, tokens), "}");
    out_.Data(Cat(head_, "{\"index\": ", choice, ", \"delta\": {", delta, "}, \"logprobs\": ", scores,
                  ", \"finish_reason\": null}]", usage_null(), "}"));
  }
  void End(const AnswerPiece& piece) {
    if (piece.end.error) {
      if (!failed_) out_.Data(ErrorBody(*piece.end.error, ApiShape::kOpenAi));
      failed_ = true;
      return;
    }
    usage_.Add(piece.end);
    out_.Data(Cat(head_, "{\"index\": ", piece.choice, ", \"delta\": {}, \"logprobs\": null, \"finish_reason\": ",
                  JsonString(piece.end.finish), "}]", usage_null(), "}"));
  }
  const char* usage_null() const { return settings_.include_usage ? ", \"usage\": null" : ""; }

  const ServerContext& context_;
  const GenerationSettings& settings_;
  SseWriter& out_;
  std::string head_;
  std::vector<int64_t> calls_;  // by choice, so far
  TokenUsage usage_;
  bool failed_ = false;
};

}  // namespace

HttpResponse ChatCompletions(const ServerContext& context, const ApiRequest& request) {
  ChatCall call;
  std::optional<ApiError> error = Read(context, request.body, &call);
  if (error) return ErrorResponse(*error, ApiShape::kOpenAi);
  const GenerationSettings settings = call.settings;
  std::shared_ptr<RunningAnswers> answers = StartChat(context, request.client, std::move(call), &error);
  if (answers == nullptr) return ErrorResponse(*error, ApiShape::kOpenAi);
  if (settings.stream) {
    return EventStream([&context, settings, answers, gone = request.http.client_gone](const HttpWriter& write) {
      SseWriter out(write, context.comment_seconds);
      ChunkWriter chunks(context, settings, out);
      while (out.ok()) {
        const std::optional<AnswerPiece> piece = answers->Next(gone, [&] { out.Idle(); });
        if (!piece) break;
        chunks.Write(*piece);
      }
      if (answers->ended() && !chunks.failed()) chunks.Finish();
    });
  }
  const std::vector<WholeAnswer> whole = CollectAnswers(*answers, request.http.client_gone, &error);
  if (error) return ErrorResponse(*error, ApiShape::kOpenAi);
  std::string choices;
  TokenUsage usage;
  for (size_t i = 0; i < whole.size(); ++i) {
    choices += Cat(i == 0 ? "" : ", ", ChoiceText(context, whole[i], i, settings.top_scores >= 0));
    usage.Add(whole[i].end);
  }
  return {200, "application/json",
          Cat("{\"id\": ", JsonString(NewId("chatcmpl-")), ", \"object\": \"chat.completion\", \"created\": ",
              SecondsSince1970(), ", \"model\": ", JsonString(context.model), ", \"choices\": [", choices,
              "], \"usage\": ", UsageText(usage), "}")};
}

}  // namespace deltafin
