// chat_message.h: a conversation and what may accompany it, as plain data.
//
// Written by programs directly (app) or by chat_json.h (API requests); read by chat_encoder.h. Nothing here is rendered
// text and nothing here is trusted: no field can become a control token, except image_prompts, which our own image code
// writes. Ownership: values. Thread rule: as any value type.
//
//   std::vector<ChatMessage> messages = {SystemMessage("Be brief."), UserMessage("Hello!")};
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/python_json.h"

namespace deltafin {

enum class ChatRole { kSystem, kUser, kAssistant, kTool, kOther };  // kOther renders nothing

struct ContentPart {
  enum class Kind { kText, kImage };
  Kind kind = Kind::kText;
  std::string text;  // kText
};

struct ToolCall {
  std::optional<std::string> id;
  std::string name;
  PythonJson arguments;  // an object, a string with JSON in it (or with anything else), or null
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string name;                         // "": none
  std::vector<ContentPart> content;         // rendered one after another, nothing between them
  std::string reasoning;                    // assistant
  std::vector<ToolCall> tool_calls;         // assistant
  bool partial = false;                     // assistant, last message only: the answer continues this text
  std::optional<std::string> tool_name;     // tool: wins over `name`
  std::optional<std::string> tool_call_id;  // tool
  PythonJson tools;                         // system: a non-empty array declares more tools instead of the content
};

enum class ThinkingEffort { kUnstated, kLow, kHigh, kMax };
enum class ToolChoice { kAuto, kNone, kRequired };

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  PythonJson schema;  // kJsonSchema
};

struct ChatOptions {
  PythonJson tools;  // null, or an array of tool declarations
  bool thinking = true;
  ThinkingEffort effort = ThinkingEffort::kMax;  // matters only while thinking is on
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format;
  bool add_generation_prompt = true;
  // One per image, in order; ImagePrompt() writes them. Leave empty when the request has no image: then a user may type
  // the placeholder spelling without consequence.
  std::optional<std::vector<std::string>> image_prompts;
};

// "low", "high", "max"; "" for kUnstated.
std::string_view ToString(ThinkingEffort effort);
// kInvalidArgument for anything else, "medium" included: the format mentions it and does not have it.
Result<ThinkingEffort> ParseThinkingEffort(std::string_view text);

inline ChatMessage TextMessage(ChatRole role, std::string text) {
  ChatMessage message;
  message.role = role;
  message.content.push_back({ContentPart::Kind::kText, std::move(text)});
  return message;
}
inline ChatMessage SystemMessage(std::string text) { return TextMessage(ChatRole::kSystem, std::move(text)); }
inline ChatMessage UserMessage(std::string text) { return TextMessage(ChatRole::kUser, std::move(text)); }
// An earlier answer of the model.
inline ChatMessage AssistantMessage(std::string reasoning, std::string text) {
  ChatMessage message = TextMessage(ChatRole::kAssistant, std::move(text));
  message.reasoning = std::move(reasoning);
  return message;
}

}  // namespace deltafin
