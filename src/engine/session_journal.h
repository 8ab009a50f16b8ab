// SessionJournal: the tokens of a conversation on a drive, turn by turn, appended as they come, so that a process that
// dies in the middle of an answer loses none of them.
//
// A turn is a note of the caller's (how the answer was asked for), the prompt's tokens, the answer's, and those that
// close it. Knows tokens, not text. It is tied to a model, not to an instruction set: state can be computed again from
// it (engine/snapshot_files.h keeps the state). Entries carry checksums chained from the head (docs/FORMAT.md); reading
// stops at the first that is not whole; what follows is cut off, and the file as it was is kept beside it. Tokens are
// handed to the system one by one, which survives the end of the process; the beginning and end of a turn are flushed
// to the drive. Move-only. Thread rule: engine thread only. Errors: kIo, kCorrupt (not such a file), kUnsupported
// (another model or version).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace deltafin {

struct SessionTurn {
  std::string note;
  std::vector<TokenId> prompt, answer, closing;
  bool finished = false;

  std::vector<TokenId> Tokens() const;
};

class SessionJournal {
 public:
  static constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
  static constexpr size_t kMaxNoteBytes = size_t{1} << 20;
  struct Content {
    std::vector<TokenId> preamble;  // before the first turn
    std::vector<SessionTurn> turns;
    uint64_t good_bytes = 0;  // of the file, before anything that is not whole
    uint64_t last_hash = 0;
  };

  // Reads the file, or makes it.
  static Result<SessionJournal> Open(const std::string& path, uint64_t fingerprint);
  // A name beside `path` that no file has: where what is damaged is kept.
  static std::string NameForDamaged(const std::string& path);
  // Of a file's bytes.
  static Result<Content> Parse(Bytes bytes, uint64_t fingerprint);

  SessionJournal(SessionJournal&& other) noexcept { *this = std::move(other); }
  SessionJournal& operator=(SessionJournal&& other) noexcept;
  ~SessionJournal();

  const std::vector<TokenId>& preamble() const { return content_.preamble; }
  // Only the last one may be unfinished.
  const std::vector<SessionTurn>& turns() const { return content_.turns; }
  std::vector<TokenId> Tokens() const;  // all of them, in order
  // Where the file is kept from which Open() had to cut something; "": it was whole.
  const std::string& kept_damaged() const { return kept_damaged_; }

  Status BeginTurn(std::string note, std::vector<TokenId> prompt);
  Status AddAnswer(TokenId token);
  Status EndTurn(std::vector<TokenId> closing);
  // Replaces everything, as one.
  Status Replace(std::vector<TokenId> preamble, std::vector<SessionTurn> turns);

 private:
  enum class Kind : uint32_t { kPreamble = 1, kTurn = 2, kAnswer = 3, kEnd = 4 };
  SessionJournal() = default;
  static std::string Head(uint64_t fingerprint);
  static bool Take(Content& content, uint32_t kind, Bytes payload);
  static void AddEntry(std::string& to, uint64_t& hash, Kind kind, std::string_view payload);
  static std::string TurnPayload(const SessionTurn& turn);
  Status Write(Kind kind, std::string_view payload, bool flush);
  Status WriteAnswer();
  void AnswerIsWritten();
  Status Reopen();

  std::string path_, kept_damaged_;
  uint64_t fingerprint_ = 0;
  int fd_ = -1;
  Content content_;
  size_t answer_written_ = 0;  // tokens of the last turn's answer that the file holds
};

}  // namespace deltafin
