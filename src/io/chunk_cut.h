// chunk_cut.h: the arithmetic of parts, chunks and copies: where chunks begin and end, and what a chunk is at its copy.
//
// Borders are whole aligned blocks away from the widened start of the part, for the first place as for the copy, so
// that only the ends of a part are widened and the pieces meet in memory without overlap. Pure functions.
#pragma once

#include <cstdint>

#include "io/read_request.h"

namespace deltafin {

// Whether the bytes of `part` can be read from its copy into the same memory, whatever the chunk: there is a copy on
// another drive, and both places are widened to the same bytes.
bool CopyFits(const ReadPart& part);

// The rest of `part` from byte `handed_out` of its request, up to the next border of chunks of `chunk_bytes`.
ReadRequest NextChunk(const ReadPart& part, uint64_t handed_out, uint64_t chunk_bytes);

// The read that brings the bytes of `range`, a chunk of `part`, from the copy.
ReadRequest AtCopy(const ReadPart& part, const ReadRequest& range);

}  // namespace deltafin
