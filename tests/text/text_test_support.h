// text_test_support.h: the recorded cases, the vocabularies they use, and the hashes they are recorded as.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/python_json.h"
#include "text/tokenizer.h"

namespace deltafin::test {

// All cases of tests/data/tokenizer_chat_cases.json.
const std::vector<PythonJson>& AllCases();
// Those of one kind ("encode", "render", "parse").
std::vector<const PythonJson*> CasesOfKind(std::string_view kind);
const PythonJson& CaseNamed(std::string_view name);

// Members of a case: they must exist, or the program ends.
const PythonJson& At(const PythonJson& object, std::string_view key);
std::string TextAt(const PythonJson& object, std::string_view key);
int64_t IntAt(const PythonJson& object, std::string_view key);
bool BoolAt(const PythonJson& object, std::string_view key);
std::vector<TokenId> IdsOf(const PythonJson& array);
// {repeat, count, suffix}
std::string GeneratedText(const PythonJson& generator);

// A tokenizer with the 16 named special tokens at their offsets in Kimi K3's file.
Tokenizer MakeTokenizer(std::vector<std::string> tokens);
// The single bytes in numeric order and a few words: the case vocab_tiny_definition.
const Tokenizer& TinyTokenizer();
// The real vocabulary, if this machine has it.
const Tokenizer* K3Tokenizer();
constexpr const char* kNeedsK3 = "needs the vocabulary of Kimi K3 (data/k3-tokenizer in the shared folder)";

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t Below(size_t bound) { return static_cast<uint32_t>(engine_() % bound); }

 private:
  std::mt19937 engine_;
};

uint64_t Fnv1a64(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);
std::string Hex64(uint64_t value);
std::string Sha256Hex(std::string_view bytes);
// Little-endian u32 each.
std::string LittleEndian(std::span<const TokenId> ids);

}  // namespace deltafin::test
