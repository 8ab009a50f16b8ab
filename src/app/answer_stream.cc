#include "app/answer_stream.h"

namespace deltafin {

Result<AnswerStream> AnswerStream::ForChat(const Tokenizer& tokenizer, ResponseChannel start,
                                           const std::vector<std::string>& stops) {
  AnswerStream stream(tokenizer, stops);
  DFIN_TRY(ResponseParser parser, ResponseParser::Create(tokenizer, start));
  stream.parser_.emplace(std::move(parser));
  return stream;
}

void AnswerStream::AddAnswer(std::string text, std::vector<Piece>& pieces) {
  if (matcher_.matched()) return;
  std::string certain = matcher_.Append(text);
  if (!certain.empty()) pieces.push_back({Channel::kAnswer, std::move(certain)});
}

void AnswerStream::Take(const std::vector<ResponseEvent>& events, std::vector<Piece>& pieces) {
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kReasoning:
        pieces.push_back({Channel::kThought, event.text});
        break;
      case ResponseEvent::Kind::kAnswer:
        AddAnswer(event.text, pieces);
        break;
      case ResponseEvent::Kind::kToolCall:
        pieces.push_back({Channel::kToolCall, event.call.name + " " + event.call.ArgumentsText()});
        break;
    }
  }
}

std::vector<AnswerStream::Piece> AnswerStream::Append(TokenId id) {
  std::vector<Piece> pieces;
  if (parser_)
    Take(parser_->Append(id), pieces);
  else if (!tokenizer_.IsStop(id))
    AddAnswer(decoder_.Append(tokenizer_.BytesOf(id)), pieces);
  return pieces;
}

std::vector<AnswerStream::Piece> AnswerStream::Finish(bool length_limit) {
  std::vector<Piece> pieces;
  if (parser_)
    Take(parser_->Finish(length_limit), pieces);
  else
    AddAnswer(decoder_.Finish(), pieces);
  if (!matcher_.matched()) {
    std::string rest = matcher_.Finish();
    if (!rest.empty()) pieces.push_back({Channel::kAnswer, std::move(rest)});
  }
  return pieces;
}

}  // namespace deltafin
