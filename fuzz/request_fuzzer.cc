// Any bytes as the body of a request: refused with a name, or read; and a schema that is accepted can be written.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/chat_fields.h"
#include "server/generation_settings.h"
#include "small_tokenizer.h"
#include "text/answer_form.h"

using namespace deltafin;

namespace {

// Always the first token that may come.
void WriteOne(const std::shared_ptr<const AnswerForm>& form) {
  AnswerFormWalk walk(form);
  const int64_t limit = std::min<int64_t>(form->ShortestTokens(), 400);
  std::vector<float> logits(static_cast<size_t>(SmallTokenizer().token_count()));
  for (int64_t i = 0; i < limit && !walk.ended(); ++i) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    DFIN_CHECK(walk.Mask(logits, form->ShortestTokens() - i).has_value(), "a form that was accepted can be walked");
    size_t token = 0;
    while (token < logits.size() && std::isnan(logits[token])) ++token;
    DFIN_CHECK(token < logits.size(), "something may come");
    walk.Accept(static_cast<TokenId>(token));
  }
  DFIN_CHECK(walk.ended() || form->ShortestTokens() > limit, "the shortest answer is reached in time");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokenOrder order(SmallTokenizer());
  const auto body = ParsePythonJson(std::string_view(reinterpret_cast<const char*>(data), size), 64);
  if (!body) return 0;
  const RequestLimits limits;
  ChatOptions options;
  std::string named;
  SamplingParams sampling;
  std::vector<std::string> stops;
  RequestFields fields(*body, "");
  const std::vector<ChatMessage> messages = ReadMessages(fields, limits);
  const std::vector<DeclaredTool> tools = ReadTools(fields, limits, messages, &options);
  ReadToolChoice(fields, tools, &options, &named);
  ReadThinking(fields, &options);
  ReadResponseFormat(fields, limits, &options.response_format);
  ReadSampling(fields, {}, &sampling);
  ReadStops(fields, "stop", limits, &stops);
  const std::optional<ApiError> error = fields.Finish();
  if (error) {
    DFIN_CHECK(error->status == 400 && !error->message.empty(), "a refusal says why");
    return 0;
  }
  DFIN_CHECK(sampling.Validate().has_value(), "what was accepted can be sampled with");
  AnswerFormRequest request;
  request.format = options.response_format;
  if (options.tool_choice == ToolChoice::kRequired) request.calls = CallsAllowed::kRequired;
  for (const DeclaredTool& tool : tools) request.tools.push_back({tool.name, tool.parameters, tool.strict});
  const auto form = AnswerForm::Create(order, request);
  if (form) WriteOne(*form);
  return 0;
}
