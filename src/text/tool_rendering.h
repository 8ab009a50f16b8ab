// tool_rendering.h: the parts of a chat prompt that concern tools: declarations, calls, the order of results.
//
// Private to src/text (chat_encoder.cc). Pure functions, errors kInvalidArgument.
#pragma once

#include <string>
#include <vector>

#include "text/chat_message.h"
#include "text/segment_writer.h"

namespace deltafin {

// A message at its place in the prompt.
struct PlacedMessage {
  const ChatMessage* message = nullptr;
  std::string tool_name;  // ChatRole::kTool
  size_t tool_index = 0;  // ChatRole::kTool: 1 for the first result after an assistant message
};

// The messages in prompt order. A run of tool results whose ids all name calls of the nearest assistant message before
// it is put in the order of those calls and takes their names; any other run stays as it is. A result without a name
// takes the name of the call at its index. Points into `messages`.
Result<std::vector<PlacedMessage>> PlaceMessages(const std::vector<ChatMessage>& messages);

// Bodies of the tool-declare messages: those of the request, and those that a system message adds.
std::string RequestToolsBody(const PythonJson& tools);
std::string AddedToolsBody(const PythonJson& tools);

Status RenderToolCalls(const std::vector<ToolCall>& calls, SegmentWriter* out);

}  // namespace deltafin
