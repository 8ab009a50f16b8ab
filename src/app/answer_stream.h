// AnswerStream: new token ids -> pieces of text for a person, with stop strings.
//
// Raw completion: all bytes, special tokens by their spelling, stop tokens left out. Chat: the response parser tells
// thought from answer, and markers never appear. Stop strings end the answer (not the thought). Thread rule: engine
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/response_parser.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace deltafin {

class AnswerStream {
 public:
  enum class Channel : uint8_t { kThought, kAnswer, kToolCall };
  struct Piece {
    Channel channel = Channel::kAnswer;
    std::string text;
  };

  // Raw completion.
  AnswerStream(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), matcher_(stops) {}
  // Chat. kUnsupported when the model has no chat markers.
  static Result<AnswerStream> ForChat(const Tokenizer& tokenizer, ResponseChannel start,
                                      const std::vector<std::string>& stops);

  std::vector<Piece> Append(TokenId id);
  std::vector<Piece> Finish(bool length_limit);
  // A stop string was met, or the message is over.
  bool ended() const { return matcher_.matched() || (parser_ && parser_->done()); }
  bool stop_string_met() const { return matcher_.matched(); }
  // Chat only: where the message stands.
  const ResponseParser& parser() const { return *parser_; }

 private:
  void Take(const std::vector<ResponseEvent>& events, std::vector<Piece>& pieces);
  void AddAnswer(std::string text, std::vector<Piece>& pieces);

  const Tokenizer& tokenizer_;
  std::optional<ResponseParser> parser_;
  StreamDecoder decoder_;  // raw completion
  StopMatcher matcher_;
};

}  // namespace deltafin
