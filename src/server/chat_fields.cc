#include "server/chat_fields.h"

#include <algorithm>

#include "server/json_text.h"
#include "text/chat_json.h"

namespace deltafin {
namespace {

constexpr std::string_view kNoMedia = "only text is read: images, audio and files are not supported";

void CheckPart(RequestFields& message, const PythonJson& part, const std::string& place) {
  RequestFields fields(part, place);
  const std::optional<std::string> type = fields.String("type");
  if (!type && !fields.fault()) fields.Fault("type", "\"text\"");
  if (type && *type != "text" && !fields.fault())
    fields.Fault(ApiError{400, Cat(place, ": a part of type \"", type->substr(0, 40), "\": ", kNoMedia), place,
                          "unsupported_content"});
  if (!fields.String("text") && !fields.fault()) fields.Fault("text", "a string");
  fields.Ignore({"cache_control"});
  if (std::optional<ApiError> fault = fields.Finish()) message.Fault(*fault);
}

void CheckContent(RequestFields& fields) {
  const PythonJson* content = fields.Any("content");
  if (content == nullptr || content->is_string()) return;
  if (!content->is_array()) return fields.Fault("content", "a string or a list of parts");
  for (size_t i = 0; i < content->items.size(); ++i)
    CheckPart(fields, content->items[i], Cat(fields.Path("content"), "[", i, "]"));
}

void CheckCalls(RequestFields& fields) {
  const PythonJson* calls = fields.Array("tool_calls");
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->items.size(); ++i) {
    RequestFields call(calls->items[i], Cat(fields.Path("tool_calls"), "[", i, "]"));
    call.Any("id");
    call.Choice("type", {"function"});
    call.Ignore({"index"});
    const PythonJson* function = call.Object("function");
    if (function == nullptr) {
      call.Fault("function", "an object");
    } else {
      RequestFields inner(*function, call.Path("function"));
      if (inner.String("name").value_or("").empty()) inner.Fault("name", "a name");
      const PythonJson* arguments = inner.Any("arguments");
      if (arguments != nullptr && !arguments->is_string() && !arguments->is_object())
        inner.Fault("arguments", "a string of JSON or an object");
      if (std::optional<ApiError> fault = inner.Finish()) call.Fault(*fault);
    }
    if (std::optional<ApiError> fault = call.Finish()) fields.Fault(*fault);
  }
}

// Members that APIs send back as they wrote them, saying nothing.
void CheckEchoes(RequestFields& fields) {
  fields.Refuse("refusal", "only null is read");
  fields.Refuse("audio", kNoMedia);
  fields.Refuse("function_call", "the older form of tool_calls: use tool_calls");
  fields.Refuse("annotations", "only an empty list is read", {"[]"});
  fields.Ignore({"id"});
}

void CheckSystemTools(RequestFields& fields, const RequestLimits& limits) {
  const PythonJson* tools = fields.Array("tools");
  if (tools == nullptr) return;
  const PythonJson* content = fields.Any("content");
  const bool empty = content == nullptr || (content->is_string() && content->text.empty()) ||
                     (content->is_array() && content->items.empty());
  if (!empty && !tools->items.empty()) fields.Fault("content", "nothing beside tools");
  for (size_t i = 0; i < tools->items.size(); ++i) {
    DeclaredTool declared;
    if (std::optional<ApiError> fault =
            CheckTool(tools->items[i], Cat(fields.Path("tools"), "[", i, "]"), limits, &declared))
      fields.Fault(*fault);
  }
}

std::optional<ApiError> CheckMessage(const PythonJson& message, const std::string& place, const RequestLimits& limits) {
  RequestFields fields(message, place);
  const std::string role = fields.Choice("role", {"system", "developer", "user", "assistant", "tool"}).value_or("");
  if (role.empty()) fields.Fault("role", "one of system, developer, user, assistant, tool");
  CheckContent(fields);
  fields.String("name");
  if (role == "assistant") {
    fields.String("reasoning_content");
    const PythonJson* reasoning = fields.Any("reasoning");
    if (reasoning != nullptr && !reasoning->is_string()) fields.Fault("reasoning", "a string");
    CheckCalls(fields);
    fields.Bool("partial");
    CheckEchoes(fields);
  } else if (role == "tool") {
    if (!fields.String("tool_call_id")) fields.Fault("tool_call_id", "the id of the call that this is the result of");
  } else if (role == "system" || role == "developer") {
    CheckSystemTools(fields, limits);
  }
  return fields.Finish();
}

}  // namespace

