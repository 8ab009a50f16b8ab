// POST /v1/messages and /v1/messages/count_tokens: Anthropic's form of a chat.
#include <algorithm>

#include "server/chat_call.h"
#include "server/endpoints.h"
#include "server/json_text.h"
#include "server/sse_writer.h"
#include "server/token_json.h"
#include "text/chat_encoder.h"

namespace deltafin {
namespace {

// How far a budget of thinking tokens says that thinking should go: the model knows levels, not numbers.
constexpr int64_t kLowBudget = 4096, kHighBudget = 16384;
constexpr std::string_view kNoMedia = "only text is read: images, documents and other media are not supported";

// A string, or a list of text blocks; joined.
std::optional<std::string> TextOf(RequestFields& fields, std::string_view name) {
  const PythonJson* value = fields.Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->text;
  if (!value->is_array()) {
    fields.Fault(name, "a string or a list of text blocks");
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < value->items.size(); ++i) {
    RequestFields block(value->items[i], Cat(fields.Path(name), "[", i, "]"));
    const std::string type = block.String("type").value_or("");
    if (type != "text")
      block.Fault(ApiError{400, Cat(block.Path("type"), ": ", kNoMedia), block.Path("type"), "unsupported_content"});
    text += block.String("text").value_or("");
    block.Ignore({"cache_control", "citations"});
    if (std::optional<ApiError> fault = block.Finish()) fields.Fault(*fault);
  }
  return text;
}

// One message of the request may be several of the chat: results of tools are messages of their own there.
class MessageReader {
 public:
  MessageReader(std::vector<ChatMessage>& out) : out_(out) {}

  void Read(RequestFields& body, const PythonJson& message, const std::string& place) {
    RequestFields fields(message, place);
    const std::string role = fields.Choice("role", {"user", "assistant", "system"}).value_or("");
    if (role.empty()) fields.Fault("role", "user or assistant");
    message_ = TextMessage(role == "assistant" ? ChatRole::kAssistant
                           : role == "system"  ? ChatRole::kSystem
                                               : ChatRole::kUser,
                           "");
    message_.content.clear();
    const PythonJson* content = fields.Any("content");
    if (content == nullptr) fields.Fault("content", "a string or a list of blocks");
    if (content != nullptr && content->is_string())
      message_.content.push_back({ContentPart::Kind::kText, content->text});
    if (content != nullptr && content->is_array())
      for (size_t i = 0; i < content->items.size() && !fields.fault(); ++i)
        Block(fields, content->items[i], Cat(place, ".content[", i, "]"));
    if (content != nullptr && !content->is_array() && !content->is_string())
      fields.Fault("content", "a string or a list of blocks");
    if (std::optional<ApiError> fault = fields.Finish()) return body.Fault(*fault);
    const bool empty = message_.content.empty() && message_.tool_calls.empty() && message_.reasoning.empty();
    if (!empty || !had_results_) out_.push_back(std::move(message_));
    had_results_ = false;
  }

 private:
  void Block(RequestFields& message, const PythonJson& json, const std::string& place) {
    RequestFields block(json, place);
    const std::string type = block.String("type").value_or("");
    const bool assistant = message_.role == ChatRole::kAssistant;
    if (type == "text") {
      message_.content.push_back({ContentPart::Kind::kText, block.String("text").value_or("")});
      block.Ignore({"citations"});
    } else if (type == "thinking" && assistant) {
      message_.reasoning += block.String("thinking").value_or("");
      block.Ignore({"signature"});
    } else if (type == "tool_use" && assistant) {
      const std::string id = block.String("id").value_or(""), name = block.String("name").value_or("");
      const PythonJson* input = block.Object("input");
      if (!IsToolName(name)) block.Fault("name", "the name of a tool");
      message_.tool_calls.push_back({id, name, input == nullptr ? PythonJson::Object() : *input});
    } else if (type == "tool_result" && !assistant) {
      Result(block);
    } else {
      block.Fault(ApiError{400, Cat(place, ": a block of type \"", type.substr(0, 40), "\": ", kNoMedia), place,
                           "unsupported_content"});
    }
    block.Ignore({"cache_control"});
    if (std::optional<ApiError> fault = block.Finish()) message.Fault(*fault);
  }

