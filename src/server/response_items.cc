#include "server/response_items.h"

#include <algorithm>

#include "server/json_text.h"

namespace deltafin {
namespace {

constexpr std::string_view kNoMedia = "only text is read: images, audio and files are not supported";

// A string or a list of parts with text.
std::vector<ContentPart> PartsOf(RequestFields& fields, std::string_view name) {
  std::vector<ContentPart> parts;
  const PythonJson* value = fields.Any(name);
  if (value == nullptr) return parts;
  if (value->is_string()) return {{ContentPart::Kind::kText, value->text}};
  if (!value->is_array()) {
    fields.Fault(name, "a string or a list of parts");
    return parts;
  }
  for (size_t i = 0; i < value->items.size(); ++i) {
    RequestFields part(value->items[i], Cat(fields.Path(name), "[", i, "]"));
    const std::string type = part.String("type").value_or("");
    if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text")
      part.Fault(ApiError{400, Cat(part.Path("type"), ": ", kNoMedia), part.Path("type"), "unsupported_content"});
    const std::optional<std::string> text = part.String("text");
    if (!text) part.Fault("text", "a string");
    part.Ignore({"annotations", "logprobs"});
    if (std::optional<ApiError> fault = part.Finish()) fields.Fault(*fault);
    parts.push_back({ContentPart::Kind::kText, text.value_or("")});
  }
  return parts;
}

std::string Joined(const std::vector<ContentPart>& parts) {
  std::string text;
  for (const ContentPart& part : parts) text += part.text;
  return text;
}

class InputReader {
 public:
  explicit InputReader(std::vector<ChatMessage>& out) : out_(out) {}

  void Read(RequestFields& body, const PythonJson& json, const std::string& place) {
    RequestFields item(json, place);
    const std::string type = item.String("type").value_or("message");
    if (type == "message")
      Message(item);
    else if (type == "function_call")
      Call(item);
    else if (type == "function_call_output")
      Output(item);
    else if (type == "reasoning")
      Reasoning(item);
    else
      item.Fault(ApiError{400, Cat(place, ": an item of type \"", type.substr(0, 40), "\" is not supported"), place,
                          "unsupported_content"});
    item.Ignore({"id", "status"});
    if (std::optional<ApiError> fault = item.Finish()) body.Fault(*fault);
  }

 private:
  // The message of the assistant that is being put together; a new one where `part` was there already.
  ChatMessage& Assistant(bool starts_new) {
    const bool goes_on = !out_.empty() && out_.back().role == ChatRole::kAssistant;
    if (!goes_on || starts_new) {
      out_.push_back(TextMessage(ChatRole::kAssistant, ""));
      out_.back().content.clear();
    }
    return out_.back();
  }

  void Message(RequestFields& item) {
    const std::string role = item.Choice("role", {"user", "assistant", "system", "developer"}).value_or("");
    if (role.empty()) item.Fault("role", "one of user, assistant, system, developer");
    item.Ignore({"phase"});
    std::vector<ContentPart> content = PartsOf(item, "content");
    if (role == "assistant") {
      const bool again = !out_.empty() && (!out_.back().content.empty() || !out_.back().tool_calls.empty());
      Assistant(again).content = std::move(content);
      return;
    }
    ChatMessage message;
    message.role = role == "user" ? ChatRole::kUser : ChatRole::kSystem;
    message.content = std::move(content);
    out_.push_back(std::move(message));
  }

  void Call(RequestFields& item) {
    const std::string name = item.String("name").value_or(""), id = item.String("call_id").value_or("");
    if (!IsToolName(name)) item.Fault("name", "the name of a function");
    if (id.empty()) item.Fault("call_id", "the id of the call");
    Assistant(false).tool_calls.push_back({id, name, JsonOf(item.String("arguments").value_or(""))});
  }

  void Output(RequestFields& item) {
    const std::optional<std::string> id = item.String("call_id");
    if (!id) item.Fault("call_id", "the id of the call");
    ChatMessage message;
    message.role = ChatRole::kTool;
    message.content = PartsOf(item, "output");
    message.tool_call_id = id;
    out_.push_back(std::move(message));
  }

  void Reasoning(RequestFields& item) {
    const std::string text = Joined(PartsOf(item, "content"));
    item.Ignore({"summary", "encrypted_content"});
    const bool again = !out_.empty() && (!out_.back().content.empty() || !out_.back().tool_calls.empty());
    Assistant(again).reasoning += text;
  }

  std::vector<ChatMessage>& out_;
};

}  // namespace

void ReadResponseInput(RequestFields& fields, const RequestLimits& limits, std::vector<ChatMessage>* messages) {
  const PythonJson* input = fields.Any("input");
  if (input == nullptr) return fields.Fault("input", "a string or a list of items");
  if (input->is_string()) {
    messages->push_back(UserMessage(input->text));
    return;
  }
  if (!input->is_array() || input->items.empty()) return fields.Fault("input", "a string or a list of items");
  if (std::ssize(input->items) > limits.messages)
    return fields.Fault("input", Cat("at most ", limits.messages, " items"));
  InputReader reader(*messages);
  for (size_t i = 0; i < input->items.size() && !fields.fault(); ++i)
    reader.Read(fields, input->items[i], Cat("input[", i, "]"));
}

void ReadResponseTools(RequestFields& fields, const RequestLimits& limits, ChatCall* call) {
  if (const PythonJson* list = fields.Array("tools")) {
    call->options.tools = PythonJson::Array();
    if (std::ssize(list->items) > limits.tools) return fields.Fault("tools", Cat("at most ", limits.tools, " tools"));
    for (size_t i = 0; i < list->items.size() && !fields.fault(); ++i) {
      const PythonJson& flat = list->items[i];
      const PythonJson* type = flat.Find("type");
      if (type == nullptr || type->text != "function")
        return fields.Fault(ApiError{400, Cat("tools[", i, "].type: only functions are supported"),
                                     Cat("tools[", i, "].type"), "unsupported_value"});
      PythonJson function = PythonJson::Object();
      for (const PythonJsonMember& member : flat.members)
        if (member.key != "type") function.members.push_back(member);
      const PythonJson tool = JsonObject({{"type", JsonOf("function")}, {"function", function}});
      DeclaredTool declared;
      if (std::optional<ApiError> fault = CheckTool(tool, Cat("tools[", i, "]"), limits, &declared))
        return fields.Fault(*fault);
      call->options.tools.items.push_back(tool);
      call->tools.push_back(std::move(declared));
    }
  }
  const PythonJson* choice = fields.Any("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    RequestFields inner(*choice, "tool_choice");
    if (!inner.Choice("type", {"function"})) inner.Fault("type", "\"function\"");
    call->named_tool = inner.String("name").value_or("");
    const auto same = [&](const DeclaredTool& tool) { return tool.name == call->named_tool; };
    if (std::none_of(call->tools.begin(), call->tools.end(), same)) inner.Fault("name", "the name of a declared tool");
    if (std::optional<ApiError> fault = inner.Finish()) return fields.Fault(*fault);
    call->options.tool_choice = ToolChoice::kRequired;
  } else if (choice->text == "required" && !call->tools.empty()) {
    call->options.tool_choice = ToolChoice::kRequired;
  } else if (choice->text == "none") {
    call->options.tool_choice = ToolChoice::kNone;
  } else if (choice->text != "auto") {
    fields.Fault("tool_choice", "auto, none, required (with tools), or an object that names a function");
  }
}

}  // namespace deltafin
