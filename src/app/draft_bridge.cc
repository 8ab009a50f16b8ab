#include "app/draft_bridge.h"

#include "app/text_model.h"
#include "base/machine.h"
#include "draft/draft_kind.h"
#include "draft/qwen_drafter.h"

namespace deltafin {
namespace {

Result<DraftBridge> Load(const CommonOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  const uint64_t before = ResidentBytes();
  if (tokenizer == nullptr) {
    DFIN_TRY(TextModel text, LoadTextModel(options.model));
    tokenizer = std::move(text.tokenizer);
  }
  const std::string config_path = options.draft_model + "/config.json";
  DFIN_TRY(const std::string json, ReadDraftConfig(config_path));
  DFIN_TRY(const QwenConfig config, QwenConfig::Parse(json, config_path));
  DFIN_TRY(ByteLevelTokenizer own, ByteLevelTokenizer::Load(options.draft_model + "/tokenizer.json"));
  DFIN_TRY_VOID(QwenDrafter::CheckVocabulary(config, own));
  DraftBridge out;
  out.bridge = std::make_shared<const TokenBridge>(std::move(tokenizer), std::move(own));
  const uint64_t after = ResidentBytes();
  out.bytes = after > before ? after - before : 0;
  return out;
}

}  // namespace

Result<DraftBridge> LoadDraftBridge(const CommonOptions& options, std::shared_ptr<const Tokenizer> tokenizer, bool raw) {
  constexpr const char* kOnlyRaw =
      "a Qwen3 model drafts raw completion only, not chats, whose frame and thoughts it does not know";
  const bool by_name = options.draft == "qwen";
  if (by_name && !raw)
    return Fail(ErrorCode::kInvalidArgument, "--draft qwen: ", kOnlyRaw, ": use run without --chat, or --draft auto");
  if (options.draft_model.empty() || (!by_name && options.draft != "auto")) return DraftBridge{};
  const Result<DraftKind> kind = DraftKindOf(options.draft_model);
  // What is wrong with the folder, or another kind than asked for, is the engine's to say.
  if (!kind || *kind != DraftKind::kQwen) return DraftBridge{};
  const std::string option = "--draft-model: ";
  if (!raw) return DraftBridge{nullptr, 0, option + kOnlyRaw};
  Result<DraftBridge> loaded = Load(options, std::move(tokenizer));
  if (loaded) return loaded;
  if (by_name) return FailWith(std::move(loaded), "--draft-model");
  return DraftBridge{nullptr, 0, option + loaded.error().message()};
}

}  // namespace deltafin