  void Result(RequestFields& block) {
    const std::optional<std::string> id = block.String("tool_use_id");
    if (!id) block.Fault("tool_use_id", "the id of the call");
    std::string text = TextOf(block, "content").value_or("");
    if (block.Bool("is_error").value_or(false)) text = "Error: " + text;
    if (!message_.content.empty()) block.Fault("type", "results before other blocks");
    ChatMessage result = TextMessage(ChatRole::kTool, std::move(text));
    result.tool_call_id = id;
    out_.push_back(std::move(result));
    had_results_ = true;
  }

  std::vector<ChatMessage>& out_;
  ChatMessage message_;
  bool had_results_ = false;
};

void ReadAnthropicMessages(RequestFields& fields, const ServerContext& context, ChatCall* call) {
  if (const std::optional<std::string> system = TextOf(fields, "system"); system && !system->empty())
    call->messages.push_back(SystemMessage(*system));
  const PythonJson* list = fields.Array("messages");
  if (list == nullptr || list->items.empty()) return fields.Fault("messages", "a list of at least one message");
  if (std::ssize(list->items) > context.limits.messages)
    return fields.Fault("messages", Cat("at most ", context.limits.messages, " messages"));
  MessageReader reader(call->messages);
  for (size_t i = 0; i < list->items.size() && !fields.fault(); ++i)
    reader.Read(fields, list->items[i], Cat("messages[", i, "]"));
  // An assistant message at the end is begun, and to be continued.
  if (!fields.fault() && call->messages.back().role == ChatRole::kAssistant && call->messages.back().tool_calls.empty())
    call->messages.back().partial = true;
}

void ReadAnthropicTools(RequestFields& fields, const ServerContext& context, ChatCall* call) {
  const PythonJson* list = fields.Array("tools");
  if (list == nullptr) return;
  if (std::ssize(list->items) > context.limits.tools)
    return fields.Fault("tools", Cat("at most ", context.limits.tools, " tools"));
  call->options.tools = PythonJson::Array();
  for (size_t i = 0; i < list->items.size(); ++i) {
    RequestFields tool(list->items[i], Cat("tools[", i, "]"));
    if (const std::optional<std::string> type = tool.String("type"); type && *type != "custom")
      tool.Fault(ApiError{400, Cat(tool.Path("type"), ": only tools of the client (custom) are supported"),
                          tool.Path("type"), "unsupported_value"});
    PythonJson function = PythonJson::Object();
    const std::string name = tool.String("name").value_or("");
    if (!IsToolName(name)) tool.Fault("name", "1 to 256 letters, digits, '_', '-' or '.', the first one no digit");
    function.members.push_back({"name", JsonOf(name)});
    if (const std::optional<std::string> text = tool.String("description"))
      function.members.push_back({"description", JsonOf(*text)});
    const PythonJson* schema = tool.Object("input_schema");
    if (schema != nullptr) function.members.push_back({"parameters", *schema});
    const bool strict = tool.Bool("strict").value_or(false);
    tool.Ignore({"cache_control", "eager_input_streaming"});
    if (schema != nullptr && std::ssize(JsonText(*schema)) > context.limits.schema_bytes)
      tool.Fault("input_schema", Cat("a schema of at most ", context.limits.schema_bytes, " bytes"));
    if (std::optional<ApiError> fault = tool.Finish()) return fields.Fault(*fault);
    const auto same = [&](const DeclaredTool& other) { return other.name == name; };
    if (std::any_of(call->tools.begin(), call->tools.end(), same))
      return fields.Fault(Cat("tools[", i, "].name"), "a name that was not declared already");
    call->options.tools.items.push_back(JsonObject({{"type", JsonOf("function")}, {"function", function}}));
    call->tools.push_back({name, schema == nullptr ? PythonJson() : *schema, strict});
  }
}

void ReadAnthropicChoice(RequestFields& fields, ChatCall* call) {
  const PythonJson* object = fields.Object("tool_choice");
  if (object == nullptr) return;
  RequestFields choice(*object, "tool_choice");
  const std::string type = choice.Choice("type", {"auto", "any", "tool", "none"}).value_or("");
  if (type.empty()) choice.Fault("type", "auto, any, tool or none");
  if (type == "none") call->options.tool_choice = ToolChoice::kNone;
  if (type == "any" || type == "tool") call->options.tool_choice = ToolChoice::kRequired;
  if (type == "any" && call->tools.empty()) choice.Fault("type", "tools beside it");
  const std::optional<std::string> name = choice.String("name");
  if (type == "tool") {
    call->named_tool = name.value_or("");
    const auto same = [&](const DeclaredTool& tool) { return tool.name == call->named_tool; };
    if (std::none_of(call->tools.begin(), call->tools.end(), same)) choice.Fault("name", "the name of a declared tool");
  }
  call->one_call = choice.Bool("disable_parallel_tool_use").value_or(false);
  if (std::optional<ApiError> fault = choice.Finish()) fields.Fault(*fault);
}

// As in the API thinking is off unless asked for.
void ReadAnthropicThinking(RequestFields& fields, ChatOptions* options) {
  options->thinking = false;
  if (const PythonJson* object = fields.Object("thinking")) {
    RequestFields thinking(*object, "thinking");
    const std::string type = thinking.Choice("type", {"enabled", "disabled", "adaptive"}).value_or("");
    if (type.empty()) thinking.Fault("type", "enabled, disabled or adaptive");
    options->thinking = type != "disabled";
    const std::optional<int64_t> budget = thinking.Whole("budget_tokens", 1, INT32_MAX);
    if (budget)
      options->effort = *budget < kLowBudget    ? ThinkingEffort::kLow
                        : *budget < kHighBudget ? ThinkingEffort::kHigh
                                                : ThinkingEffort::kMax;
    thinking.Choice("display", {"summarized", "omitted"});
    if (std::optional<ApiError> fault = thinking.Finish()) fields.Fault(*fault);
  }
}

// output_config: effort, and a schema that the answer keeps to.
void ReadOutputConfig(RequestFields& fields, const RequestLimits& limits, ChatOptions* options) {
  const PythonJson* object = fields.Object("output_config");
  if (object == nullptr) return;
  RequestFields config(*object, "output_config");
  if (const std::optional<std::string> effort = config.Choice("effort", {"low", "high", "max"}); effort)
    options->effort = ParseThinkingEffort(*effort).value_or(ThinkingEffort::kMax);
  if (const PythonJson* inner = config.Object("format")) {
    RequestFields format(*inner, "output_config.format");
    if (!format.Choice("type", {"json_schema"})) format.Fault("type", "\"json_schema\"");
    const PythonJson* schema = format.Object("schema");
    if (schema == nullptr || std::ssize(JsonText(*schema)) > limits.schema_bytes)
      format.Fault("schema", Cat("an object of at most ", limits.schema_bytes, " bytes"));
    else
      options->response_format = {ResponseFormat::Kind::kJsonSchema, *schema};
    if (std::optional<ApiError> fault = format.Finish()) config.Fault(*fault);
  }
  if (std::optional<ApiError> fault = config.Finish()) fields.Fault(*fault);
}

std::optional<ApiError> Read(const ServerContext& context, const PythonJson& body, bool count_only, ChatCall* call) {
  RequestFields fields(body, "");
  CheckModel(fields, context);
  ReadAnthropicMessages(fields, context, call);
  ReadAnthropicTools(fields, context, call);
  ReadAnthropicChoice(fields, call);
  ReadAnthropicThinking(fields, &call->options);
  ReadOutputConfig(fields, context.limits, &call->options);
  if (count_only) return fields.Finish();
  const std::optional<int64_t> most = fields.Whole("max_tokens", 1, INT32_MAX);
  if (!most) fields.Fault("max_tokens", "a whole number from 1");
  call->settings.max_new = most.value_or(1);
  ReadSampling(fields, context.defaults, &call->settings.sampling);
  ReadStops(fields, "stop_sequences", context.limits, &call->settings.stops);
  call->settings.stream = fields.Bool("stream").value_or(false);
  fields.Ignore({"metadata", "cache_control"});
  fields.Refuse("service_tier", "there is one tier", {"\"auto\"", "\"standard_only\""});
  fields.Refuse("container", "not supported");
  fields.Refuse("mcp_servers", "the server calls no tools itself", {"[]"});
  return fields.Finish();
}

std::string StopReasonText(const AnswerEnd& end) {
  const char* reason = "end_turn";
  if (!end.stop_string.empty())
    reason = "stop_sequence";
  else if (end.finish == "length")
    reason = "max_tokens";
  else if (end.finish == "tool_calls")
    reason = "tool_use";
  return Cat("\"stop_reason\": \"", reason,
             "\", \"stop_sequence\": ", end.stop_string.empty() ? "null" : JsonString(end.stop_string));
}

// What the prefix cache had is not counted as input.
std::string UsageText(const AnswerEnd& end) {
  return Cat("{\"input_tokens\": ", end.prompt_tokens - end.cached_tokens,
             ", \"cache_creation_input_tokens\": 0, \"cache_read_input_tokens\": ", end.cached_tokens,
             ", \"output_tokens\": ", end.new_tokens, "}");
}

std::string InputText(const ParsedToolCall& call) {
  if (!call.raw_arguments) return JsonText(call.arguments);
  const Result<PythonJson> parsed = ParsePythonJson(*call.raw_arguments);
  if (parsed && parsed->is_object()) return JsonText(*parsed);
  return JsonText(JsonObject({{"arguments", JsonOf(*call.raw_arguments)}}));
}

std::string MessageHead(const ServerContext& context) {
  return Cat("\"id\": ", JsonString(NewId("msg_")),
             ", \"type\": \"message\", \"role\": \"assistant\", \"model\": ", JsonString(context.model));
}

std::string WholeMessage(const ServerContext& context, const WholeAnswer& answer) {
  std::vector<std::string> blocks;
  if (!answer.reasoning.empty())
    blocks.push_back(
        Cat("{\"type\": \"thinking\", \"thinking\": ", JsonString(answer.reasoning), ", \"signature\": \"\"}"));
  if (!answer.content.empty())
    blocks.push_back(Cat("{\"type\": \"text\", \"text\": ", JsonString(answer.content), "}"));
  for (const ParsedToolCall& call : answer.calls)
    blocks.push_back(Cat("{\"type\": \"tool_use\", \"id\": ", JsonString(NewId("toolu_")),
                         ", \"name\": ", JsonString(call.name), ", \"input\": ", InputText(call), "}"));
  std::string content;
  for (const std::string& block : blocks) content += (content.empty() ? "" : ", ") + block;
  return Cat("{", MessageHead(context), ", \"content\": [", content, "], ", StopReasonText(answer.end),
             ", \"usage\": ", UsageText(answer.end), "}");
}

// The events of one streamed message.
class MessageEvents {
 public:
  MessageEvents(const ServerContext& context, int64_t prompt_tokens, SseWriter& out) : out_(out) {
    Event("message_start", Cat("\"message\": {", MessageHead(context),
                               ", \"content\": [], \"stop_reason\": null, \"stop_sequence\": null, \"usage\": "
                               "{\"input_tokens\": ",
                               prompt_tokens, ", \"output_tokens\": 0}}"));
  }

