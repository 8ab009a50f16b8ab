// AnswerFeed: the tokens of one answer -> pieces of text, thoughts and tool calls, handed from the engine thread to the
// thread of a connection.
//
// A chat's answer is read by the response parser; a raw completion's is text. Stop strings end the answer, not the
// thoughts. The pieces of a choice, joined, are the whole answer: what is streamed and what is not comes from the same
// pieces. AnswerChannel is thread-safe; a feed's events come from the engine thread only. Memory is bounded by the
// length of the answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/request_batch.h"
#include "server/api_error.h"
#include "text/response_parser.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace deltafin {

struct ScoredToken {
  TokenId id = 0;
  TokenScores scores;
};

struct AnswerEnd {
  std::string finish;       // "stop", "length", "tool_calls"
  std::string stop_string;  // the one that ended the answer
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t new_tokens = 0;  // without the stop token
  int64_t reasoning_tokens = 0;
  std::optional<ApiError> error;
};

struct AnswerPiece {
  enum class Kind : uint8_t { kProgress, kReasoning, kContent, kToolCall, kEnd };
  Kind kind = Kind::kContent;
  int64_t choice = 0;
  std::string text = {};                      // kReasoning, kContent
  std::vector<ScoredToken> tokens = {};       // kContent: those that the text came from, where scores were asked for
  ParsedToolCall call = {};                   // kToolCall
  int64_t prompt_done = 0, prompt_total = 0;  // kProgress
  AnswerEnd end = {};                         // kEnd
};

class AnswerChannel {
 public:
  void Push(AnswerPiece piece);
  // Nothing: none came in time.
  std::optional<AnswerPiece> Pop(std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<AnswerPiece> pieces_;
};

struct FeedOptions {
  int64_t choice = 0;
  std::optional<ResponseChannel> chat;  // nothing: raw completion
  std::vector<std::string> stops;
  bool calls = false;     // tool calls are reported; else dropped
  bool one_call = false;  // the answer ends with its first call
  bool scores = false;
  bool echo_scores = false;        // the prompt's tokens are part of the text
  std::vector<TokenId> echo = {};  // put in front of the text of a raw completion
};

class AnswerFeed final : public BatchEvents {
 public:
  // Refers to the tokenizer, which must outlive it. kUnsupported when the model has no chat markers.
  static Result<std::shared_ptr<AnswerFeed>> Create(const Tokenizer& tokenizer, std::shared_ptr<AnswerChannel> channel,
                                                    FeedOptions options);

  void OnPromptRead(int64_t done, int64_t total) override;
  void OnPromptScores(int64_t index, const TokenScores& scores) override;
  bool OnToken(TokenId token, const TokenScores* scores) override;
  void OnEnd(const Result<BatchResult>& result) override;

  // The form that the answer had to have was cut short to fit.
  void NoteShortened() { shortened_ = true; }

 private:
  AnswerFeed(const Tokenizer& tokenizer, std::shared_ptr<AnswerChannel> channel, FeedOptions options)
      : tokenizer_(tokenizer), channel_(std::move(channel)), options_(std::move(options)), matcher_(options_.stops) {}
  void Take(const std::vector<ResponseEvent>& events);
  void AddContent(const std::string& text);
  void Send(AnswerPiece::Kind kind, std::string text);
  void SendEcho();

  const Tokenizer& tokenizer_;
  const std::shared_ptr<AnswerChannel> channel_;
  const FeedOptions options_;
  std::optional<ResponseParser> parser_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::vector<ScoredToken> scored_;  // of content that was not sent yet
  int64_t calls_ = 0;
  int64_t reasoning_tokens_ = 0;
  bool stop_token_ = false;
  bool shortened_ = false;
  bool echoed_ = false;
};

}  // namespace deltafin
