// ChatCall: one chat request, whatever API it came through, and the answers to it while they are made.
//
// StartChat renders and encodes the conversation, and queues one engine request per choice. RunningAnswers gives their
// pieces in the order in which they come; when it dies before they have ended, they are cancelled and the engine is
// free of them within one step. Thread rule: one thread at a time. Refusals are ApiErrors.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_feed.h"
#include "server/chat_fields.h"
#include "server/generation_settings.h"
#include "server/server_context.h"
#include "text/chat_message.h"

namespace deltafin {

struct ChatCall {
  std::vector<ChatMessage> messages;
  ChatOptions options;
  std::vector<DeclaredTool> tools;
  std::string named_tool;  // the only one that may be called, and must be
  bool one_call = false;   // parallel_tool_calls: false
  GenerationSettings settings;
};

class RunningAnswers {
 public:
  RunningAnswers(GenerationService& service, std::shared_ptr<AnswerChannel> channel,
                 std::shared_ptr<CancelSource> cancel, int64_t choices, int64_t prompt_tokens);
  ~RunningAnswers();
  RunningAnswers(RunningAnswers&&) = delete;

  // Waits for the next piece; `idle` is called about ten times a second meanwhile. Nothing: all have ended, or `gone`
  // says that nobody listens any more.
  std::optional<AnswerPiece> Next(const std::function<bool()>& gone, const std::function<void()>& idle = {});
  bool ended() const { return left_ == 0; }
  int64_t choices() const { return choices_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  GenerationService& service_;
  const std::shared_ptr<AnswerChannel> channel_;
  const std::shared_ptr<CancelSource> cancel_;
  const int64_t choices_, prompt_tokens_;
  int64_t left_;
  std::chrono::steady_clock::time_point last_look_ = {};  // for whether the client is there
};

// What one choice came to, for answers that are not streamed.
struct WholeAnswer {
  std::string reasoning, content;
  std::vector<ScoredToken> tokens;
  std::vector<ParsedToolCall> calls;
  AnswerEnd end;
};

struct TokenUsage {
  int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
  void Add(const AnswerEnd& end);
};

std::unique_ptr<RunningAnswers> StartChat(const ServerContext& context, const std::string& client, ChatCall call,
                                          std::optional<ApiError>* refused);
// Empty when the client went away. An error of one choice is the error of all.
std::vector<WholeAnswer> CollectAnswers(RunningAnswers& answers, const std::function<bool()>& gone,
                                        std::optional<ApiError>* failed);

}  // namespace deltafin
