// punch_hole: gives the room of a part of a file back to its file system; the part reads as zeros afterwards.
//
// One of punch_hole_linux.cc and punch_hole_darwin.cc is linked. A function without state; thread-safe. Returns 0 or
// errno; file systems without holes refuse.
#pragma once

#include <cstdint>

namespace deltafin {

int PunchHole(int fd, uint64_t offset, uint64_t bytes);

}  // namespace deltafin
