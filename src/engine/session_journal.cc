#include "engine/session_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

constexpr std::string_view kMagic = "DFINSES1";
constexpr size_t kHeadBytes = 24;  // magic, fingerprint, hash of both

std::string_view Chars(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

template <typename T>
std::string_view CharsOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string_view CharsOf(std::span<const TokenId> ids) { return Chars(std::as_bytes(ids)); }
std::string_view CharsOf(const std::vector<TokenId>& ids) { return CharsOf(std::span(ids)); }

std::vector<TokenId> IdsOf(Bytes bytes) {
  std::vector<TokenId> ids(bytes.size() / sizeof(TokenId));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

void Append(std::vector<TokenId>& to, const std::vector<TokenId>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

std::vector<TokenId> SessionTurn::Tokens() const {
  std::vector<TokenId> tokens = prompt;
  Append(tokens, answer);
  Append(tokens, closing);
  return tokens;
}

SessionJournal& SessionJournal::operator=(SessionJournal&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(kept_damaged_, other.kept_damaged_);
  std::swap(fingerprint_, other.fingerprint_);
  std::swap(fd_, other.fd_);
  std::swap(content_, other.content_);
  std::swap(answer_written_, other.answer_written_);
  return *this;
}

SessionJournal::~SessionJournal() {
  if (fd_ >= 0) close(fd_);
}

std::string SessionJournal::Head(uint64_t fingerprint) {
  std::string head(kMagic);
  head += CharsOf(fingerprint);
  const uint64_t hash = Hash64(head);
  head += CharsOf(hash);
  return head;
}

// False: such an entry cannot follow.
bool SessionJournal::Take(Content& content, uint32_t kind, Bytes payload) {
  const bool open_turn = !content.turns.empty() && !content.turns.back().finished;
  if (payload.size() % sizeof(TokenId) != 0) return false;
  switch (static_cast<Kind>(kind)) {
    case Kind::kPreamble:
      if (!content.turns.empty() || !content.preamble.empty()) return false;
      content.preamble = IdsOf(payload);
      return true;
    case Kind::kTurn: {
      if (open_turn || payload.size() < sizeof(uint32_t)) return false;
      const auto note_bytes = LoadUnaligned<uint32_t>(payload.data());
      const uint64_t padded = AlignUp(note_bytes, sizeof(TokenId));
      payload = payload.subspan(sizeof note_bytes);
      if (note_bytes > kMaxNoteBytes || padded > payload.size()) return false;
      SessionTurn& turn = content.turns.emplace_back();
      turn.note = Chars(payload.first(note_bytes));
      turn.prompt = IdsOf(payload.subspan(padded));
      return true;
    }
    case Kind::kAnswer:
      if (!open_turn) return false;
      Append(content.turns.back().answer, IdsOf(payload));
      return true;
    case Kind::kEnd:
      if (!open_turn) return false;
      content.turns.back().closing = IdsOf(payload);
      content.turns.back().finished = true;
      return true;
  }
  return false;
}

Result<SessionJournal::Content> SessionJournal::Parse(Bytes bytes, uint64_t fingerprint) {
  const std::string head = Head(fingerprint);
  if (bytes.size() < kHeadBytes || Chars(bytes.first(kMagic.size() - 1)) != kMagic.substr(0, kMagic.size() - 1))
    return Fail(ErrorCode::kCorrupt, "not the journal of a session");
  if (Chars(bytes.first(kMagic.size())) != kMagic)
    return Fail(ErrorCode::kUnsupported, "of another version of the format");
  if (Chars(bytes.first(kHeadBytes)) != head) {
    const auto found = LoadUnaligned<uint64_t>(bytes.data() + kMagic.size());
    if (Chars(bytes.first(kHeadBytes)) != Head(found)) return Fail(ErrorCode::kCorrupt, "the head's checksum is wrong");
    return Fail(ErrorCode::kUnsupported, "made with another model");
  }
  Content content;
  content.good_bytes = kHeadBytes;
  content.last_hash = Hash64(head);
  for (;;) {
    const Bytes rest = bytes.subspan(content.good_bytes);
    if (rest.size() < 8) break;
    const auto kind = LoadUnaligned<uint32_t>(rest.data()), size = LoadUnaligned<uint32_t>(rest.data() + 4);
    if (rest.size() - 8 < uint64_t{size} + 8) break;
    const uint64_t hash = Hash64(rest.first(8 + size_t{size}), content.last_hash);
    if (hash != LoadUnaligned<uint64_t>(rest.data() + 8 + size) || !Take(content, kind, rest.subspan(8, size))) break;
    content.last_hash = hash;
    content.good_bytes += 16 + uint64_t{size};
  }
  return content;
}

Status SessionJournal::Reopen() {
  if (fd_ >= 0) close(fd_);
  fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) return Fail(ErrorCode::kIo, path_, ": cannot open: ", std::strerror(errno));
  if (ftruncate(fd_, static_cast<off_t>(content_.good_bytes)) != 0 || lseek(fd_, 0, SEEK_END) < 0)
    return Fail(ErrorCode::kIo, path_, ": cannot shorten: ", std::strerror(errno));
  return {};
}

Result<SessionJournal> SessionJournal::Open(const std::string& path, uint64_t fingerprint) {
  SessionJournal journal;
  journal.path_ = path;
  journal.fingerprint_ = fingerprint;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    DFIN_TRY_VOID(journal.Replace({}, {}));
    return journal;
  }
  DFIN_TRY(const std::string bytes, ReadWholeFile(path, kMaxFileBytes));
  Result<Content> content = Parse(std::as_bytes(std::span(bytes)), fingerprint);
  if (!content) return FailWith(std::move(content), path);
  journal.content_ = std::move(*content);
  journal.AnswerIsWritten();
  if (journal.content_.good_bytes < bytes.size()) {
    journal.kept_damaged_ = NameForDamaged(path);
    DFIN_TRY_VOID(WriteFileAtomically(journal.kept_damaged_, std::as_bytes(std::span(bytes))));
  }
  DFIN_TRY_VOID(journal.Reopen());
  return journal;
}

std::string SessionJournal::NameForDamaged(const std::string& path) {
  std::string name = path + ".damaged";
  std::error_code ignored;
  for (int number = 2; std::filesystem::exists(name, ignored); ++number) name = Cat(path, ".damaged-", number);
  return name;
}

std::vector<TokenId> SessionJournal::Tokens() const {
  std::vector<TokenId> tokens = content_.preamble;
  for (const SessionTurn& turn : content_.turns) Append(tokens, turn.Tokens());
  return tokens;
}

void SessionJournal::AddEntry(std::string& to, uint64_t& hash, Kind kind, std::string_view payload) {
  const size_t start = to.size();
  const auto size = static_cast<uint32_t>(payload.size());
  to += CharsOf(kind);
  to += CharsOf(size);
  to += payload;
  hash = Hash64(std::string_view(to).substr(start), hash);
  to += CharsOf(hash);
}

std::string SessionJournal::TurnPayload(const SessionTurn& turn) {
  const auto note_bytes = static_cast<uint32_t>(turn.note.size());
  std::string payload(CharsOf(note_bytes));
  payload += turn.note;
  payload.resize(AlignUp(payload.size(), sizeof(TokenId)));
  payload += CharsOf(turn.prompt);
  return payload;
}

Status SessionJournal::Write(Kind kind, std::string_view payload, bool flush) {
  std::string entry;
  uint64_t hash = content_.last_hash;
  AddEntry(entry, hash, kind, payload);
  if (content_.good_bytes + entry.size() > kMaxFileBytes)
    return Fail(ErrorCode::kInvalidArgument, path_, ": no journal is longer than that: begin another session");
  for (std::string_view rest = entry; !rest.empty();) {
    const ssize_t n = write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = errno;
      (void)Reopen();  // half an entry would hide what follows it
      return Fail(ErrorCode::kIo, path_, ": cannot write: ", std::strerror(n < 0 ? error : ENOSPC));
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
  content_.last_hash = hash;
  content_.good_bytes += entry.size();
  if (flush && fsync(fd_) != 0) return Fail(ErrorCode::kIo, path_, ": cannot flush: ", std::strerror(errno));
  return {};
}

Status SessionJournal::BeginTurn(std::string note, std::vector<TokenId> prompt) {
  DFIN_CHECK(content_.turns.empty() || content_.turns.back().finished, "the turn before it has not ended");
  if (note.size() > kMaxNoteBytes) return Fail(ErrorCode::kInvalidArgument, "--stop: more text than a session keeps");
  SessionTurn turn;
  turn.note = std::move(note);
  turn.prompt = std::move(prompt);
  DFIN_TRY_VOID(Write(Kind::kTurn, TurnPayload(turn), /*flush=*/true));
  content_.turns.push_back(std::move(turn));
  AnswerIsWritten();
  return {};
}

void SessionJournal::AnswerIsWritten() {
  answer_written_ = content_.turns.empty() ? 0 : content_.turns.back().answer.size();
}

Status SessionJournal::AddAnswer(TokenId token) {
  DFIN_CHECK(!content_.turns.empty() && !content_.turns.back().finished, "no turn has begun");
  content_.turns.back().answer.push_back(token);
  return WriteAnswer();
}

// All that the file lacks: tokens that could not be written before come with the next one, or what follows them would
// seem to follow what was before them.
Status SessionJournal::WriteAnswer() {
  const std::span<const TokenId> lacking = std::span(content_.turns.back().answer).subspan(answer_written_);
  if (lacking.empty()) return {};
  DFIN_TRY_VOID(Write(Kind::kAnswer, CharsOf(lacking), /*flush=*/false));
  answer_written_ += lacking.size();
  return {};
}

Status SessionJournal::EndTurn(std::vector<TokenId> closing) {
  DFIN_CHECK(!content_.turns.empty() && !content_.turns.back().finished, "no turn has begun");
  DFIN_TRY_VOID(WriteAnswer());
  SessionTurn& turn = content_.turns.back();
  turn.closing = std::move(closing);
  turn.finished = true;
  return Write(Kind::kEnd, CharsOf(turn.closing), /*flush=*/true);
}

Status SessionJournal::Replace(std::vector<TokenId> preamble, std::vector<SessionTurn> turns) {
  std::string bytes = Head(fingerprint_);
  uint64_t hash = Hash64(bytes);
  if (!preamble.empty()) AddEntry(bytes, hash, Kind::kPreamble, CharsOf(preamble));
  for (const SessionTurn& turn : turns) {
    AddEntry(bytes, hash, Kind::kTurn, TurnPayload(turn));
    if (!turn.answer.empty()) AddEntry(bytes, hash, Kind::kAnswer, CharsOf(turn.answer));
    if (turn.finished) AddEntry(bytes, hash, Kind::kEnd, CharsOf(turn.closing));
  }
  DFIN_TRY_VOID(WriteFileAtomically(path_, std::as_bytes(std::span(bytes))));
  content_ = {std::move(preamble), std::move(turns), bytes.size(), hash};
  AnswerIsWritten();
  return Reopen();
}

}  // namespace deltafin