  void Write(const AnswerPiece& piece) {
    switch (piece.kind) {
      case AnswerPiece::Kind::kProgress:
        out_.Progress(piece);
        break;
      case AnswerPiece::Kind::kReasoning:
        Open(Block::kThinking, "{\"type\": \"thinking\", \"thinking\": \"\", \"signature\": \"\"}");
        Delta(Cat("{\"type\": \"thinking_delta\", \"thinking\": ", JsonString(piece.text), "}"));
        break;
      case AnswerPiece::Kind::kContent:
        if (piece.text.empty()) break;
        Open(Block::kText, "{\"type\": \"text\", \"text\": \"\"}");
        Delta(Cat("{\"type\": \"text_delta\", \"text\": ", JsonString(piece.text), "}"));
        break;
      case AnswerPiece::Kind::kToolCall:
        CloseBlock();
        Open(Block::kCall, Cat("{\"type\": \"tool_use\", \"id\": ", JsonString(NewId("toolu_")),
                               ", \"name\": ", JsonString(piece.call.name), ", \"input\": {}}"));
        Delta(Cat("{\"type\": \"input_json_delta\", \"partial_json\": ", JsonString(InputText(piece.call)), "}"));
        CloseBlock();
        break;
      case AnswerPiece::Kind::kEnd:
        End(piece.end);
        break;
    }
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kCall };

