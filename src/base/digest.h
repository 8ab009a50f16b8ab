// Digest: SHA-256, and the SHA-1 by which git names a file's contents: the checksums that hubs list and people compare.
// Not for the records of a model (checkpoint/integrity.h).
//
// The only includer of OpenSSL, which has the instructions that make these fast. Move-only; one thread at a time.
// Errors: kUnavailable when the library refuses (a system may forbid SHA-1).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace deltafin {

class Digest {
 public:
  static Result<Digest> Sha256();
  // Of a file of `size` bytes, as git hashes it.
  static Result<Digest> GitSha1(uint64_t size);

  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  Status Add(Bytes bytes);
  // Hexadecimal, lower case. Last call.
  Result<std::string> Finish();

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// SHA-256 of a short text, which every library has.
std::string Sha256Hex(std::string_view text);

}  // namespace deltafin
