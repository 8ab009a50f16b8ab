// KeptSession: a named conversation in the state folder: its tokens (engine/session_journal.h) and the state that
// describes most of them (engine/snapshot_files.h).
//
// STATE/sessions/NAME-FINGERPRINT holds `journal`, `s.state` and `s.latents`; the fingerprint keeps models apart. It is
// locked while it is open. The state is written when it is kSaveEvery tokens behind, and at the end of an answer; a
// process that dies leaves tokens without state for fewer than that many, and they are read again in one chunk. State
// that cannot be used costs that reading, and a warning. Bounded: the kStatesKept sessions used last keep their state,
// the kSessionsKept used last their tokens. Thread rule: main thread. Errors: kInvalidArgument (a name), kUnavailable
// (open elsewhere), kIo.
#pragma once

#include <string>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/session_journal.h"
#include "engine/snapshot_files.h"

namespace deltafin {

class KeptSession {
 public:
  static constexpr int64_t kSaveEvery = 64;
  static constexpr size_t kStatesKept = 8;
  static constexpr size_t kSessionsKept = 1000;

  static Status CheckName(const std::string& name);
  // `state_dir` is not empty. The logger outlives it.
  static Result<KeptSession> Open(const std::string& state_dir, const std::string& name, const Engine& engine,
                                  Logger& logger);
  KeptSession(KeptSession&& other) noexcept;
  KeptSession& operator=(KeptSession&&) = delete;
  ~KeptSession();

  const std::string& name() const { return name_; }
  SessionJournal& journal() { return journal_; }
  // The session becomes the prefix of `tokens` whose state was kept; nothing when there is none.
  void Load(std::span<const TokenId> tokens, Session& session);
  // A new token of the answer; `session` holds what is before it.
  void AddAnswer(TokenId token, const Session& session);
  void SaveState(const Session& session);

 private:
  KeptSession(std::string name, int lock, SessionJournal journal, SnapshotFiles files, Logger& logger)
      : name_(std::move(name)), lock_(lock), journal_(std::move(journal)), files_(std::move(files)), logger_(&logger) {}

  std::string name_;
  int lock_ = -1;
  SessionJournal journal_;
  SnapshotFiles files_;
  Logger* logger_;
  int64_t saved_ = 0;  // tokens whose state is on the drive
};

}  // namespace deltafin
