// pack_case: a small model, folders that stand for drives, and what a test compares: bytes of experts, bytes of files.
//
// Experts of 12 pages (11 with compact scales), three layers of 12. Reads shards and sets by code of its own, through
// plain file reads. Aborts where a test could not go on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "pack/pack.h"
#include "pack/verify.h"
#include "spec/model_spec.h"
#include "support/test_data.h"

namespace deltafin::test {

inline constexpr int kPackLayers = 3, kPackExperts = 12, kPackRecords = kPackLayers * kPackExperts;
inline constexpr uint64_t kPackPage = 4096;

using FileContents = std::map<std::string, std::string>;  // path -> bytes
using ExpertBytes = std::map<ExpertKey, std::string>;     // w1, w2, w3 packed, then their scales

class PackCase {
 public:
  PackCase();

  std::string model() const { return root_.path() + "/model"; }
  std::string drive(int number) const { return root_.path() + "/drive" + std::to_string(number); }
  std::vector<std::string> drives(int count) const;
  std::string state() const { return root_.path() + "/state"; }
  std::string shard(int number) const;  // 1 to 5; experts are in 2, 3 and 4
  const std::string& root() const { return root_.path(); }
  const ModelSpec& spec() const;

  // Small batches, no state. Rates by drive; missing ones are 0.
  PackOptions Options(const std::vector<std::string>& folders, const std::vector<double>& rates = {}) const;

  // Everything but the model as it was at first; the model too.
  void Reset();
  // The model folder becomes that of a model of the same shape: one router bias differs.
  void MakeAnotherModel();
  // Scales of one matrix of an expert that do not fit 16 exponents.
  void SpoilScales(ExpertKey key, int matrix);

  // What the shards hold now.
  ExpertBytes InShards() const;
  // What a published set holds, opened as the engine opens it.
  ExpertBytes InSet(const std::vector<std::string>& folders) const;
  // What piece files and a journal (or a published set, whole or not) hold.
  ExpertBytes InJournal(const std::string& folder) const;
  const ExpertBytes& originals() const { return originals_; }

  // All files under root(), without the state.
  FileContents Files() const;

 private:
  TempFolder root_;
  TempFolder pristine_;
  ExpertBytes originals_;
};

std::string ReadFileBytes(const std::string& path);
void WriteFileBytes(const std::string& path, const std::string& bytes);
void FlipByte(const std::string& path, uint64_t offset);

// A pack whose drives fail after `shards` shards gave up their experts: the set is unfinished, these experts are in it
// only.
void InterruptMove(PackOptions options, int shards);

// Messages of the first difference; "" when equal.
std::string Difference(const FileContents& a, const FileContents& b);

std::vector<BadRecord> VerifyAll(const PackCase& c, const std::vector<std::string>& folders, bool repair = false,
                                 DiskHook hook = {});

}  // namespace deltafin::test
