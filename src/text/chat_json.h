// chat_json.h: the JSON of a chat request -> messages and options.
//
// The message form is OpenAI's, with the additions of Kimi K3 (reasoning_content or reasoning, tools in system
// messages, partial). Values are taken as the model's own encoder takes them: unknown members are ignored and unknown
// roles become ChatRole::kOther, which renders nothing. A server that must refuse more does so before. Image prompts
// are never read from JSON, because they are trusted text. Pure functions. Errors: kInvalidArgument, with the place
// ("messages[2].content").
//
//   DFIN_TRY(const PythonJson body, ParsePythonJson(text));
//   DFIN_TRY(const ChatRequest request, ChatRequestFrom(body));
//   DFIN_TRY(const ChatPrompt prompt, RenderChat(request.messages, request.options));
#pragma once

#include <vector>

#include "base/result.h"
#include "text/chat_message.h"
#include "text/python_json.h"

namespace deltafin {

struct ChatRequest {
  std::vector<ChatMessage> messages;
  ChatOptions options;
};

// Members: messages, tools, thinking (bool, default true), thinking_effort (default "max"; null: none stated; not
// looked at while thinking is off), tool_choice, response_format, add_generation_prompt.
Result<ChatRequest> ChatRequestFrom(const PythonJson& request);

Result<std::vector<ChatMessage>> ChatMessagesFrom(const PythonJson& messages);

// A string names the type itself; an object has `type` and, for json_schema, `json_schema`. Unknown types are kText.
ResponseFormat ResponseFormatFrom(const PythonJson& format);

}  // namespace deltafin
