// POST /v1/responses: text and function calls. Nothing is stored, so a conversation comes whole with each request.
#include <algorithm>

#include "server/chat_call.h"
#include "server/endpoints.h"
#include "server/json_text.h"
#include "server/response_items.h"
#include "server/sse_writer.h"
#include "server/token_json.h"

namespace deltafin {
namespace {

void ReadRest(RequestFields& fields) {
  fields.Ignore({"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"});
  // Whether or not it is asked for, nothing is stored: a later request that refers to it is refused.
  fields.Refuse("store", "answers are not stored", {"false"});
  fields.Refuse("previous_response_id", "answers are not stored: send the conversation as input");
  fields.Refuse("conversation", "answers are not stored: send the conversation as input");
  fields.Refuse("background", "not supported", {"false"});
  fields.Refuse("truncation", "nothing is left out of a conversation", {"\"disabled\""});
  fields.Refuse("service_tier", "there is one tier", {"\"auto\"", "\"default\""});
  fields.Refuse("include", "only reasoning.encrypted_content is known, and it is empty",
                {"[]", "[\"reasoning.encrypted_content\"]"});
  fields.Refuse("top_logprobs", "not supported here: use /v1/chat/completions", {"0"});
  fields.Refuse("max_tool_calls", "the server calls no tools itself");
  fields.Refuse("prompt", "there are no stored prompts");
}

void ReadReasoning(RequestFields& fields, ChatOptions* options) {
  const PythonJson* object = fields.Object("reasoning");
  if (object == nullptr) return;
  RequestFields reasoning(*object, "reasoning");
  if (const std::optional<std::string> effort = reasoning.String("effort")) {
    const Result<ThinkingEffort> parsed = ParseThinkingEffort(*effort);
    if (*effort == "none")
      options->thinking = false;
    else if (!parsed)
      reasoning.Fault("effort", "none, low, high or max: the model has no other level");
    else
      options->effort = *parsed;
  }
  reasoning.Refuse("summary", "thoughts are given whole, not summarised", {"\"auto\""});
  if (std::optional<ApiError> fault = reasoning.Finish()) fields.Fault(*fault);
}

// text.format is response_format with the schema one level up.
void ReadTextFormat(RequestFields& fields, const RequestLimits& limits, ResponseFormat* format) {
  const PythonJson* object = fields.Object("text");
  if (object == nullptr) return;
  RequestFields text(*object, "text");
  text.Refuse("verbosity", "the model has no such setting", {"\"medium\""});
  if (const PythonJson* inner = text.Object("format")) {
    RequestFields one(*inner, "text.format");
    const std::string type = one.Choice("type", {"text", "json_object", "json_schema"}).value_or("");
    if (type.empty()) one.Fault("type", "text, json_object or json_schema");
    const bool has_name = one.String("name").has_value();
    const PythonJson* schema = one.Object("schema");
    one.Bool("strict");
    one.String("description");
    if (type == "json_object") format->kind = ResponseFormat::Kind::kJsonObject;
    if (type == "json_schema") {
      if (!has_name) one.Fault("name", "a string");
      if (schema == nullptr)
        one.Fault("schema", "an object");
      else if (std::ssize(JsonText(*schema)) > limits.schema_bytes)
        one.Fault("schema", Cat("at most ", limits.schema_bytes, " bytes"));
      else
        *format = {ResponseFormat::Kind::kJsonSchema, *schema};
    }
    if (std::optional<ApiError> fault = one.Finish()) text.Fault(*fault);
  }
  if (std::optional<ApiError> fault = text.Finish()) fields.Fault(*fault);
}

std::optional<ApiError> Read(const ServerContext& context, const PythonJson& body, ChatCall* call) {
  RequestFields fields(body, "");
  CheckModel(fields, context);
  if (const std::optional<std::string> text = fields.String("instructions"); text && !text->empty())
    call->messages.push_back(SystemMessage(*text));
  ReadResponseInput(fields, context.limits, &call->messages);
  ReadResponseTools(fields, context.limits, call);
  call->one_call = !fields.Bool("parallel_tool_calls").value_or(true);
  ReadReasoning(fields, &call->options);
  ReadTextFormat(fields, context.limits, &call->options.response_format);
  ReadSampling(fields, context.defaults, &call->settings.sampling);
  call->settings.max_new = fields.Whole("max_output_tokens", 1, INT32_MAX).value_or(0);
  call->settings.max_new_field = "max_output_tokens";
  call->settings.stream = fields.Bool("stream").value_or(false);
  if (const PythonJson* options = fields.Object("stream_options")) {
    RequestFields inner(*options, "stream_options");
    inner.Ignore({"include_obfuscation"});
    if (std::optional<ApiError> fault = inner.Finish()) fields.Fault(*fault);
  }
  ReadRest(fields);
  return fields.Finish();
}

// What a response says of its request, and of itself.
struct ResponseText {
  std::string id = NewId("resp_"), model, tools, choice, format, effort, instructions, max_output = "null";
  int64_t created = SecondsSince1970();
  bool parallel = true;
  double temperature = 0, top_p = 1;

