#include "text/chat_encoder.h"

#include <utility>

#include "text/segment_writer.h"
#include "text/tool_rendering.h"
#include "text/unicode_classes.h"

namespace deltafin {

namespace {

constexpr std::string_view kEffortNote =
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=";
constexpr std::string_view kToolsRequiredNote =
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.";
constexpr std::string_view kToolsForbiddenNote =
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";
constexpr std::string_view kRawJsonNote =
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.";

std::string_view RoleName(ChatRole role) { return role == ChatRole::kSystem ? "system" : "user"; }

Status RenderContent(const ChatMessage& message, SegmentWriter* out) {
  for (const ContentPart& part : message.content) {
    const bool image = part.kind == ContentPart::Kind::kImage;
    DFIN_TRY_VOID(image ? out->Image() : out->TextWithImages(part.text));
  }
  return {};
}

// <|open|>message role="..." [name="..."]<|sep|>
void OpenMessage(std::string_view role, const std::string& name, SegmentWriter* out) {
  if (name.empty()) {
    out->Open("message", {{"role", role}});
  } else {
    out->Open("message", {{"role", role}, {"name", name}});
  }
}

Status RenderAssistant(const ChatMessage& message, bool thinking, SegmentWriter* out) {
  OpenMessage("assistant", message.name, out);
  if (thinking) {
    out->Open("think");
    if (!IsBlank(message.reasoning)) DFIN_TRY_VOID(out->TextWithImages(message.reasoning));
    out->Close("think");
  }
  out->Open("response");
  DFIN_TRY_VOID(RenderContent(message, out));
  out->Close("response");
  DFIN_TRY_VOID(RenderToolCalls(message.tool_calls, out));
  out->EndMessage();
  return {};
}

Status RenderMessage(const PlacedMessage& placed, bool thinking, SegmentWriter* out) {
  const ChatMessage& message = *placed.message;
  if (message.role == ChatRole::kOther) return {};
  if (message.role == ChatRole::kAssistant) return RenderAssistant(message, thinking, out);
  if (message.role == ChatRole::kSystem && !message.tools.items.empty()) {
    out->SystemNote("tool-declare", AddedToolsBody(message.tools));
    return {};
  }
  if (message.role == ChatRole::kTool) {
    out->Open("message", {{"role", "tool"}, {"tool", placed.tool_name}, {"index", std::to_string(placed.tool_index)}});
  } else {
    OpenMessage(RoleName(message.role), message.name, out);
  }
  DFIN_TRY_VOID(RenderContent(message, out));
  out->EndMessage();
  return {};
}

std::string ResponseFormatBody(const ResponseFormat& format) {
  const bool schema = format.kind == ResponseFormat::Kind::kJsonSchema;
  std::string body =
      Cat("The system is invoked with `response_format=", schema ? "json_schema" : "json_object", "`.\n", kRawJsonNote);
  if (!schema) return body;
  return body + "\nThe JSON data must match the following schema:\n```json\n" +
         DumpPythonJson(format.schema, PythonJsonStyle::kCompactSorted) + "\n```";
}

void RenderNotes(const ChatOptions& options, SegmentWriter* out) {
  if (options.tool_choice == ToolChoice::kRequired) out->SystemNote("tool-choice", kToolsRequiredNote);
  if (options.tool_choice == ToolChoice::kNone) out->SystemNote("tool-choice", kToolsForbiddenNote);
  if (options.response_format.kind != ResponseFormat::Kind::kText) {
    out->SystemNote("response-format", ResponseFormatBody(options.response_format));
  }
}

// The message to be continued: nothing of it is closed. Returns the channel the model continues.
Result<ResponseChannel> RenderPartial(const ChatMessage& message, bool thinking, SegmentWriter* out) {
  bool has_content = false;
  for (const ContentPart& part : message.content)
    has_content |= part.kind == ContentPart::Kind::kImage || !part.text.empty();
  OpenMessage("assistant", message.name, out);
  const bool think = thinking && (!message.reasoning.empty() || !has_content);
  if (think) {
    out->Open("think");
    DFIN_TRY_VOID(out->TextWithImages(message.reasoning));
    if (!has_content) return ResponseChannel::kReasoning;
    out->Close("think");
  }
  out->Open("response");
  DFIN_TRY_VOID(RenderContent(message, out));
  return ResponseChannel::kAnswer;
}

Status CheckPartial(const std::vector<ChatMessage>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!message.partial) continue;
    if (i + 1 == messages.size() && message.role == ChatRole::kAssistant && message.tool_calls.empty()) continue;
    return Fail(ErrorCode::kInvalidArgument, "chat: message ", i + 1,
                ": partial is only for an assistant message at the end without tool calls");
  }
  return {};
}

}  // namespace

std::string_view ToString(ThinkingEffort effort) {
  switch (effort) {
    case ThinkingEffort::kUnstated:
      break;
    case ThinkingEffort::kLow:
      return "low";
    case ThinkingEffort::kHigh:
      return "high";
    case ThinkingEffort::kMax:
      return "max";
  }
  return "";
}

Result<ThinkingEffort> ParseThinkingEffort(std::string_view text) {
  for (const ThinkingEffort effort : {ThinkingEffort::kLow, ThinkingEffort::kHigh, ThinkingEffort::kMax}) {
    if (text == ToString(effort)) return effort;
  }
  return Fail(ErrorCode::kInvalidArgument, "thinking effort: expected low, high or max, got \"", text, "\"");
}

Result<ChatPrompt> RenderChat(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  DFIN_TRY_VOID(CheckPartial(messages));
  DFIN_TRY(const std::vector<PlacedMessage> placed, PlaceMessages(messages));
  SegmentWriter out(options.image_prompts ? &*options.image_prompts : nullptr);
  ChatPrompt prompt;
  prompt.continues_in = options.thinking ? ResponseChannel::kReasoning : ResponseChannel::kAnswer;
  if (!options.tools.items.empty()) out.SystemNote("tool-declare", RequestToolsBody(options.tools));
  if (options.thinking && options.effort != ThinkingEffort::kUnstated) {
    out.SystemNote("thinking-effort", Cat(kEffortNote, ToString(options.effort), "`."));
  }
  for (const PlacedMessage& message : placed) {
    if (!message.message->partial) DFIN_TRY_VOID(RenderMessage(message, options.thinking, &out));
  }
  RenderNotes(options, &out);
  if (!messages.empty() && messages.back().partial) {
    DFIN_TRY(prompt.continues_in, RenderPartial(messages.back(), options.thinking, &out));
  } else if (options.add_generation_prompt) {
    OpenMessage("assistant", "", &out);
    out.Open(options.thinking ? "think" : "response");
  }
  DFIN_TRY(prompt.segments, out.Take());
  return prompt;
}

Result<std::vector<TokenId>> EncodeSegments(const Tokenizer& tokenizer, const std::vector<ChatSegment>& segments) {
  DFIN_TRY([[maybe_unused]] const ChatMarkers markers, tokenizer.chat_markers());
  std::vector<TokenId> ids;
  for (const ChatSegment& segment : segments) {
    EncodeOptions options;
    options.allow_special = segment.trusted;
    const std::vector<TokenId> encoded = tokenizer.Encode(segment.text, options);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  return ids;
}

std::string JoinSegments(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

std::string ImagePrompt(int64_t width, int64_t height) {
  return Cat("<|media_begin|>image ", width, "x", height, "<|media_content|><|media_pad|><|media_end|>");
}

}  // namespace deltafin
