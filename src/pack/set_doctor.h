// SetDoctor: finds which bytes of a damaged record are wrong, and puts them right where a sound source exists.
//
// Sources are zeros (padding), the other copy of the record, and the shards; each counts only when its own checksum is
// right. Used by verify for records that did not pass. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "pack/output_file.h"
#include "pack/pack_source.h"
#include "pack/set_files.h"
#include "pack/verify.h"

namespace deltafin {

class SetDoctor {
 public:
  // `source` may be null: then the shards are no source. All outlive the doctor.
  static Result<std::unique_ptr<SetDoctor>> Create(const VerifyOptions& options, const SetFiles& set,
                                                   const ExpertSetIndex& index, IoScheduler& io,
                                                   const PackSource* source);

  // Reads the record again, part by part, and tells every range that is wrong.
  Status Examine(uint32_t position, CopyKind kind, const BadRecordFn& on_bad);
  // Bytes of a file that should be zero and are not; `file` is the whole path.
  void ZeroRange(BadRecord bad, const BadRecordFn& on_bad);

 private:
  struct Part {  // of a chunk: what one file has of it
    size_t piece = 0;
    uint64_t begin = 0, end = 0;  // of the record
    Status read;
  };
  struct Chunk {
    uint32_t position = 0;
    CopyKind kind = CopyKind::kPrimary;
    uint64_t begin = 0, end = 0, hash = 0;
    std::vector<Part> parts;
    bool readable = true;
    bool absent = false;  // a part of it is on a drive that is not there
  };

  SetDoctor(const VerifyOptions& options, const SetFiles& set, const ExpertSetIndex& index, IoScheduler& io,
            const PackSource* source);
  Chunk ReadChunk(uint32_t position, CopyKind kind, uint64_t number);
  void ExamineChunk(const Chunk& chunk, const BadRecordFn& on_bad);
  // Fills truth_ in [chunk.begin, chunk.end); says from where, or why not.
  bool FindTruth(const Chunk& chunk, std::string* note);
  bool TruthFromPadding(const Chunk& chunk);
  bool TruthFromCopy(const Chunk& chunk, std::string* note);
  bool TruthFromShards(const Chunk& chunk, std::string* note);
  void Tell(const Chunk& chunk, const Part& part, bool truth, const std::string& note, const BadRecordFn& on_bad);
  Status Rewrite(const Chunk& chunk, const Part& part, uint64_t begin, uint64_t end);
  Result<OutputFile*> Output(const std::string& path);
  uint64_t RecordBytes(uint32_t position) const;
  uint32_t Slot(uint32_t position, CopyKind kind) const;

  const VerifyOptions& options_;
  const SetFiles& set_;
  const ExpertSetIndex& index_;
  IoScheduler& io_;
  const PackSource* source_;
  const std::vector<uint64_t> chunk_starts_;
  AlignedBuffer record_, truth_, from_shards_, again_;
  std::optional<uint32_t> shards_hold_;  // the record in from_shards_
  std::map<std::string, std::unique_ptr<OutputFile>> outputs_;
};

}  // namespace deltafin
