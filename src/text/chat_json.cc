#include "text/chat_json.h"

#include <optional>
#include <string>
#include <utility>

namespace deltafin {

namespace {

// null counts as absent.
const PythonJson* FindValue(const PythonJson& object, std::string_view key) {
  const PythonJson* value = object.Find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

Failure Expected(std::string_view what, std::string_view expected) {
  return Fail(ErrorCode::kInvalidArgument, what, ": expected ", expected);
}

// "" when absent or null.
Result<std::string> StringOf(const PythonJson& object, std::string_view key) {
  const PythonJson* value = FindValue(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return Expected(key, "a string");
  return value->text;
}

Result<bool> BoolOf(const PythonJson& object, std::string_view key, bool otherwise) {
  const PythonJson* value = FindValue(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) return Expected(key, "true or false");
  return value->boolean;
}

Result<PythonJson> ArrayOf(const PythonJson& object, std::string_view key) {
  const PythonJson* value = FindValue(object, key);
  if (value == nullptr) return PythonJson();
  if (!value->is_array()) return Expected(key, "a list");
  return *value;
}

// Ids are compared as strings; a number is as good as its digits.
std::optional<std::string> IdOf(const PythonJson& object, std::string_view key) {
  const PythonJson* value = FindValue(object, key);
  if (value == nullptr) return std::nullopt;
  return value->is_string() ? value->text : DumpPythonJson(*value, PythonJsonStyle::kSpaced);
}

ChatRole RoleFrom(std::string_view name) {
  if (name == "system") return ChatRole::kSystem;
  if (name == "user") return ChatRole::kUser;
  if (name == "assistant") return ChatRole::kAssistant;
  return name == "tool" ? ChatRole::kTool : ChatRole::kOther;
}

Result<ContentPart> PartFrom(const PythonJson& part) {
  if (!part.is_object()) return Expected("content", "parts that are objects");
  DFIN_TRY(const std::string type, StringOf(part, "type"));
  if (type == "image" || type == "image_url") return ContentPart{ContentPart::Kind::kImage, ""};
  const PythonJson* text = part.Find("text");
  if (text == nullptr || !text->is_string()) return Expected("content", "\"text\" in each part that is not an image");
  return ContentPart{ContentPart::Kind::kText, text->text};
}

Result<std::vector<ContentPart>> ContentOf(const PythonJson& message) {
  std::vector<ContentPart> parts;
  const PythonJson* content = FindValue(message, "content");
  if (content == nullptr) return parts;
  if (content->is_string()) {
    parts.push_back({ContentPart::Kind::kText, content->text});
    return parts;
  }
  if (!content->is_array()) return Expected("content", "a string or a list of parts");
  for (const PythonJson& item : content->items) {
    DFIN_TRY(ContentPart part, PartFrom(item));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<std::vector<ToolCall>> ToolCallsOf(const PythonJson& message) {
  std::vector<ToolCall> calls;
  DFIN_TRY(const PythonJson list, ArrayOf(message, "tool_calls"));
  for (const PythonJson& item : list.items) {
    const PythonJson* function = FindValue(item, "function");
    const PythonJson& described = function != nullptr ? *function : item;
    const PythonJson* name = described.Find("name");
    if (name == nullptr || !name->is_string()) return Expected("tool_calls", "each call to have a name");
    const PythonJson* arguments = described.Find("arguments");
    calls.push_back({IdOf(item, "id"), name->text, arguments == nullptr ? PythonJson() : *arguments});
  }
  return calls;
}

Result<ChatMessage> MessageFrom(const PythonJson& json) {
  if (!json.is_object()) return Expected("message", "an object");
  const PythonJson* role = json.Find("role");
  if (role == nullptr || !role->is_string()) return Expected("role", "a string");
  ChatMessage message;
  message.role = RoleFrom(role->text);
  DFIN_TRY(message.name, StringOf(json, "name"));
  DFIN_TRY(message.content, ContentOf(json));
  DFIN_TRY(message.reasoning, StringOf(json, "reasoning_content"));
  if (message.reasoning.empty()) {
    DFIN_TRY(message.reasoning, StringOf(json, "reasoning"));
  }
  DFIN_TRY(message.tool_calls, ToolCallsOf(json));
  DFIN_TRY(message.partial, BoolOf(json, "partial", false));
  if (json.Find("tool") != nullptr) {
    DFIN_TRY(message.tool_name, StringOf(json, "tool"));
  }
  message.tool_call_id = IdOf(json, json.Find("tool_call_id") != nullptr ? "tool_call_id" : "id");
  DFIN_TRY(message.tools, ArrayOf(json, "tools"));
  return message;
}

ToolChoice ToolChoiceOf(const PythonJson& request) {
  const PythonJson* choice = FindValue(request, "tool_choice");
  if (choice == nullptr || !choice->is_string()) return ToolChoice::kAuto;
  if (choice->text == "required") return ToolChoice::kRequired;
  return choice->text == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
}

Result<ThinkingEffort> EffortOf(const PythonJson& request) {
  const PythonJson* effort = request.Find("thinking_effort");
  if (effort == nullptr) return ThinkingEffort::kMax;
  if (effort->is_null()) return ThinkingEffort::kUnstated;
  if (!effort->is_string()) return Expected("thinking_effort", "low, high or max");
  return ParseThinkingEffort(effort->text);
}

}  // namespace

Result<std::vector<ChatMessage>> ChatMessagesFrom(const PythonJson& messages) {
  if (!messages.is_array()) return Expected("messages", "a list");
  std::vector<ChatMessage> result;
  for (const PythonJson& json : messages.items) {
    auto message = MessageFrom(json);
    if (!message) return FailWith(std::move(message), Cat("messages[", result.size(), "]"));
    result.push_back(std::move(*message));
  }
  return result;
}

ResponseFormat ResponseFormatFrom(const PythonJson& format) {
  const PythonJson* type = format.is_object() ? format.Find("type") : &format;
  ResponseFormat result;
  if (type == nullptr || !type->is_string()) return result;
  if (type->text == "json_object") result.kind = ResponseFormat::Kind::kJsonObject;
  if (type->text != "json_schema") return result;
  result.kind = ResponseFormat::Kind::kJsonSchema;
  const PythonJson* wrapper = format.Find("json_schema");
  if (wrapper == nullptr) return result;
  const PythonJson* schema = wrapper->Find("schema");
  if (schema == nullptr) schema = wrapper->Find("json_schema");
  result.schema = schema == nullptr ? *wrapper : *schema;
  return result;
}

Result<ChatRequest> ChatRequestFrom(const PythonJson& request) {
  if (!request.is_object()) return Expected("chat request", "a JSON object");
  const PythonJson* messages = request.Find("messages");
  if (messages == nullptr) return Expected("messages", "a list");
  ChatRequest result;
  ChatOptions& options = result.options;
  DFIN_TRY(result.messages, ChatMessagesFrom(*messages));
  DFIN_TRY(options.tools, ArrayOf(request, "tools"));
  DFIN_TRY(options.thinking, BoolOf(request, "thinking", true));
  if (options.thinking) {
    DFIN_TRY(options.effort, EffortOf(request));
  }
  options.tool_choice = ToolChoiceOf(request);
  if (const PythonJson* format = FindValue(request, "response_format"))
    options.response_format = ResponseFormatFrom(*format);
  DFIN_TRY(options.add_generation_prompt, BoolOf(request, "add_generation_prompt", true));
  return result;
}

}  // namespace deltafin
