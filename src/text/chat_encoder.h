// chat_encoder.h: a conversation -> the prompt that Kimi K3 was trained on.
//
// RenderChat writes a list of segments; EncodeSegments encodes each on its own and joins the ids. Only trusted segments
// (the four markers and image prompts) are searched for special spellings, so user text can never become a control
// token, and segments must not be joined before encoding: their borders decide ids. There is no default system prompt,
// date or identity text. Format: docs of the model, see the tables in chat_encoder.cc. Pure functions. Errors:
// kInvalidArgument (a conversation the format cannot express), kUnsupported (no chat markers, JSON nested too deep).
//
//   DFIN_TRY(const ChatPrompt prompt, RenderChat(messages, options));
//   DFIN_TRY(const std::vector<TokenId> ids, EncodeSegments(tokenizer, prompt.segments));
//   DFIN_TRY(ResponseParser parser, ResponseParser::Create(tokenizer, prompt.continues_in));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_message.h"
#include "text/response_parser.h"
#include "text/tokenizer.h"

namespace deltafin {

struct ChatSegment {
  std::string text;  // never empty
  bool trusted = false;
};

struct ChatPrompt {
  std::vector<ChatSegment> segments;
  ResponseChannel continues_in = ResponseChannel::kReasoning;  // what the model writes first
};

Result<ChatPrompt> RenderChat(const std::vector<ChatMessage>& messages, const ChatOptions& options);

// kUnsupported when the model has no chat markers.
Result<std::vector<TokenId>> EncodeSegments(const Tokenizer& tokenizer, const std::vector<ChatSegment>& segments);

// All segments as one string. For people and logs: encoding it gives other ids and lets user text forge markers.
std::string JoinSegments(const std::vector<ChatSegment>& segments);

// The prompt of one image of this decoded size in pixels, for ChatOptions::image_prompts.
std::string ImagePrompt(int64_t width, int64_t height);

}  // namespace deltafin
