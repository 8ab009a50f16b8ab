#include "text/response_parser.h"

#include <utility>

#include "text/utf8.h"

namespace deltafin {

namespace {

constexpr size_t kMostHeaderBytes = 8192;
constexpr std::string_view kSpaces = " \t\n\r\f\v";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

std::string UnescapeAttribute(std::string_view value) {
  return ReplaceAll(ReplaceAll(value, "&quot;", "\""), "&amp;", "&");
}

// Every name="value" of a header; anything else in it is skipped.
std::vector<std::pair<std::string, std::string>> ParseAttributes(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> attributes;
  while (true) {
    const size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return attributes;
    const size_t end = text.find('"', equals + 2);
    if (end == std::string_view::npos) return attributes;
    const std::string_view before = text.substr(0, equals);
    const size_t space = before.find_last_of(kSpaces);
    const std::string_view name = space == std::string_view::npos ? before : before.substr(space + 1);
    attributes.emplace_back(name, UnescapeAttribute(text.substr(equals + 2, end - equals - 2)));
    text.remove_prefix(end + 1);
  }
}

// The last attribute of that name, or nullptr.
const std::string* FindAttribute(const std::vector<std::pair<std::string, std::string>>& attributes,
                                 std::string_view name) {
  const std::string* found = nullptr;
  for (const auto& [key, value] : attributes) {
    if (key == name) found = &value;
  }
  return found;
}

}  // namespace

std::string ParsedToolCall::ArgumentsText() const {
  return raw_arguments ? *raw_arguments : DumpPythonJson(arguments, PythonJsonStyle::kSpaced);
}

std::string_view ToString(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      break;
  }
  return "tool_calls";
}

Result<ResponseParser> ResponseParser::Create(const Tokenizer& tokenizer, ResponseChannel start) {
  DFIN_TRY(const ChatMarkers markers, tokenizer.chat_markers());
  return ResponseParser(tokenizer, markers, start);
}

ResponseParser::ResponseParser(const Tokenizer& tokenizer, const ChatMarkers& markers, ResponseChannel start)
    : tokenizer_(&tokenizer),
      markers_(markers),
      channel_(start == ResponseChannel::kReasoning ? Channel::kThink : Channel::kResponse),
      response_seen_(start == ResponseChannel::kAnswer) {}

std::vector<ResponseEvent> ResponseParser::Append(TokenId id) {
  if (done()) return {};
  if (tokenizer_->IsStop(id)) {
    FinishHeader();
    Enter(Channel::kDone);
  } else if (id == markers_.open || id == markers_.close) {
    FinishHeader();  // the model left its <|sep|> out
    if (!done()) header_ = id == markers_.open ? Header::kOpen : Header::kClose;
  } else if (id == markers_.sep) {
    FinishHeader();
  } else if (id < tokenizer_->base()) {
    TakeText(tokenizer_->BytesOf(id));
  }
  return std::exchange(events_, {});
}

std::vector<ResponseEvent> ResponseParser::Finish(bool length_limit) {
  header_ = Header::kNone;
  Enter(Channel::kDone);
  result_.finish_reason = length_limit                 ? FinishReason::kLength
                          : result_.tool_calls.empty() ? FinishReason::kStop
                                                       : FinishReason::kToolCalls;
  return std::exchange(events_, {});
}

void ResponseParser::TakeText(std::string_view bytes) {
  if (header_ != Header::kNone) {
    header_bytes_.append(bytes.substr(0, kMostHeaderBytes - header_bytes_.size()));
    return;
  }
  switch (channel_) {
    case Channel::kThink:
      return Emit(ResponseEvent::Kind::kReasoning, decoder_.Append(bytes));
    case Channel::kResponse:
      return Emit(ResponseEvent::Kind::kAnswer, decoder_.Append(bytes));
    case Channel::kGap:
      if (!response_seen_) Emit(ResponseEvent::Kind::kAnswer, decoder_.Append(bytes));
      return;
    case Channel::kArgument:
    case Channel::kJson:
      body_.append(bytes);
      return;
    case Channel::kOther:
    case Channel::kTools:
    case Channel::kCall:
    case Channel::kDone:
      return;
  }
}

void ResponseParser::FinishHeader() {
  const Header kind = std::exchange(header_, Header::kNone);
  if (kind == Header::kNone) return;
  const std::string text = ToValidUtf8(std::exchange(header_bytes_, {}));
  const std::string_view header = Trim(text);
  const std::string_view tag = header.substr(0, header.find(' '));
  if (kind == Header::kOpen) {
    OpenElement(tag, ParseAttributes(header.substr(tag.size())));
  } else {
    CloseElement(tag);
  }
}

