// SnapshotFiles: the state of one session on a drive: tokens, KDA state and latents, so that a conversation goes on
// after a restart without being read again.
//
// Two files of one stem (docs/FORMAT.md). STEM.latents grows: Save() appends the rows that it does not hold yet, in
// records with checksums chained from the beginning, and cuts off what belongs to other tokens. STEM.state holds the
// tokens, the KDA state (465 MB at K3's sizes) and, of a checkpoint that has them, the logits after the last token; it
// is written whole under another name, flushed and renamed, and names the last record of latents that belongs to it.
// Both name the model, the backend with its instruction set and the type of the numbers; state is never used with
// others, since a token's logits have the bits of one backend. Everything that is read is checked: what is damaged, cut
// short or foreign is an error with the reason, and the caller reads the tokens anew. Owns no file between calls.
// Thread rule: engine thread only. Errors: kNotFound (nothing kept, or of another conversation), kCorrupt, kUnsupported
// (foreign), kIo, kOutOfMemory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/session.h"

namespace deltafin {

// What state is tied to.
struct SnapshotIdentity {
  uint64_t fingerprint = 0;  // Checkpoint::fingerprint
  std::string backend;       // Backend::name: "cpu/avx512"
};

// Bytes that are read at will; a file, or memory in tests.
class SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;
  virtual uint64_t size() const = 0;
  // False: not all of them could be read.
  virtual bool Read(uint64_t at, MutBytes to) const = 0;
};

class SnapshotFiles {
 public:
  SnapshotFiles(std::string stem, SnapshotIdentity identity) : stem_(std::move(stem)), identity_(std::move(identity)) {}

  // The session becomes what was kept, when that is a prefix of `wanted`; else it is empty. `logits`, if not null,
  // become those that were kept with it, or none.
  Status Load(std::span<const TokenId> wanted, Session& session, std::vector<float>* logits = nullptr) const;
  // Of a session that is not empty. What an earlier Save() kept stays usable until this one is complete, as long as the
  // session goes on from it.
  Status Save(const Session& session) const;
  Status Save(const SessionCheckpoint& checkpoint) const;
  struct Summary {
    std::vector<TokenId> tokens;
    bool has_logits = false;
  };
  // Of what is kept, without its state; its latents are not looked at. `like`: a session as it was kept.
  Result<Summary> ReadSummary(const Session& like) const;
  void Remove() const;

  // Load() of files that are open.
  static Status Read(const SnapshotSource& state, const SnapshotSource& latents, const SnapshotIdentity& identity,
                     std::span<const TokenId> wanted, Session& session, std::vector<float>* logits = nullptr);

  std::string StatePath() const { return stem_ + ".state"; }
  std::string LatentsPath() const { return stem_ + ".latents"; }

 private:
  static Status ReadLatents(const SnapshotSource& file, const SnapshotIdentity& identity, uint64_t last_hash,
                            std::span<const TokenId> tokens, SequenceState& to);
  struct Content;
  Status Save(const Content& content) const;
  Status SaveLatents(const Content& content, uint64_t* last_hash) const;

  std::string stem_;
  SnapshotIdentity identity_;
};

}  // namespace deltafin
