// ExpertUsage: how often each routed expert was wanted, over all runs with a checkpoint.
//
// Counted per step: an expert that several rows of a step chose counts once, as it is read once. Kept in the state
// folder, one file a checkpoint; pack --replicas takes the most used records from it. Costs only statistics when lost,
// so a damaged or foreign file counts as none. Counts are halved when they grow large, so that old habits fade.
// Thread-compatible. The file: magic "DFINUSE1", XXH3 of the rest, fingerprint, layers, experts, then one 32-bit count
// each, layer by layer; all little-endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

class ExpertUsage {
 public:
  // Starts at nothing.
  ExpertUsage(int64_t layers, int64_t experts, uint64_t fingerprint);

  void Add(int32_t layer, std::span<const int32_t> experts);
  uint32_t Count(ExpertKey key) const;
  uint64_t total() const { return total_; }
  // Of `layers`, the most used experts first (equal ones in their order), at most `most`: what a warm start reads.
  // Experts that were never used are among them only where all of them fit.
  std::vector<ExpertKey> MostUsed(std::span<const int32_t> layers, int64_t most) const;

  // Adds what the file of this checkpoint in `state_folder` holds. False when there is none that fits.
  bool Load(const std::string& state_folder);
  // Replaces the file with the current counts. At most kFilesKept files stay in the folder.
  Status Save(const std::string& state_folder) const;

  static constexpr int kFilesKept = 16;
  // The file's content; for tests and fuzzing.
  std::string ToBytes() const;
  bool AddBytes(std::string_view bytes);

 private:
  std::string Path(const std::string& state_folder) const;
  void Fade();

  int64_t layers_, experts_;
  uint64_t fingerprint_;
  uint64_t total_ = 0;
  std::vector<uint32_t> counts_;  // [layers, experts]
};

}  // namespace deltafin
