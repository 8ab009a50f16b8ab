#include "draft/draft_kind.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "draft/draft_tensors.h"

namespace deltafin {

Result<DraftKind> DraftKindOf(const std::string& folder) {
  const std::string path = folder + "/config.json";
  DFIN_TRY(const std::string text, ReadDraftConfig(path));
  DFIN_TRY(const Json config, ParseJson(text, path));
  const Json type = config.is_object() && config.contains("model_type") ? config["model_type"] : Json();
  if (type == "k3_dspark") return DraftKind::kDspark;
  if (type == "qwen3") return DraftKind::kQwen;
  return Fail(ErrorCode::kUnsupported, path, ": model_type: expected \"k3_dspark\" or \"qwen3\", got ",
              DumpJson(type).substr(0, 80));
}

}  // namespace deltafin
