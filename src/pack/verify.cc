#include "pack/verify.h"

#include "base/clock.h"
#include "pack/set_verifier.h"
#include "pack/shard_verifier.h"

namespace deltafin {

Result<VerifyReport> Verify(const VerifyOptions& options, const BadRecordFn& on_bad, const VerifyProgressFn& progress,
                            CancelToken cancel) {
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  Result<VerifyReport> report = options.experts.empty() ? VerifyShards(options, on_bad, progress, cancel)
                                                        : SetVerifier(options, on_bad, progress, cancel).Run();
  if (report) report->seconds = SecondsBetween(start, clock.NowNs());
  return report;
}

}  // namespace deltafin
