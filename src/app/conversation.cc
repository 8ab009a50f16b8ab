#include "app/conversation.h"

namespace deltafin {

Result<Conversation> Conversation::Create(const Tokenizer& tokenizer, const std::string& system,
                                          const ChatOptions& options) {
  ChatOptions turn_options = options;
  turn_options.effort = ThinkingEffort::kUnstated;
  turn_options.add_generation_prompt = true;
  Conversation conversation(tokenizer, std::move(turn_options));

  ChatOptions preamble_options = options;
  preamble_options.add_generation_prompt = false;
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back(SystemMessage(system));
  DFIN_TRY(const ChatPrompt preamble, RenderChat(messages, preamble_options));
  DFIN_TRY(conversation.preamble_, EncodeSegments(tokenizer, preamble.segments));
  return conversation;
}

Status Conversation::AddUserMessage(const std::string& text) {
  DFIN_TRY(const ChatPrompt prompt, RenderChat({UserMessage(text)}, turn_options_));
  DFIN_TRY(std::vector<TokenId> ids, EncodeSegments(*tokenizer_, prompt.segments));
  continues_in_ = prompt.continues_in;
  turns_.push_back(std::move(ids));
  return {};
}

void Conversation::DropLastTurn() { turns_.pop_back(); }

std::vector<TokenId> Conversation::Prompt() const {
  std::vector<TokenId> ids = preamble_;
  for (const std::vector<TokenId>& turn : turns_) ids.insert(ids.end(), turn.begin(), turn.end());
  return ids;
}

int64_t Conversation::prompt_tokens() const {
  size_t count = preamble_.size();
  for (const std::vector<TokenId>& turn : turns_) count += turn.size();
  return static_cast<int64_t>(count);
}

Status Conversation::AddAnswer(const std::vector<TokenId>& ids, const ResponseParser& parser) {
  std::vector<TokenId>& turn = turns_.back();
  turn.insert(turn.end(), ids.begin(), ids.end());
  DFIN_TRY(const ChatMarkers markers, tokenizer_->chat_markers());
  if (!ids.empty() && ids.back() == markers.end_of_msg) return {};
  if (parser.in_tag()) {
    while (turn.back() != markers.open && turn.back() != markers.close) turn.pop_back();
    turn.pop_back();
  }
  std::vector<ChatSegment> tail;
  const auto tag = [&](const char* marker, std::string_view name) {
    tail.push_back({marker, true});
    tail.push_back({std::string(name), false});
    tail.push_back({"<|sep|>", true});
  };
  for (const std::string_view element : parser.OpenElements()) tag("<|close|>", element);
  if (!parser.response_seen()) {
    tag("<|open|>", "response");
    tag("<|close|>", "response");
  }
  if (!parser.done()) tag("<|close|>", "message");
  tail.push_back({"<|end_of_msg|>", true});
  DFIN_TRY(const std::vector<TokenId> tail_ids, EncodeSegments(*tokenizer_, tail));
  turn.insert(turn.end(), tail_ids.begin(), tail_ids.end());
  return {};
}

int Conversation::TrimTo(int64_t limit) {
  int dropped = 0;
  while (turns_.size() > 1 && prompt_tokens() > limit) {
    turns_.erase(turns_.begin());
    ++dropped;
  }
  return dropped;
}

}  // namespace deltafin
