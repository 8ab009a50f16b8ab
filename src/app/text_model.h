// text_model.h: the tokenizer of a model folder, with the memory it takes (a row of the memory plan).
//
// Adds to Tokenizer::Load what a person needs to hear: that the folder does not exist, or what still works without
// tokenizer files. Thread rule: the tokenizer is constant once loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace deltafin {

struct TextModel {
  std::shared_ptr<const Tokenizer> tokenizer;
  uint64_t bytes = 0;  // resident memory that loading it took
};

// kNotFound names the missing file and says what works without it.
Result<TextModel> LoadTextModel(const std::string& folder);
// True when the folder holds a rank file at all.
bool HasTokenizer(const std::string& folder);

}  // namespace deltafin
