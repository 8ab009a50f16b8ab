// response_items.h: input and tools of /v1/responses -> messages and tools of a chat.
//
// Thoughts, text and calls that follow one another are one message of the assistant. Pure functions.
#pragma once

#include <vector>

#include "server/chat_call.h"
#include "server/request_fields.h"

namespace deltafin {

// input: a string, or a list of messages, function calls, their outputs and thoughts.
void ReadResponseInput(RequestFields& fields, const RequestLimits& limits, std::vector<ChatMessage>* messages);
// tools (declared flat there) and tool_choice.
void ReadResponseTools(RequestFields& fields, const RequestLimits& limits, ChatCall* call);

}  // namespace deltafin
