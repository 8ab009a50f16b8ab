// Any bytes as a rank file: refused or a vocabulary in which every token is found again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/rank_file.h"
#include "text/token_table.h"

namespace {

// The 256 lines that a valid file must have, so that the fuzzer gets past them.
std::string SingleByteLines() {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (unsigned byte = 0; byte < 256; ++byte) {
    file.push_back(kDigits[byte >> 2]);
    file.push_back(kDigits[(byte & 3) << 4]);
    file.append("== ").append(std::to_string(byte)).append("\n");
  }
  return file;
}

void Check(std::string_view file) {
  const auto tokens = deltafin::ParseRankFile(file);
  if (!tokens) return;
  const deltafin::TokenTable table(*tokens);
  for (size_t rank = 0; rank < tokens->size(); ++rank) {
    DFIN_CHECK(!(*tokens)[rank].empty(), "no token is empty");
    DFIN_CHECK(table.Find((*tokens)[rank]) == static_cast<int32_t>(rank), "each token is found at its rank");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string lines = SingleByteLines();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  Check(input);
  Check(lines + std::string(input));
  return 0;
}
