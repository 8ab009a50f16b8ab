// Digest: the checksums that hubs list: SHA-256, and the SHA-1 by which git names a file's contents.
//
// The only includer of OpenSSL, which has the instructions that make these fast. Move-only; one thread at a time.
// Errors: kUnavailable when the library refuses (a system may forbid SHA-1).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

}  // namespace deltafin