bool IsToolName(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= 256 && !(name[0] >= '0' && name[0] <= '9') &&
         std::all_of(name.begin(), name.end(), letter);
}

std::vector<ChatMessage> ReadMessages(RequestFields& fields, const RequestLimits& limits) {
  const PythonJson* messages = fields.Array("messages");
  if (messages == nullptr || messages->items.empty()) {
    fields.Fault("messages", "a list of at least one message");
    return {};
  }
  if (std::ssize(messages->items) > limits.messages) {
    fields.Fault("messages", Cat("at most ", limits.messages, " messages"));
    return {};
  }
  PythonJson plain = *messages;
  for (size_t i = 0; i < plain.items.size(); ++i) {
    if (std::optional<ApiError> fault = CheckMessage(plain.items[i], Cat("messages[", i, "]"), limits)) {
      fields.Fault(*fault);
      return {};
    }
    for (PythonJsonMember& member : plain.items[i].members)
      if (member.key == "role" && member.value.text == "developer") member.value.text = "system";
  }
  Result<std::vector<ChatMessage>> read = ChatMessagesFrom(plain);
  if (read) return std::move(*read);
  fields.Fault(ApiError{400, read.error().message(), "messages", "invalid_value"});
  return {};
}

std::optional<ApiError> CheckTool(const PythonJson& tool, const std::string& place, const RequestLimits& limits,
                                  DeclaredTool* declared) {
  RequestFields fields(tool, place);
  if (!fields.Choice("type", {"function"})) fields.Fault("type", "\"function\"");
  const PythonJson* function = fields.Object("function");
  if (function == nullptr) {
    fields.Fault("function", "an object");
    return fields.Finish();
  }
  RequestFields inner(*function, fields.Path("function"));
  declared->name = inner.String("name").value_or("");
  if (!IsToolName(declared->name))
    inner.Fault("name", "1 to 256 letters, digits, '_', '-' or '.', the first one no digit");
  inner.String("description");
  const PythonJson* parameters = inner.Object("parameters");
  if (parameters != nullptr) {
    declared->parameters = *parameters;
    if (std::ssize(JsonText(*parameters)) > limits.schema_bytes)
      inner.Fault("parameters", Cat("a schema of at most ", limits.schema_bytes, " bytes"));
  }
  declared->strict = inner.Bool("strict").value_or(false);
  if (std::optional<ApiError> fault = inner.Finish()) fields.Fault(*fault);
  fields.Ignore({"cache_control"});
  return fields.Finish();
}

std::vector<DeclaredTool> ReadTools(RequestFields& fields, const RequestLimits& limits,
                                    const std::vector<ChatMessage>& messages, ChatOptions* options) {
  std::vector<DeclaredTool> tools;
  const auto add = [&](const PythonJson& list, const std::string& place) {
    for (size_t i = 0; i < list.items.size() && !fields.fault(); ++i) {
      DeclaredTool tool;
      const std::string at = Cat(place, "[", i, "]");
      if (std::optional<ApiError> fault = CheckTool(list.items[i], at, limits, &tool)) return fields.Fault(*fault);
      const auto same = [&](const DeclaredTool& other) { return other.name == tool.name; };
      if (std::any_of(tools.begin(), tools.end(), same))
        return fields.Fault(ApiError{400, Cat(at, ".function.name: \"", tool.name, "\" was declared already"),
                                     at + ".function.name", "invalid_value"});
      tools.push_back(std::move(tool));
    }
    if (std::ssize(tools) > limits.tools) fields.Fault("tools", Cat("at most ", limits.tools, " tools"));
  };
  if (const PythonJson* list = fields.Array("tools")) {
    options->tools = *list;
    add(*list, "tools");
  }
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == ChatRole::kSystem) add(messages[i].tools, Cat("messages[", i, "].tools"));
  return tools;
}

