// sha256: the SHA-256 digest of some bytes (FIPS 180-4).
//
// For names of texts and files that people compare, some megabytes at most: plain code, a few hundred MB a second. Not
// for the records of a model (checkpoint/integrity.h). Value type; a function without state; any thread; no errors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace deltafin {

class Sha256 {
 public:
  Sha256();
  void Add(std::string_view bytes);
  // 64 hexadecimal digits of all that was added; nothing may be added after it.
  std::string Finish();

 private:
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> rest_ = {};
  uint64_t bytes_ = 0;
};

std::string Sha256Hex(std::string_view bytes);

}  // namespace deltafin
