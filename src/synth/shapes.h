// shapes.h: the dimensions a synthetic checkpoint can have: K3's, a slice of it, k3-nano's, or those of a config.json.
//
// This and spec/ are the only folders of src/ that may name K3's sizes. Pure functions; the result has passed the same
// checks as a real config (ModelSpec::FromConfig). Errors: kInvalidArgument, kNotFound, kIo, kUnsupported, kCorrupt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "spec/model_spec.h"

namespace deltafin {

struct SynthShape {
  // "k3": 93 layers, 896 experts. "k3-slice": K3's widths, 4 layers, 96 experts, vocabulary 2048. "nano": k3-nano's.
  // Anything else: the path of a config.json.
  std::string name = "k3-slice";
  // Replace the shape's own number. With `layers`, every fourth and the last layer are MLA, as in K3.
  std::optional<int64_t> layers = {};
  std::optional<int64_t> experts = {};
  std::optional<int64_t> vocabulary = {};
};

Result<ModelSpec> MakeSynthSpec(const SynthShape& shape);

// `spec` as a reader of its config.json sees it: same checks as for a real one, and the derived numbers filled in.
Result<ModelSpec> CheckSynthSpec(const ModelSpec& spec);

// config.json and generation_config.json of a checkpoint of that spec.
std::string MakeConfigText(const ModelSpec& spec);
std::string MakeGenerationConfigText(const ModelSpec& spec);

// Ids are laid out as in the release: ordinary ones first, the special ones last (256, or a quarter of a tiny
// vocabulary).
int64_t OrdinaryTokens(int64_t vocabulary);

}  // namespace deltafin