  void Event(const char* name, const std::string& rest) {
    out_.EndProgress();
    out_.Event(name, Cat("{\"type\": \"", name, "\"", rest.empty() ? "" : ", ", rest, "}"));
  }
  void Open(Block block, const std::string& start) {
    if (block_ == block) return;
    CloseBlock();
    block_ = block;
    Event("content_block_start", Cat("\"index\": ", index_, ", \"content_block\": ", start));
  }
  void Delta(const std::string& delta) {
    Event("content_block_delta", Cat("\"index\": ", index_, ", \"delta\": ", delta));
  }
  void CloseBlock() {
    if (block_ == Block::kNone) return;
    block_ = Block::kNone;
    Event("content_block_stop", Cat("\"index\": ", index_++));
  }
  void End(const AnswerEnd& end) {
    CloseBlock();
    if (end.error) {
      out_.Event("error", ErrorBody(*end.error, ApiShape::kAnthropic));
      return;
    }
    Event("message_delta", Cat("\"delta\": {", StopReasonText(end), "}, \"usage\": ", UsageText(end)));
    Event("message_stop", "");
  }

  SseWriter& out_;
  Block block_ = Block::kNone;
  int64_t index_ = 0;
};

}  // namespace

HttpResponse Messages(const ServerContext& context, const ApiRequest& request) {
  ChatCall call;
  std::optional<ApiError> error = Read(context, request.body, false, &call);
  if (error) return ErrorResponse(*error, ApiShape::kAnthropic);
  const bool stream = call.settings.stream;
  std::shared_ptr<RunningAnswers> answers = StartChat(context, request.client, std::move(call), &error);
  if (answers == nullptr) return ErrorResponse(*error, ApiShape::kAnthropic);
  if (stream) {
    return EventStream([&context, answers, gone = request.http.client_gone](const HttpWriter& write) {
      SseWriter out(write, context.comment_seconds);
      MessageEvents events(context, answers->prompt_tokens(), out);
      while (out.ok()) {
        const std::optional<AnswerPiece> piece = answers->Next(gone, [&] { out.Idle(); });
        if (!piece) break;
        events.Write(*piece);
      }
    });
  }
  const std::vector<WholeAnswer> whole = CollectAnswers(*answers, request.http.client_gone, &error);
  if (error) return ErrorResponse(*error, ApiShape::kAnthropic);
  if (whole.empty()) return ErrorResponse({400, "the client has gone"}, ApiShape::kAnthropic);
  return {200, "application/json", WholeMessage(context, whole[0])};
}

HttpResponse CountMessageTokens(const ServerContext& context, const ApiRequest& request) {
  ChatCall call;
  const std::optional<ApiError> error = Read(context, request.body, true, &call);
  if (error) return ErrorResponse(*error, ApiShape::kAnthropic);
  const Result<ChatPrompt> prompt = RenderChat(call.messages, call.options);
  if (!prompt) return ErrorResponse({400, prompt.error().message()}, ApiShape::kAnthropic);
  const Result<std::vector<TokenId>> ids = EncodeSegments(context.tokenizer, prompt->segments);
  if (!ids) return ErrorResponse(ToApiError(ids.error()), ApiShape::kAnthropic);
  return {200, "application/json", Cat("{\"input_tokens\": ", ids->size(), "}")};
}

}  // namespace deltafin
