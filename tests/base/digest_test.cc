// Digests against the examples of FIPS 180-4 and against `sha256sum`.
#include "base/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

namespace deltafin {
namespace {

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// At the borders of a block and of its length field, in pieces of every size: the same as at once.
TEST(Sha256, DoesNotDependOnHowBytesComeIn) {
  for (const size_t length : {55u, 56u, 63u, 64u, 65u, 119u, 120u, 128u}) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + i % 26);
    for (size_t piece = 1; piece <= length; ++piece) {
      Digest hash = *Digest::Sha256();
      const Bytes bytes = std::as_bytes(std::span(text));
      for (size_t at = 0; at < length; at += piece)
        ASSERT_TRUE(hash.Add(bytes.subspan(at, std::min(piece, length - at))));
      EXPECT_EQ(*hash.Finish(), Sha256Hex(text)) << length << " in pieces of " << piece;
    }
  }
}

// printf 'a%.0s' $(seq 55) | sha256sum, and with 56 and 64.
TEST(Sha256, PadsAtTheBordersOfABlock) {
  EXPECT_EQ(Sha256Hex(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(Sha256Hex(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(Sha256Hex(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

}  // namespace
}  // namespace deltafin
