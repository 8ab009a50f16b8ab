#include "app/text_model.h"

#include <filesystem>

#include "base/machine.h"

namespace deltafin {

bool HasTokenizer(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder + "/tiktoken.model", ignored);
}

Result<TextModel> LoadTextModel(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    return Fail(ErrorCode::kNotFound, "--model ", folder, ": not a folder that can be read");
  const uint64_t before = ResidentBytes();
  Result<Tokenizer> loaded = Tokenizer::Load(folder);
  if (!loaded) {
    Error error = std::move(loaded.error());
    if (error.code() == ErrorCode::kNotFound)
      return Fail(ErrorCode::kNotFound, error.message(),
                  " (without tokenizer files only token ids work: run --prompt-ids --ids, logits)");
    return Failure(std::move(error));
  }
  TextModel model;
  model.tokenizer = std::make_shared<const Tokenizer>(std::move(*loaded));
  const uint64_t after = ResidentBytes();
  model.bytes = after > before ? after - before : 0;
  return model;
}

}  // namespace deltafin