void ReadToolChoice(RequestFields& fields, const std::vector<DeclaredTool>& tools, ChatOptions* options,
                    std::string* named) {
  const PythonJson* choice = fields.Any("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    RequestFields inner(*choice, "tool_choice");
    if (!inner.Choice("type", {"function"})) inner.Fault("type", "\"function\"");
    const PythonJson* function = inner.Object("function");
    if (function == nullptr) {
      inner.Fault("function", "an object");
    } else {
      RequestFields name(*function, "tool_choice.function");
      *named = name.String("name").value_or("");
      if (std::none_of(tools.begin(), tools.end(), [&](const DeclaredTool& tool) { return tool.name == *named; }))
        name.Fault("name", "the name of a declared tool");
      if (std::optional<ApiError> fault = name.Finish()) inner.Fault(*fault);
    }
    if (std::optional<ApiError> fault = inner.Finish()) return fields.Fault(*fault);
    options->tool_choice = ToolChoice::kRequired;
    return;
  }
  const std::string text = choice->is_string() ? choice->text : "";
  if (text == "none")
    options->tool_choice = ToolChoice::kNone;
  else if (text == "required")
    options->tool_choice = ToolChoice::kRequired;
  else if (text != "auto")
    return fields.Fault("tool_choice", "auto, none, required, or an object that names a function");
  if (options->tool_choice == ToolChoice::kRequired && tools.empty())
    fields.Fault(ApiError{400, "tool_choice: required without tools", "tool_choice", "invalid_value"});
}

namespace {

void SetEffort(RequestFields& fields, std::string_view name, const std::string& effort, ChatOptions* options) {
  if (effort == "none") {
    options->thinking = false;
    return;
  }
  const Result<ThinkingEffort> parsed = ParseThinkingEffort(effort);
  if (!parsed) return fields.Fault(name, "none, low, high or max: the model has no other level");
  options->effort = *parsed;
}

}  // namespace

void ReadThinking(RequestFields& fields, ChatOptions* options) {
  if (const std::optional<std::string> effort = fields.String("reasoning_effort"))
    SetEffort(fields, "reasoning_effort", *effort, options);
  if (const PythonJson* arguments = fields.Object("chat_template_kwargs")) {
    RequestFields inner(*arguments, "chat_template_kwargs");
    const std::optional<bool> thinking = inner.Bool("thinking"), enabled = inner.Bool("enable_thinking");
    if (thinking || enabled) options->thinking = thinking.value_or(true) && enabled.value_or(true);
    if (const std::optional<std::string> effort = inner.String("thinking_effort"))
      SetEffort(inner, "thinking_effort", *effort, options);
    if (std::optional<ApiError> fault = inner.Finish()) fields.Fault(*fault);
  }
  if (const PythonJson* thinking = fields.Object("thinking")) {
    RequestFields inner(*thinking, "thinking");
    const std::string type = inner.Choice("type", {"enabled", "disabled"}).value_or("enabled");
    options->thinking = type == "enabled";
    inner.Choice("keep", {"all"});
    // It wins over reasoning_effort.
    if (const std::optional<std::string> effort = inner.String("effort"); effort && options->thinking)
      SetEffort(inner, "effort", *effort, options);
    if (std::optional<ApiError> fault = inner.Finish()) fields.Fault(*fault);
  }
}

void ReadResponseFormat(RequestFields& fields, const RequestLimits& limits, ResponseFormat* format) {
  const PythonJson* object = fields.Object("response_format");
  if (object == nullptr) return;
  RequestFields inner(*object, "response_format");
  const std::optional<std::string> type = inner.Choice("type", {"text", "json_object", "json_schema"});
  if (!type) inner.Fault("type", "text, json_object or json_schema");
  const PythonJson* wrapper = inner.Object("json_schema");
  if (type == "json_schema") {
    if (wrapper == nullptr) {
      inner.Fault("json_schema", "an object with name and schema");
    } else {
      RequestFields schema(*wrapper, "response_format.json_schema");
      if (!schema.String("name")) schema.Fault("name", "a string");
      const PythonJson* body = schema.Object("schema");
      if (body == nullptr)
        schema.Fault("schema", "an object");
      else if (std::ssize(JsonText(*body)) > limits.schema_bytes)
        schema.Fault("schema", Cat("at most ", limits.schema_bytes, " bytes"));
      schema.Bool("strict");
      schema.String("description");
      if (std::optional<ApiError> fault = schema.Finish()) inner.Fault(*fault);
    }
  } else if (wrapper != nullptr) {
    inner.Fault("json_schema", "nothing, unless type is json_schema");
  }
  if (std::optional<ApiError> fault = inner.Finish()) return fields.Fault(*fault);
  *format = ResponseFormatFrom(*object);
}

}  // namespace deltafin
