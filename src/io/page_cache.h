// page_cache: what the system keeps of a file in memory, and asking it to let go.
//
// For measuring only: a read that the page cache answers says nothing about the drive. Linux; elsewhere nothing is
// known and nothing happens. One of page_cache_linux.cc and page_cache_posix.cc is linked. Functions without state;
// thread-safe. No errors: the answer of a system that tells nothing is "nothing is cached".
#pragma once

#include <cstdint>

#include "io/direct_file.h"

namespace deltafin {

void ForgetPages(const DirectFile& file, uint64_t offset, uint64_t bytes);
// Of [offset, offset + bytes); 0 where the system does not tell.
uint64_t CachedBytes(const DirectFile& file, uint64_t offset, uint64_t bytes);

}  // namespace deltafin
