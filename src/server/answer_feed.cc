#include "server/answer_feed.h"

#include <utility>

namespace deltafin {

void AnswerChannel::Push(AnswerPiece piece) {
  const std::lock_guard lock(mutex_);
  // Of progress only the newest is worth anything.
  if (piece.kind == AnswerPiece::Kind::kProgress && !pieces_.empty() &&
      pieces_.back().kind == AnswerPiece::Kind::kProgress)
    pieces_.pop_back();
  pieces_.push_back(std::move(piece));
  wake_.notify_one();
}

std::optional<AnswerPiece> AnswerChannel::Pop(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!wake_.wait_for(lock, patience, [this] { return !pieces_.empty(); })) return std::nullopt;
  AnswerPiece piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

Result<std::shared_ptr<AnswerFeed>> AnswerFeed::Create(const Tokenizer& tokenizer,
                                                       std::shared_ptr<AnswerChannel> channel, FeedOptions options) {
  std::shared_ptr<AnswerFeed> feed(new AnswerFeed(tokenizer, std::move(channel), std::move(options)));
  if (feed->options_.chat) {
    DFIN_TRY(ResponseParser parser, ResponseParser::Create(tokenizer, *feed->options_.chat));
    feed->parser_.emplace(std::move(parser));
  }
  return feed;
}

void AnswerFeed::Send(AnswerPiece::Kind kind, std::string text) {
  AnswerPiece piece{.kind = kind, .choice = options_.choice, .text = std::move(text)};
  if (kind == AnswerPiece::Kind::kContent) piece.tokens = std::exchange(scored_, {});
  channel_->Push(std::move(piece));
}

void AnswerFeed::OnPromptRead(int64_t done, int64_t total) {
  channel_->Push(
      {.kind = AnswerPiece::Kind::kProgress, .choice = options_.choice, .prompt_done = done, .prompt_total = total});
}

void AnswerFeed::OnPromptScores(int64_t index, const TokenScores& scores) {
  if (!options_.echo_scores) return;
  if (index == 1) scored_.push_back({options_.echo[0], {}});  // nothing comes before it
  scored_.push_back({options_.echo[static_cast<size_t>(index)], scores});
}

void AnswerFeed::SendEcho() {
  if (echoed_ || options_.echo.empty()) return;
  echoed_ = true;
  if (options_.echo_scores && scored_.empty()) scored_.push_back({options_.echo[0], {}});
  std::string text;
  for (const TokenId id : options_.echo) text += decoder_.Append(tokenizer_.BytesOf(id));
  text += decoder_.Finish();
  Send(AnswerPiece::Kind::kContent, std::move(text));
}

void AnswerFeed::AddContent(const std::string& text) {
  if (matcher_.matched()) return;
  std::string certain = matcher_.Append(text);
  if (!certain.empty()) Send(AnswerPiece::Kind::kContent, std::move(certain));
}

void AnswerFeed::Take(const std::vector<ResponseEvent>& events) {
  for (const ResponseEvent& event : events) {
    switch (event.kind) {
      case ResponseEvent::Kind::kReasoning:
        Send(AnswerPiece::Kind::kReasoning, event.text);
        break;
      case ResponseEvent::Kind::kAnswer:
        AddContent(event.text);
        break;
      case ResponseEvent::Kind::kToolCall:
        if (!options_.calls || matcher_.matched() || (options_.one_call && calls_ > 0)) break;
        ++calls_;
        channel_->Push({.kind = AnswerPiece::Kind::kToolCall, .choice = options_.choice, .call = event.call});
        break;
    }
  }
}

bool AnswerFeed::OnToken(TokenId token, const TokenScores* scores) {
  SendEcho();
  stop_token_ = tokenizer_.IsStop(token);
  if (!parser_) {
    if (stop_token_) return false;
    if (scores != nullptr) scored_.push_back({token, *scores});
    AddContent(decoder_.Append(tokenizer_.BytesOf(token)));
    return !matcher_.matched();
  }
  const bool thinking = !parser_->response_seen();
  if (thinking && !stop_token_) ++reasoning_tokens_;
  if (scores != nullptr && !thinking && !parser_->in_tag() && !tokenizer_.IsSpecial(token)) {
    const std::vector<std::string_view> open = parser_->OpenElements();
    if (!open.empty() && open[0] == "response") scored_.push_back({token, *scores});
  }
  Take(parser_->Append(token));
  return !matcher_.matched() && !parser_->done() && !(options_.one_call && calls_ > 0);
}

void AnswerFeed::OnEnd(const Result<BatchResult>& result) {
  AnswerPiece last{.kind = AnswerPiece::Kind::kEnd, .choice = options_.choice};
  AnswerEnd& end = last.end;
  if (!result || result->reason == StopReason::kCancelled) {
    // Whoever still listens to a request that was cancelled sees the server stop.
    end.error = result ? ApiError{503, "the server is stopping"} : ToApiError(result.error());
    channel_->Push(std::move(last));
    return;
  }
  SendEcho();
  const bool by_length = result->reason == StopReason::kLength;
  if (parser_)
    Take(parser_->Finish(by_length));
  else
    AddContent(decoder_.Finish());
  if (!matcher_.matched()) {
    std::string held = matcher_.Finish();
    if (!held.empty() || !scored_.empty()) Send(AnswerPiece::Kind::kContent, std::move(held));
  }
  end.finish = "stop";
  if (matcher_.matched())
    end.stop_string = matcher_.matched_stop();
  else if (by_length || shortened_)
    end.finish = "length";
  else if (calls_ > 0)
    end.finish = "tool_calls";
  end.prompt_tokens = result->prompt_tokens;
  end.cached_tokens = result->prompt_tokens - result->prompt_tokens_read;
  end.new_tokens = result->new_tokens - (stop_token_ ? 1 : 0);
  end.reasoning_tokens = reasoning_tokens_;
  channel_->Push(std::move(last));
}

}  // namespace deltafin
