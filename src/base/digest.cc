#include "base/digest.h"

#include <openssl/evp.h>

#include <span>

#include "base/check.h"

namespace deltafin {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

namespace {

Failure Refused() { return Fail(ErrorCode::kUnavailable, "checksum: the system's OpenSSL refuses it"); }

}  // namespace

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

Result<Digest> Digest::Sha256() {
  Digest digest(std::make_unique<State>());
  if (digest.state_->context == nullptr || EVP_DigestInit_ex(digest.state_->context, EVP_sha256(), nullptr) != 1)
    return Refused();
  return digest;
}

Result<Digest> Digest::GitSha1(uint64_t size) {
  Digest digest(std::make_unique<State>());
  if (digest.state_->context == nullptr || EVP_DigestInit_ex(digest.state_->context, EVP_sha1(), nullptr) != 1)
    return Refused();
  const std::string head = Cat("blob ", size, '\0');
  DFIN_TRY_VOID(digest.Add(std::as_bytes(std::span(head))));
  return digest;
}

Status Digest::Add(Bytes bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) return Refused();
  return {};
}

Result<std::string> Digest::Finish() {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_DigestFinal_ex(state_->context, out, &size) != 1) return Refused();
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[out[i] >> 4];
    text += kDigits[out[i] & 15];
  }
  return text;
}

std::string Sha256Hex(std::string_view text) {
  Result<Digest> digest = Digest::Sha256();
  DFIN_CHECK(digest && digest->Add(std::as_bytes(std::span(text))), "OpenSSL refuses SHA-256");
  Result<std::string> hex = digest->Finish();
  DFIN_CHECK(hex, "OpenSSL refuses SHA-256");
  return *hex;
}

}  // namespace deltafin
