// The prompts and generations recorded for k3-nano: our ids and texts must be those of the recording.
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/test_data.h"
#include "text/chat_encoder.h"
#include "text/response_parser.h"
#include "text/stream_decoder.h"
#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

class NanoModel : public testing::Test {
 protected:
  NanoModel() : tokenizer_(Tokenizer::Load(RepoPath("models/k3-nano")).value()) {
    const std::string text = ReadWholeFile(RepoPath("models/k3-nano/expected_greedy.json"), 1u << 20).value();
    records_ = ParsePythonJson(text).value().items;
  }

  std::vector<const PythonJson*> RecordsOfKind(std::string_view kind) const {
    std::vector<const PythonJson*> records;
    for (const PythonJson& record : records_) {
      if (TextAt(record, "kind") == kind) records.push_back(&record);
    }
    return records;
  }

  // A chat without effort was recorded with thinking off.
  static ChatPrompt PromptOf(const PythonJson& record) {
    ChatOptions options;
    const PythonJson& effort = At(record, "reasoning_effort");
    options.thinking = effort.is_string();
    if (options.thinking) options.effort = ParseThinkingEffort(effort.text).value();
    return RenderChat({UserMessage(TextAt(record, "user"))}, options).value();
  }

  Tokenizer tokenizer_;
  std::vector<PythonJson> records_;
};

TEST_F(NanoModel, CompletionPromptsEncodeToTheRecordedIds) {
  for (const PythonJson* record : RecordsOfKind("completion")) {
    EXPECT_EQ(tokenizer_.EncodeRaw(TextAt(*record, "prompt")), IdsOf(At(*record, "prompt_ids")))
        << TextAt(*record, "prompt");
  }
  EXPECT_EQ(RecordsOfKind("completion").size(), 6u);
}

TEST_F(NanoModel, ChatPromptsRenderToTheRecordedIds) {
  for (const PythonJson* record : RecordsOfKind("chat")) {
    EXPECT_EQ(EncodeSegments(tokenizer_, PromptOf(*record).segments).value(), IdsOf(At(*record, "prompt_ids")))
        << TextAt(*record, "user");
  }
  EXPECT_EQ(RecordsOfKind("chat").size(), 5u);
}

TEST_F(NanoModel, GeneratedIdsDecodeToTheRecordedText) {
  for (const PythonJson& record : records_) {
    const std::vector<TokenId> ids = IdsOf(At(record, "new_ids"));
    EXPECT_EQ(tokenizer_.Decode(ids).value(), TextAt(record, "text"));
    StreamDecoder decoder;
    std::string streamed;
    for (const TokenId id : ids) streamed += decoder.Append(tokenizer_.BytesOf(id));
    EXPECT_EQ(streamed + decoder.Finish(), TextAt(record, "text"));
  }
}

TEST_F(NanoModel, ChatAnswersParseIntoReasoningAndAnswer) {
  for (const PythonJson* record : RecordsOfKind("chat")) {
    const ChatPrompt prompt = PromptOf(*record);
    ResponseParser parser = ResponseParser::Create(tokenizer_, prompt.continues_in).value();
    for (const TokenId id : IdsOf(At(*record, "new_ids"))) parser.Append(id);
    EXPECT_TRUE(parser.done());
    parser.Finish(false);
    // The recorded text, cut at its markers by hand.
    const std::string text = TextAt(*record, "text");
    const std::string reopen = "<|close|>think<|sep|><|open|>response<|sep|>";
    const size_t think_end = text.find(reopen);
    const bool thought = think_end != std::string::npos;
    const size_t answer = thought ? think_end + reopen.size() : 0;
    EXPECT_EQ(parser.result().reasoning, thought ? text.substr(0, think_end) : "");
    EXPECT_EQ(parser.result().answer, text.substr(answer, text.find("<|close|>response", answer) - answer));
    EXPECT_EQ(parser.result().finish_reason, FinishReason::kStop);
  }
}

}  // namespace
}  // namespace deltafin::test
