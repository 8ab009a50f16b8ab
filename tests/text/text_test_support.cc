#include "text/text_test_support.h"

#include <array>
#include <bit>
#include <cstdio>

#include "base/check.h"
#include "base/json.h"
#include "support/test_data.h"
#include "text/rank_file.h"

namespace deltafin::test {

const std::vector<PythonJson>& AllCases() {
  static const std::vector<PythonJson> cases = [] {
    const auto text = ReadWholeFile(RepoPath("tests/data/tokenizer_chat_cases.json"), 64u << 20);
    DFIN_CHECK(text.has_value(), "the case file is part of the repository");
    auto json = ParsePythonJson(*text);
    DFIN_CHECK(json.has_value() && json->is_array(), "the case file is a JSON array");
    return std::move(json->items);
  }();
  return cases;
}

std::vector<const PythonJson*> CasesOfKind(std::string_view kind) {
  std::vector<const PythonJson*> cases;
  for (const PythonJson& entry : AllCases()) {
    if (TextAt(entry, "kind") == kind) cases.push_back(&entry);
  }
  return cases;
}

const PythonJson& CaseNamed(std::string_view name) {
  for (const PythonJson& entry : AllCases()) {
    if (TextAt(entry, "name") == name) return entry;
  }
  DFIN_CHECK(false, "no case of this name");
}

const PythonJson& At(const PythonJson& object, std::string_view key) {
  const PythonJson* value = object.Find(key);
  if (value == nullptr) std::fprintf(stderr, "member %s\n", std::string(key).c_str());
  DFIN_CHECK(value != nullptr, "a case lacks a member");
  return *value;
}

std::string TextAt(const PythonJson& object, std::string_view key) {
  DFIN_CHECK(At(object, key).is_string(), "expected a string");
  return At(object, key).text;
}

int64_t IntAt(const PythonJson& object, std::string_view key) {
  const auto value = At(object, key).AsInt64();
  DFIN_CHECK(value.has_value(), "expected an integer");
  return *value;
}

bool BoolAt(const PythonJson& object, std::string_view key) {
  DFIN_CHECK(At(object, key).is_bool(), "expected a bool");
  return At(object, key).boolean;
}

std::vector<TokenId> IdsOf(const PythonJson& array) {
  DFIN_CHECK(array.is_array(), "expected a list of ids");
  std::vector<TokenId> ids;
  for (const PythonJson& item : array.items) ids.push_back(static_cast<TokenId>(item.AsInt64().value()));
  return ids;
}

std::string GeneratedText(const PythonJson& generator) {
  std::string text;
  for (int64_t i = 0; i < IntAt(generator, "count"); ++i) text += TextAt(generator, "repeat");
  if (const PythonJson* suffix = generator.Find("suffix")) text += suffix->text;
  return text;
}

Tokenizer MakeTokenizer(std::vector<std::string> tokens) {
  constexpr std::pair<TokenId, std::string_view> kNames[] = {{0, "[BOS]"},
                                                             {1, "[EOS]"},
                                                             {2, "<|end_of_msg|>"},
                                                             {3, "<|open|>"},
                                                             {4, "<|close|>"},
                                                             {5, "<|sep|>"},
                                                             {6, "[start_header_id]"},
                                                             {7, "[end_header_id]"},
                                                             {9, "[EOT]"},
                                                             {18, "<|media_begin|>"},
                                                             {19, "<|media_content|>"},
                                                             {20, "<|media_end|>"},
                                                             {21, "<|media_pad|>"},
                                                             {65, "<osagent_mode>"},
                                                             {254, "[UNK]"},
                                                             {255, "[PAD]"}};
  TokenizerParts parts;
  const auto base = static_cast<TokenId>(tokens.size());
  parts.tokens = std::move(tokens);
  for (const auto& [offset, spelling] : kNames) {
    parts.named.push_back({base + offset, std::string(spelling), offset < 3 || offset > 5});
  }
  parts.eos_ids = {base + 2};
  auto tokenizer = Tokenizer::Create(std::move(parts));
  DFIN_CHECK(tokenizer.has_value(), "a tokenizer of Kimi K3's layout");
  return std::move(*tokenizer);
}

const Tokenizer& TinyTokenizer() {
  static const Tokenizer tokenizer = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    const PythonJson& definition = At(At(CaseNamed("vocab_tiny_definition"), "input"), "definition");
    for (const PythonJson& token : At(definition, "extra_tokens").items) tokens.push_back(token.text);
    return MakeTokenizer(std::move(tokens));
  }();
  return tokenizer;
}

const Tokenizer* K3Tokenizer() {
  static const std::optional<Tokenizer> tokenizer = []() -> std::optional<Tokenizer> {
    const auto folder = SharedPath("data/k3-tokenizer");
    if (!folder) return std::nullopt;
    const auto file = ReadWholeFile(*folder + "/tiktoken.model", 64u << 20);
    DFIN_CHECK(file.has_value(), "the shared folder holds tiktoken.model");
    auto tokens = ParseRankFile(*file);
    DFIN_CHECK(tokens.has_value(), "tiktoken.model is a rank file");
    return MakeTokenizer(std::move(*tokens));
  }();
  return tokenizer ? &*tokenizer : nullptr;
}

uint64_t Fnv1a64(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string Hex64(uint64_t value) {
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string LittleEndian(std::span<const TokenId> ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>((static_cast<uint32_t>(id) >> shift) & 0xFF));
  }
  return bytes;
}

// FIPS 180-4.
std::string Sha256Hex(std::string_view bytes) {
  static constexpr std::array<uint32_t, 64> kRound = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::array<uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded(bytes);
  padded.push_back('\x80');
  while (padded.size() % 64 != 56) padded.push_back('\0');
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded.push_back(static_cast<char>((bits >> shift) & 0xFF));
  for (size_t block = 0; block < padded.size(); block += 64) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i) w[i / 4] = (w[i / 4] << 8) | static_cast<unsigned char>(padded[block + i]);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15];
      const uint32_t b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    std::array<uint32_t, 8> v = hash;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (size_t i = 0; i < 8; ++i) hash[i] += v[i];
  }
  std::string hex;
  for (const uint32_t word : hash) hex += Hex64(word).substr(8);
  return hex;
}

}  // namespace deltafin::test
