// test_file.h: files with contents that can be checked at any offset, for the tests of src/io.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bytes.h"

namespace deltafin::test {

// The byte that every test file has at `offset`.
std::byte ByteAt(uint64_t offset);
std::vector<std::byte> ContentsOf(uint64_t bytes);
// Writes a file of `bytes` bytes to the drive itself (synced, so that the page cache can let go of it).
void WriteTestFile(const std::string& path, uint64_t bytes);
// Whether `got` holds the bytes of a test file from `offset` on.
bool HoldsBytesFrom(Bytes got, uint64_t offset);
AlignedBuffer MakeBuffer(uint64_t bytes);

}  // namespace deltafin::test