  std::string Write(const std::string& status, const std::string& output, const AnswerEnd* end) const {
    const bool cut = status == "incomplete";
    std::string usage = "null";
    if (end != nullptr)
      usage = Cat("{\"input_tokens\": ", end->prompt_tokens,
                  ", \"input_tokens_details\": {\"cached_tokens\": ", end->cached_tokens,
                  "}, \"output_tokens\": ", end->new_tokens,
                  ", \"output_tokens_details\": {\"reasoning_tokens\": ", end->reasoning_tokens,
                  "}, \"total_tokens\": ", end->prompt_tokens + end->new_tokens, "}");
    return Cat("{\"id\": ", JsonString(id), ", \"object\": \"response\", \"created_at\": ", created, ", \"status\": \"",
               status,
               "\", \"error\": null, \"incomplete_details\": ", cut ? "{\"reason\": \"max_output_tokens\"}" : "null",
               ", \"instructions\": ", instructions, ", \"max_output_tokens\": ", max_output,
               ", \"model\": ", JsonString(model), ", \"output\": [", output,
               "], \"parallel_tool_calls\": ", parallel ? "true" : "false",
               ", \"previous_response_id\": null, \"reasoning\": {\"effort\": ", effort,
               ", \"summary\": null}, \"store\": false, \"temperature\": ", PythonFloatText(temperature),
               ", \"text\": {\"format\": ", format, "}, \"tool_choice\": ", choice, ", \"tools\": ", tools,
               ", \"top_p\": ", PythonFloatText(top_p), ", \"truncation\": \"disabled\", \"usage\": ", usage,
               ", \"user\": null, \"metadata\": {}}");
  }
};

ResponseText TextFor(const ServerContext& context, const PythonJson& body, const ChatCall& call) {
  ResponseText text;
  const auto echo = [&](std::string_view name, const char* otherwise) {
    const PythonJson* value = body.Find(name);
    return value == nullptr || value->is_null() ? std::string(otherwise) : JsonText(*value);
  };
  text.model = context.model;
  text.tools = echo("tools", "[]");
  text.choice = echo("tool_choice", "\"auto\"");
  text.instructions = echo("instructions", "null");
  text.max_output = echo("max_output_tokens", "null");
  const PythonJson* format = body.Find("text") == nullptr ? nullptr : body.Find("text")->Find("format");
  text.format = format == nullptr || format->is_null() ? "{\"type\": \"text\"}" : JsonText(*format);
  text.effort = call.options.thinking ? JsonString(ToString(call.options.effort)) : "\"none\"";
  text.parallel = !call.one_call;
  text.temperature = call.settings.sampling.temperature;
  text.top_p = call.settings.sampling.top_p;
  return text;
}

// Writes the events of a stream, or none, and keeps the items of the output either way.
class ResponseEvents {
 public:
  ResponseEvents(ResponseText text, SseWriter* out) : text_(std::move(text)), out_(out) {
    Event("response.created", Cat("\"response\": ", text_.Write("in_progress", "", nullptr)));
    Event("response.in_progress", Cat("\"response\": ", text_.Write("in_progress", "", nullptr)));
  }

  void Write(const AnswerPiece& piece) {
    switch (piece.kind) {
      case AnswerPiece::Kind::kProgress:
        if (out_ != nullptr) out_->Progress(piece);
        break;
      case AnswerPiece::Kind::kReasoning:
        Text(Item::kReasoning, piece.text);
        break;
      case AnswerPiece::Kind::kContent:
        if (!piece.text.empty()) Text(Item::kMessage, piece.text);
        break;
      case AnswerPiece::Kind::kToolCall:
        Call(piece.call);
        break;
      case AnswerPiece::Kind::kEnd:
        End(piece.end);
        break;
    }
  }
  const std::string& body() const { return body_; }

 private:
  enum class Item : uint8_t { kNone, kReasoning, kMessage };

  void Event(const std::string& name, const std::string& rest) {
    if (out_ == nullptr) return;
    out_->EndProgress();
    out_->Event(name, Cat("{\"type\": \"", name, "\", \"sequence_number\": ", sequence_++, ", ", rest, "}"));
  }
  std::string At() const {
    return Cat("\"item_id\": ", JsonString(item_id_), ", \"output_index\": ", index_, ", \"content_index\": 0");
  }
  std::string Part(const std::string& text) const {
    if (item_ == Item::kReasoning) return Cat("{\"type\": \"reasoning_text\", \"text\": ", JsonString(text), "}");
    return Cat("{\"type\": \"output_text\", \"text\": ", JsonString(text), ", \"annotations\": [], \"logprobs\": []}");
  }
  std::string ItemText(const char* status, const std::string& content) const {
    const char* rest = item_ == Item::kReasoning ? "\"type\": \"reasoning\", \"summary\": []"
                                                 : "\"type\": \"message\", \"role\": \"assistant\"";
    return Cat("{\"id\": ", JsonString(item_id_), ", ", rest, ", \"status\": \"", status, "\", \"content\": [", content,
               "]}");
  }
  const char* Name() const { return item_ == Item::kReasoning ? "response.reasoning_text" : "response.output_text"; }