void ResponseParser::OpenElement(std::string_view tag, const Attributes& attributes) {
  if (tag == "response" || tag == "tools") response_seen_ = true;
  if (tag == "think") return Enter(Channel::kThink);
  if (tag == "response") return Enter(Channel::kResponse);
  if (tag == "tools") return Enter(Channel::kTools);
  if (tag == "message") return Enter(Channel::kDone);  // the model began somebody else's turn
  if (tag == "call") {
    const std::string* name = FindAttribute(attributes, "tool");
    call_name_ = name == nullptr ? "" : *name;
    call_arguments_ = {};
    call_raw_.reset();
    in_call_ = true;
    return Enter(Channel::kCall);
  }
  if (!in_call_ || (tag != "argument" && tag != "json")) return Enter(Channel::kOther);
  body_.clear();
  if (tag == "json") return Enter(Channel::kJson);
  const std::string* key = FindAttribute(attributes, "key");
  const std::string* type = FindAttribute(attributes, "type");
  argument_key_ = key == nullptr ? "" : *key;
  argument_type_ = type == nullptr ? "string" : *type;
  Enter(Channel::kArgument);
}

void ResponseParser::CloseElement(std::string_view tag) {
  if (tag == "response") response_seen_ = true;
  if (tag == "think" || tag == "response") return Enter(Channel::kGap);
  if (tag == "tools") return Enter(Channel::kOther);
  if (tag == "message") return Enter(Channel::kDone);
  if (tag == "call") return ReportCall();
  if (in_call_ && tag == "argument") return CloseArgument();
  if (in_call_ && tag == "json") {
    if (channel_ == Channel::kJson) call_raw_ = ToValidUtf8(std::exchange(body_, {}));
    return Enter(Channel::kCall);
  }
  if (channel_ != Channel::kThink && channel_ != Channel::kResponse) Enter(Channel::kOther);
}

void ResponseParser::CloseArgument() {
  if (channel_ == Channel::kArgument) {
    std::string text = ToValidUtf8(std::exchange(body_, {}));
    Result<PythonJson> value = PythonJson();
    // One level less, so that the object around it can be read again.
    if (argument_type_ != "string") value = ParsePythonJson(text, kMostJsonLevels - 1);
    if (argument_type_ == "string" || !value) value = PythonJson::String(std::move(text));
    call_arguments_.Set(std::exchange(argument_key_, {}), std::move(*value));
  }
  Enter(Channel::kCall);
}

void ResponseParser::ReportCall() {
  if (in_call_ && !call_name_.empty()) {
    ResponseEvent event;
    event.kind = ResponseEvent::Kind::kToolCall;
    event.call = {std::exchange(call_name_, {}), call_arguments_.Take(), std::exchange(call_raw_, std::nullopt)};
    result_.tool_calls.push_back(event.call);
    events_.push_back(std::move(event));
  }
  Enter(Channel::kTools);
}

// Text of the old channel ends here; a call that is left without having been closed is dropped.
void ResponseParser::Enter(Channel channel) {
  if (channel == channel_) return;
  const bool reasoning = channel_ == Channel::kThink;
  Emit(reasoning ? ResponseEvent::Kind::kReasoning : ResponseEvent::Kind::kAnswer, decoder_.Finish());
  in_call_ = in_call_ && (channel == Channel::kCall || channel == Channel::kArgument || channel == Channel::kJson);
  channel_ = channel;
}

void ResponseParser::Emit(ResponseEvent::Kind kind, std::string text) {
  if (text.empty()) return;
  (kind == ResponseEvent::Kind::kReasoning ? result_.reasoning : result_.answer).append(text);
  events_.push_back({kind, std::move(text), {}});
}

std::vector<std::string_view> ResponseParser::OpenElements() const {
  switch (channel_) {
    case Channel::kThink:
      return {"think"};
    case Channel::kResponse:
      return {"response"};
    case Channel::kTools:
      return {"tools"};
    case Channel::kCall:
      return {"call", "tools"};
    case Channel::kArgument:
      return {"argument", "call", "tools"};
    case Channel::kJson:
      return {"json", "call", "tools"};
    case Channel::kGap:
    case Channel::kOther:
    case Channel::kDone:
      break;
  }
  return {};
}

}  // namespace deltafin
