// chat_fields.h: messages, tools and thinking of a chat request in OpenAI's form, checked strictly.
//
// What passes is read by text/chat_json.h. Images and other media are refused: only text is read. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "server/request_fields.h"
#include "server/server_context.h"
#include "text/chat_message.h"

namespace deltafin {

// `messages`, an array. "developer" is "system".
std::vector<ChatMessage> ReadMessages(RequestFields& fields, const RequestLimits& limits);

// A tool that may be called.
struct DeclaredTool {
  std::string name;
  PythonJson parameters;  // null: not given
  bool strict = false;
};

// The tools of the request and of its system messages. `tools` itself is kept in options->tools as it was given.
std::vector<DeclaredTool> ReadTools(RequestFields& fields, const RequestLimits& limits,
                                    const std::vector<ChatMessage>& messages, ChatOptions* options);

// tool_choice; the name of a function that must be called goes to `named`.
void ReadToolChoice(RequestFields& fields, const std::vector<DeclaredTool>& tools, ChatOptions* options,
                    std::string* named);

// reasoning_effort, thinking, chat_template_kwargs.
void ReadThinking(RequestFields& fields, ChatOptions* options);

// response_format.
void ReadResponseFormat(RequestFields& fields, const RequestLimits& limits, ResponseFormat* format);

// Checks one declaration {"type": "function", "function": {...}} at `place`.
std::optional<ApiError> CheckTool(const PythonJson& tool, const std::string& place, const RequestLimits& limits,
                                  DeclaredTool* declared);
// 1 to 256 letters, digits, _ and -, the first one no digit.
bool IsToolName(std::string_view name);

}  // namespace deltafin
