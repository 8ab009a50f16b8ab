#include "doctor/readers.h"

namespace deltafin {

Result<Readers> Readers::Open(const Subject& subject, const std::vector<std::string>& others) {
  Readers readers;
  DFIN_TRY(Checkpoint opened,
           Checkpoint::Open({.folder = subject.options.model,
                             .index_cache_folder = "",
                             .cancel = subject.options.cancel,
                             .progress = {},
                             .experts = subject.experts.empty() ? ExpertsWanted::kInShards : ExpertsWanted::kElsewhere,
                             .reads_buffered = {},
                             .may_be_streamed = subject.is_streamed()}));
  readers.checkpoint = std::make_unique<Checkpoint>(std::move(opened));
  IoSchedulerOptions options;
  options.drives = readers.checkpoint->drives();
  readers.first_other = static_cast<int32_t>(options.drives.size());
  for (const std::string& folder : others) options.drives.push_back({folder, 0});
  DFIN_TRY(std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = "auto", .depth = 64}));
  readers.io = std::make_unique<IoScheduler>(std::move(engine), std::move(options));
  return readers;
}

}  // namespace deltafin
