#include "server/chat_call.h"

#include <algorithm>

#include "server/form_filter.h"
#include "text/chat_encoder.h"

namespace deltafin {
namespace {

constexpr std::chrono::milliseconds kPatience(100);

std::optional<ApiError> Encode(const ServerContext& context, const ChatCall& call, std::vector<TokenId>* ids,
                               ResponseChannel* start) {
  const Result<ChatPrompt> prompt = RenderChat(call.messages, call.options);
  if (!prompt) return ApiError{400, prompt.error().message(), "messages", "invalid_value"};
  Result<std::vector<TokenId>> encoded = EncodeSegments(context.tokenizer, prompt->segments);
  if (!encoded) return ToApiError(encoded.error());
  *ids = std::move(*encoded);
  *start = prompt->continues_in;
  const int64_t most = context.service.engine().plan().context;
  if (std::ssize(*ids) > most)
    return ApiError{400,
                    Cat("messages: ", ids->size(), " tokens with what the format adds, and the context holds ", most,
                        ": shorten them, or start the server with a larger --context"),
                    "messages", "context_length_exceeded"};
  return std::nullopt;
}

// What the answer must look like, if anything: a schema, calls that must come, or arguments of tools that are strict.
Result<std::shared_ptr<const AnswerForm>> MakeForm(const ServerContext& context, const ChatCall& call,
                                                   ResponseChannel start) {
  const ResponseFormat& format = call.options.response_format;
  const bool must_call = call.options.tool_choice == ToolChoice::kRequired;
  const bool may_call = call.options.tool_choice == ToolChoice::kAuto && !call.tools.empty();
  const bool strict = std::any_of(call.tools.begin(), call.tools.end(), [](const auto& tool) { return tool.strict; });
  if (format.kind == ResponseFormat::Kind::kText && !must_call && !(may_call && strict))
    return std::shared_ptr<const AnswerForm>();
  if (call.messages.back().partial)
    return Fail(ErrorCode::kUnsupported, "partial: an answer that was begun cannot be held to a form");
  AnswerFormRequest request;
  request.start = start;
  request.format = format;
  request.calls = must_call ? CallsAllowed::kRequired : may_call ? CallsAllowed::kOptional : CallsAllowed::kNone;
  request.one_call = call.one_call || !call.named_tool.empty();
  for (const DeclaredTool& tool : call.tools)
    if (call.named_tool.empty() || tool.name == call.named_tool)
      request.tools.push_back({tool.name, tool.parameters, tool.strict});
  return AnswerForm::Create(context.token_order, request);
}

// What the choices of one request share.
struct ChoiceParts {
  std::shared_ptr<AnswerChannel> channel;
  std::shared_ptr<CancelSource> cancel;
  std::shared_ptr<const AnswerForm> form;  // null: none
  ResponseChannel start;
};

// Everything that the engine thread needs of one choice.
struct ChoiceOwner {
  std::shared_ptr<AnswerFeed> feed;
  std::unique_ptr<FormFilter> filter;
};

// Without its prompt.
Result<QueuedRequest> MakeChoice(const ServerContext& context, const ChatCall& call, const ChoiceParts& parts,
                                 int64_t index) {
  const GenerationSettings& settings = call.settings;
  FeedOptions options{.choice = index,
                      .chat = parts.start,
                      .stops = settings.stops,
                      .calls = !call.tools.empty() && call.options.tool_choice != ToolChoice::kNone,
                      .one_call = call.one_call || !call.named_tool.empty(),
                      .scores = settings.top_scores >= 0};
  DFIN_TRY(std::shared_ptr<AnswerFeed> feed, AnswerFeed::Create(context.tokenizer, parts.channel, std::move(options)));
  auto owner = std::make_shared<ChoiceOwner>(ChoiceOwner{feed, nullptr});
  if (parts.form != nullptr) owner->filter = std::make_unique<FormFilter>(parts.form, *feed);
  QueuedRequest one;
  one.request.max_new = settings.max_new;
  one.request.sampling = settings.sampling;
  one.request.sampling.seed += static_cast<uint64_t>(index);
  one.request.logit_bias = settings.logit_bias;
  one.request.usable_vocab = context.tokenizer.token_count();
  one.request.stop_tokens.assign(context.tokenizer.stop_ids().begin(), context.tokenizer.stop_ids().end());
  one.request.top_scores = settings.top_scores;
  one.request.filter = owner->filter.get();
  one.request.cancel = parts.cancel->token();
  one.request.events = owner->feed.get();
  one.owner = std::move(owner);
  one.cancel = parts.cancel;
  return one;
}

}  // namespace

RunningAnswers::RunningAnswers(GenerationService& service, std::shared_ptr<AnswerChannel> channel,
                               std::shared_ptr<CancelSource> cancel, int64_t choices, int64_t prompt_tokens)
    : service_(service),
      channel_(std::move(channel)),
      cancel_(std::move(cancel)),
      choices_(choices),
      prompt_tokens_(prompt_tokens),
      left_(choices) {}

RunningAnswers::~RunningAnswers() {
  if (left_ == 0) return;
  cancel_->Cancel();
  service_.NoteCancelled();
}

std::optional<AnswerPiece> RunningAnswers::Next(const std::function<bool()>& gone, const std::function<void()>& idle) {
  while (left_ > 0) {
    // Also while pieces come: who is answered whole would not be missed until the end.
    const auto now = std::chrono::steady_clock::now();
    if (gone && now - last_look_ >= kPatience) {
      last_look_ = now;
      if (gone()) return std::nullopt;
    }
    std::optional<AnswerPiece> piece = channel_->Pop(kPatience);
    if (piece) {
      if (piece->kind == AnswerPiece::Kind::kEnd) --left_;
      return piece;
    }
    if (idle) idle();
  }
  return std::nullopt;
}

void TokenUsage::Add(const AnswerEnd& end) {
  // The choices of one request have one prompt.
  prompt = end.prompt_tokens;
  cached = completion == 0 ? end.cached_tokens : std::min(cached, end.cached_tokens);
  completion += end.new_tokens;
  reasoning += end.reasoning_tokens;
}

std::unique_ptr<RunningAnswers> StartChat(const ServerContext& context, const std::string& client, ChatCall call,
                                          std::optional<ApiError>* refused) {
  std::vector<TokenId> prompt;
  ResponseChannel start = ResponseChannel::kReasoning;
  *refused = Encode(context, call, &prompt, &start);
  if (*refused) return nullptr;
  const Result<std::shared_ptr<const AnswerForm>> form = MakeForm(context, call, start);
  if (!form) {
    const bool tools = call.options.response_format.kind == ResponseFormat::Kind::kText;
    *refused = ApiError{400, form.error().message(), tools ? "tools" : "response_format", "unsupported_schema"};
    return nullptr;
  }
  const GenerationSettings& settings = call.settings;
  const int64_t room = RequestBatch::Room(context.service.engine(), std::ssize(prompt));
  const int64_t most = settings.max_new == 0 ? room : std::min(settings.max_new, room);
  if (*form != nullptr && (*form)->ShortestTokens() > most) {
    *refused = ApiError{400,
                        Cat(settings.max_new_field, ": the shortest answer of this form takes ", (*form)->ShortestTokens(),
                            " tokens, and ", most, " are allowed"),
                        std::string(settings.max_new_field), "invalid_value"};
    return nullptr;
  }
  auto channel = std::make_shared<AnswerChannel>();
  auto cancel = std::make_shared<CancelSource>();
  std::vector<QueuedRequest> group;
  for (int64_t i = 0; i < settings.choices; ++i) {
    Result<QueuedRequest> one = MakeChoice(context, call, {channel, cancel, *form, start}, i);
    if (!one) {
      *refused = ToApiError(one.error());
      return nullptr;
    }
    one->request.prompt = prompt;
    group.push_back(std::move(*one));
  }
  const Status queued = context.service.Submit(client, std::move(group));
  if (!queued) {
    *refused = ToApiError(queued.error());
    return nullptr;
  }
  return std::make_unique<RunningAnswers>(context.service, channel, cancel, settings.choices, std::ssize(prompt));
}

std::vector<WholeAnswer> CollectAnswers(RunningAnswers& answers, const std::function<bool()>& gone,
                                        std::optional<ApiError>* failed) {
  std::vector<WholeAnswer> whole(static_cast<size_t>(answers.choices()));
  while (std::optional<AnswerPiece> piece = answers.Next(gone)) {
    WholeAnswer& answer = whole[static_cast<size_t>(piece->choice)];
    switch (piece->kind) {
      case AnswerPiece::Kind::kProgress:
        break;
      case AnswerPiece::Kind::kReasoning:
        answer.reasoning += piece->text;
        break;
      case AnswerPiece::Kind::kContent:
        answer.content += piece->text;
        answer.tokens.insert(answer.tokens.end(), piece->tokens.begin(), piece->tokens.end());
        break;
      case AnswerPiece::Kind::kToolCall:
        answer.calls.push_back(std::move(piece->call));
        break;
      case AnswerPiece::Kind::kEnd:
        answer.end = std::move(piece->end);
        if (answer.end.error) *failed = answer.end.error;
        break;
    }
  }
  if (!answers.ended()) whole.clear();
  return whole;
}

}  // namespace deltafin