  void Text(Item item, const std::string& piece) {
    if (item_ != item) {
      CloseItem("completed");
      item_ = item;
      item_id_ = NewId(item == Item::kReasoning ? "rs_" : "msg_");
      Event("response.output_item.added",
            Cat("\"output_index\": ", index_, ", \"item\": ", ItemText("in_progress", "")));
      Event("response.content_part.added", Cat(At(), ", \"part\": ", Part("")));
    }
    written_ += piece;
    Event(Cat(Name(), ".delta"), Cat(At(), ", \"delta\": ", JsonString(piece), ", \"logprobs\": []"));
  }

  void CloseItem(const char* status) {
    if (item_ == Item::kNone) return;
    Event(Cat(Name(), ".done"), Cat(At(), ", \"text\": ", JsonString(written_), ", \"logprobs\": []"));
    Event("response.content_part.done", Cat(At(), ", \"part\": ", Part(written_)));
    Keep(ItemText(status, Part(written_)));
    item_ = Item::kNone;
    written_.clear();
  }

  void Keep(const std::string& item) {
    Event("response.output_item.done", Cat("\"output_index\": ", index_, ", \"item\": ", item));
    output_ += (output_.empty() ? "" : ", ") + item;
    ++index_;
  }

  void Call(const ParsedToolCall& call) {
    CloseItem("completed");
    item_id_ = NewId("fc_");
    const std::string arguments = JsonString(call.ArgumentsText()), call_id = NewId("call_");
    const auto item = [&](const char* status, const std::string& text) {
      return Cat("{\"id\": ", JsonString(item_id_), ", \"type\": \"function_call\", \"status\": \"", status,
                 "\", \"call_id\": ", JsonString(call_id), ", \"name\": ", JsonString(call.name),
                 ", \"arguments\": ", text, "}");
    };
    const std::string at = Cat("\"item_id\": ", JsonString(item_id_), ", \"output_index\": ", index_);
    Event("response.output_item.added", Cat("\"output_index\": ", index_, ", \"item\": ", item("in_progress", "\"\"")));
    Event("response.function_call_arguments.delta", Cat(at, ", \"delta\": ", arguments));
    Event("response.function_call_arguments.done",
          Cat(at, ", \"name\": ", JsonString(call.name), ", \"arguments\": ", arguments));
    Keep(item("completed", arguments));
  }

  void End(const AnswerEnd& end) {
    if (end.error) {
      Event("error",
            Cat("\"code\": \"server_error\", \"message\": ", JsonString(end.error->message), ", \"param\": null"));
      return;
    }
    const bool cut = end.finish == "length";
    CloseItem(cut ? "incomplete" : "completed");
    const char* status = cut ? "incomplete" : "completed";
    body_ = text_.Write(status, output_, &end);
    Event(Cat("response.", status), Cat("\"response\": ", body_));
  }

  const ResponseText text_;
  SseWriter* out_;  // null: not streamed
  int64_t sequence_ = 0, index_ = 0;
  Item item_ = Item::kNone;
  std::string item_id_, written_, output_, body_;
};

}  // namespace

HttpResponse Responses(const ServerContext& context, const ApiRequest& request) {
  ChatCall call;
  std::optional<ApiError> error = Read(context, request.body, &call);
  if (error) return ErrorResponse(*error, ApiShape::kOpenAi);
  const ResponseText text = TextFor(context, request.body, call);
  const bool stream = call.settings.stream;
  std::shared_ptr<RunningAnswers> answers = StartChat(context, request.client, std::move(call), &error);
  if (answers == nullptr) return ErrorResponse(*error, ApiShape::kOpenAi);
  if (stream) {
    return EventStream([&context, answers, text, gone = request.http.client_gone](const HttpWriter& write) {
      SseWriter out(write, context.comment_seconds);
      ResponseEvents events(text, &out);
      while (out.ok()) {
        const std::optional<AnswerPiece> piece = answers->Next(gone, [&] { out.Idle(); });
        if (!piece) break;
        events.Write(*piece);
      }
    });
  }
  ResponseEvents whole(text, nullptr);
  while (const std::optional<AnswerPiece> piece = answers->Next(request.http.client_gone)) {
    if (piece->end.error) return ErrorResponse(*piece->end.error, ApiShape::kOpenAi);
    whole.Write(*piece);
  }
  return {200, "application/json", whole.body()};
}

}  // namespace deltafin
