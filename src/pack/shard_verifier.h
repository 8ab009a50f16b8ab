// shard_verifier: the part of verify that reads the experts in the shards: readable, no scale of 255, and the same as
// in the expert set where the model has one; and files as their source lists them (pack/listed_verifier.h).
//
// Nothing is repaired: a damaged shard is to be downloaded again. A function without state. Errors as in verify.h.
#pragma once

#include "pack/verify.h"

namespace deltafin {

Result<VerifyReport> VerifyShards(const VerifyOptions& options, const BadRecordFn& on_bad,
                                  const VerifyProgressFn& progress, CancelToken cancel);

}  // namespace deltafin
