// listed_verifier: the part of verify that hashes the files of a model folder and compares them with the checksums that
// their source lists (checkpoint/model_files.h).
//
// Several files at a time. A shard that gave up its experts has other bytes by right and is left out, and so is a file
// that is not there; the report counts both. A function without state; `on_bad` and `progress` are called on the
// calling thread. Errors: kIo of reading is a finding, kCancelled.
#pragma once

#include "checkpoint/model_files.h"
#include "pack/verify.h"

namespace deltafin {

Status VerifyListed(const VerifyOptions& options, const ModelFiles& list, const BadRecordFn& on_bad,
                    const VerifyProgressFn& progress, CancelToken cancel, VerifyReport& report);

}  // namespace deltafin
