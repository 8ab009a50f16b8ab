#include "app/draft_setup.h"

#include <filesystem>

namespace deltafin {
namespace {

Failure Refuse(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Result<DraftMode> ParseDraft(const std::string& draft) {
  if (draft == "auto") return DraftMode::kAuto;
  if (draft == "off") return DraftMode::kOff;
  if (draft == "ngram") return DraftMode::kNgram;
  if (draft == "dspark") return DraftMode::kDspark;
  if (draft == "qwen") return DraftMode::kQwen;
  return Refuse("--draft " + draft + ": expected auto, off, ngram, dspark or qwen");
}

}  // namespace

Status SetDraftOptions(const CommonOptions& options, bool generates, EngineOptions* engine_options) {
  DFIN_TRY(const DraftMode mode, ParseDraft(options.draft));
  const bool is_model = mode == DraftMode::kDspark || mode == DraftMode::kQwen;
  const bool takes_model = mode == DraftMode::kAuto || is_model;
  if (!options.draft_model.empty() && !takes_model)
    return Refuse("--draft-model: does nothing with --draft " + options.draft);
  if (options.draft_model.empty() && is_model)
    return Refuse("--draft " + options.draft + ": expected the folder of a drafter too: give --draft-model");
  std::error_code failed;
  if (!options.draft_model.empty() && !std::filesystem::is_directory(options.draft_model, failed))
    return Fail(ErrorCode::kNotFound, "--draft-model ", options.draft_model,
                ": expected a folder, there is none of this name");
  if (!generates &&
      (!options.draft_model.empty() || (mode != DraftMode::kAuto && mode != DraftMode::kOff) || options.max_drafts))
    return Refuse("--draft, --max-drafts: this command does not draft, only run, chat, serve and bench draft do");
  if (options.max_drafts && (*options.max_drafts < 1 || *options.max_drafts > kMostDrafts))
    return Refuse(Cat("--max-drafts ", *options.max_drafts, ": expected 1 to ", kMostDrafts));
  if (options.max_drafts && mode == DraftMode::kOff) return Refuse("--max-drafts: does nothing with --draft off");
  engine_options->draft = generates ? mode : DraftMode::kOff;
  engine_options->draft_model = options.draft_model;
  engine_options->max_drafts = options.max_drafts.value_or(0);
  return {};
}

std::vector<TokenId> StopTokens(const Tokenizer* tokenizer, const ModelSpec& spec) {
  if (tokenizer == nullptr) return spec.eos_token_ids;
  const std::span<const TokenId> ids = tokenizer->stop_ids();
  return {ids.begin(), ids.end()};
}

Result<std::unique_ptr<Drafting>> MakeDrafting(Engine& engine, const Tokenizer* tokenizer,
                                               std::shared_ptr<const TokenBridge> bridge) {
  DraftingSetup setup{.stop_tokens = StopTokens(tokenizer, engine.spec()), .bridge = std::move(bridge)};
  if (tokenizer != nullptr) {
    setup.first_special = tokenizer->base();
    setup.usable_vocab = tokenizer->token_count();
  }
  // A drafter that was asked for by name drafts alone.
  const DraftMode by = engine.plan().draft_by;
  setup.ngram = by == DraftMode::kAuto || by == DraftMode::kNgram;
  return Drafting::ForPlan(engine, std::move(setup));
}

}  // namespace deltafin
