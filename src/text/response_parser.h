// response_parser.h: generated token ids -> reasoning, answer and tool calls, as they arrive.
//
// Works on ids, never on text: a real marker is one special id, and the same characters spelled by ordinary ids pass
// through as text. Odd turns (a marker left out, an element opened twice, a turn cut anywhere) follow one table, see
// response_parser.cc; nothing the model writes is an error. The events of all calls, joined, are exactly result().
// Memory is bounded by the generated text; a tag header keeps at most 8 KiB.
// Ownership: refers to the tokenizer, which must outlive it. Thread rule: one thread at a time.
//
//   DFIN_TRY(ResponseParser parser, ResponseParser::Create(tokenizer, prompt.continues_in));
//   for each generated id: for (const ResponseEvent& event : parser.Append(id)) Send(event);
//                          if (parser.done()) break;
//   for (const ResponseEvent& event : parser.Finish(stopped_by_length)) Send(event);
//   parser.result().finish_reason ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/python_json.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace deltafin {

// What the model writes first, as the prompt ended: ChatPrompt::continues_in.
enum class ResponseChannel { kReasoning, kAnswer };

struct ParsedToolCall {
  std::string name;
  PythonJson arguments = PythonJson::Object();  // members in the order of arrival
  std::optional<std::string> raw_arguments;     // set instead when the model wrote one block of (perhaps broken) JSON

  // The string for an API's function.arguments.
  std::string ArgumentsText() const;
};

struct ResponseEvent {
  enum class Kind { kReasoning, kAnswer, kToolCall };
  Kind kind = Kind::kAnswer;
  std::string text;     // kReasoning, kAnswer: the next piece; valid UTF-8, never empty
  ParsedToolCall call;  // kToolCall: a finished call
};

enum class FinishReason { kStop, kLength, kToolCalls };
std::string_view ToString(FinishReason reason);  // "stop", "length", "tool_calls"

struct ParsedResponse {
  std::string reasoning;  // "": none
  std::string answer;     // "": none
  std::vector<ParsedToolCall> tool_calls;
  FinishReason finish_reason = FinishReason::kStop;  // valid after Finish()
};

class ResponseParser {
 public:
  // kUnsupported when the model has no chat markers.
  static Result<ResponseParser> Create(const Tokenizer& tokenizer, ResponseChannel start);

  std::vector<ResponseEvent> Append(TokenId id);

  // Generation ended. `length_limit`: because no more tokens were allowed. Call once.
  std::vector<ResponseEvent> Finish(bool length_limit);

  // The turn is over: a stop id or the end of the message. Further ids are ignored.
  bool done() const { return channel_ == Channel::kDone; }

  // What is open now, innermost first ("argument", "call", "tools"): the closing tags that a turn cut here lacks. Empty
  // between elements and after the end.
  std::vector<std::string_view> OpenElements() const;
  // A tag that has begun and not ended: its ids are to be dropped before the turn is closed.
  bool in_tag() const { return header_ != Header::kNone; }
  // Thoughts come first; from here on closing the message needs no response element any more.
  bool response_seen() const { return response_seen_; }

  const ParsedResponse& result() const { return result_; }

 private:
  enum class Channel { kThink, kResponse, kGap, kOther, kTools, kCall, kArgument, kJson, kDone };
  enum class Header { kNone, kOpen, kClose };
  using Attributes = std::vector<std::pair<std::string, std::string>>;

  ResponseParser(const Tokenizer& tokenizer, const ChatMarkers& markers, ResponseChannel start);
  void TakeText(std::string_view bytes);
  void FinishHeader();
  void OpenElement(std::string_view tag, const Attributes& attributes);
  void CloseElement(std::string_view tag);
  void CloseArgument();
  void ReportCall();
  void Enter(Channel channel);
  void Emit(ResponseEvent::Kind kind, std::string text);

  const Tokenizer* tokenizer_;
  ChatMarkers markers_;
  Channel channel_;
  bool response_seen_;
  Header header_ = Header::kNone;
  std::string header_bytes_;
  StreamDecoder decoder_;  // of the channel that is being emitted
  bool in_call_ = false;
  std::string call_name_;
  PythonObjectBuilder call_arguments_;
  std::optional<std::string> call_raw_;
  std::string argument_key_;
  std::string argument_type_;
  std::string body_;  // of the argument or json element
  std::vector<ResponseEvent> events_;
  ParsedResponse result_;
};

}  // namespace deltafin
