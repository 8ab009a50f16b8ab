#include "engine/snapshot_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "checkpoint/atomic_file.h"
#include "checkpoint/integrity.h"
#include "engine/snapshot_format.h"

namespace deltafin {
namespace {

template <typename T>
MutBytes BytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// A file that is closed with it.
class OpenFile : public SnapshotSource {
 public:
  OpenFile(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) error_ = errno;
    struct stat info {};
    if (fd_ >= 0 && fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) size_ = static_cast<uint64_t>(info.st_size);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() override {
    if (fd_ >= 0) close(fd_);
  }

  bool ok() const { return fd_ >= 0; }
  bool absent() const { return error_ == ENOENT; }
  Failure Fails(const std::string& path, const char* what) const {
    return Fail(ErrorCode::kIo, path, ": cannot ", what, ": ", std::strerror(fd_ < 0 ? error_ : errno));
  }
  uint64_t size() const override { return size_; }

  bool Read(uint64_t at, MutBytes to) const override {
    if (at > size_ || to.size() > size_ - at) return false;
    while (!to.empty()) {
      const ssize_t n = pread(fd_, to.data(), to.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      to = to.subspan(static_cast<size_t>(n));
      at += static_cast<uint64_t>(n);
    }
    return true;
  }

  bool CutTo(uint64_t bytes) {
    size_ = bytes;
    return ftruncate(fd_, static_cast<off_t>(bytes)) == 0;
  }
  bool Append(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
    return true;
  }
  bool Flush() { return fsync(fd_) == 0; }

 private:
  int fd_ = -1;
  int error_ = 0;
  uint64_t size_ = 0;
};

// Reads the state file's numbers and tokens; the KDA state begins at *kda_at.
Result<std::vector<TokenId>> ReadBody(const SnapshotSource& file, const SnapshotIdentity& identity,
                                      const SnapshotShape& shape, int64_t most, SnapshotBody* body, uint64_t* kda_at) {
  SnapshotHead head;
  if (!file.Read(0, BytesOf(head))) return Fail(ErrorCode::kCorrupt, "cut short");
  DFIN_TRY_VOID(CheckSnapshotHead(head, kStateMagic, identity, shape));
  if (!file.Read(sizeof head, BytesOf(*body)) || body->hash != HashOf(*body) || body->positions == 0)
    return Fail(ErrorCode::kCorrupt, "cut short, or the checksum of its numbers is wrong");
  if (body->positions > static_cast<uint64_t>(most))
    return Fail(ErrorCode::kNotFound, "of ", body->positions, " tokens, where at most ", most, " are wanted");
  std::vector<TokenId> tokens(AlignUp(body->positions, 2));
  const uint64_t tokens_at = sizeof head + sizeof *body;
  *kda_at = tokens_at + tokens.size() * sizeof(TokenId);
  const uint64_t before_logits = *kda_at + shape.kda_bytes;
  if (file.size() < before_logits || (file.size() - before_logits) % sizeof(float) != 0 ||
      (file.size() - before_logits) / sizeof(float) != body->logits)
    return Fail(ErrorCode::kCorrupt, "expected ", before_logits, " bytes and ", body->logits, " logits, got ",
                file.size(), " bytes");
  if (!file.Read(tokens_at, std::as_writable_bytes(std::span(tokens))) || HashOfTokens(tokens, 0) != body->tokens_hash)
    return Fail(ErrorCode::kCorrupt, "the tokens' checksum is wrong");
  tokens.resize(body->positions);
  return tokens;
}

// Where a file of latents ends, or is to end.
struct LatentsEnd {
  uint64_t bytes = 0, tokens_hash = 0, hash = 0;
  int64_t position = 0;
};

// As far as the file holds latents of these tokens.
LatentsEnd EndOfShared(const SnapshotSource& file, const SnapshotHead& head, const SnapshotShape& shape,
                       std::span<const TokenId> tokens) {
  LatentsEnd end{.bytes = sizeof head, .hash = head.hash};
  for (const PlacedLatents& placed : ScanLatents(file, head, shape, static_cast<int64_t>(tokens.size()))) {
    const LatentsRecord& r = placed.record;
    if (placed.end() > tokens.size()) break;
    const uint64_t expected = HashOfTokens(tokens.subspan(r.first, r.count), end.tokens_hash);
    if (expected != r.tokens_hash) break;
    end = {placed.at + shape.PayloadBytes(r.count), expected, r.hash, static_cast<int64_t>(placed.end())};
  }
  return end;
}

// One record more: up to the end of a page or of the tokens.
bool AppendLatents(OpenFile& file, const SnapshotShape& shape, std::span<const TokenId> tokens, const MlaCache& mla,
                   LatentsEnd* end) {
  constexpr int64_t kPage = MlaCache::kPagePositions;
  const int64_t count = std::min(kPage - end->position % kPage, static_cast<int64_t>(tokens.size()) - end->position);
  const auto part = [&](int64_t layer) {
    const PagedRows rows = mla.View(layer, static_cast<int64_t>(tokens.size()));
    const auto values = static_cast<size_t>(count * shape.mla_width);
    return rows.is_bf16() ? std::as_bytes(std::span(rows.bf16_row(end->position), values))
                          : std::as_bytes(std::span(rows.row(end->position), values));
  };
  LatentsRecord record{};
  record.first = static_cast<uint32_t>(end->position);
  record.count = static_cast<uint32_t>(count);
  record.tokens_hash = HashOfTokens(tokens.subspan(record.first, record.count), end->tokens_hash);
  record.payload_hash = record.tokens_hash;
  for (int64_t layer = 0; layer < shape.mla_layers; ++layer)
    record.payload_hash = Hash64(part(layer), record.payload_hash);
  record.hash = HashOf(record, end->hash);
  bool written = file.Append(BytesOf(record));
  for (int64_t layer = 0; layer < shape.mla_layers; ++layer) written = written && file.Append(part(layer));
  *end = {file.size(), record.tokens_hash, record.hash, end->position + count};
  return written;
}

}  // namespace

// Reads the latents of `tokens` behind what the state holds; the checksums of what they are computed from are right.
Status SnapshotFiles::ReadLatents(const SnapshotSource& file, const SnapshotIdentity& identity, uint64_t last_hash,
                                  std::span<const TokenId> tokens, SequenceState& to) {
  const SnapshotShape shape(to.CurrentKdaBytes().size(), to.mla());
  SnapshotHead head;
  if (!file.Read(0, BytesOf(head))) return Fail(ErrorCode::kCorrupt, "the latents are cut short");
  DFIN_TRY_VOID(CheckSnapshotHead(head, kLatentsMagic, identity, shape));
  const auto positions = static_cast<int64_t>(tokens.size());
  const std::vector<PlacedLatents> records = ScanLatents(file, head, shape, positions);
  if (records.empty() || records.back().end() != tokens.size() || records.back().record.hash != last_hash)
    return Fail(ErrorCode::kCorrupt, "the latents that belong to it are not there");
  DFIN_TRY_VOID(to.Prepare(positions));
  uint64_t tokens_hash = 0;
  for (const PlacedLatents& placed : records) {
    const LatentsRecord& r = placed.record;
    tokens_hash = HashOfTokens(tokens.subspan(r.first, r.count), tokens_hash);
    uint64_t hash = tokens_hash, at = placed.at;
    for (int64_t layer = 0; layer < shape.mla_layers; ++layer) {
      const MutBytes bytes = to.NextMla(static_cast<int32_t>(layer), r.first, r.count).bytes();
      if (!file.Read(at, bytes)) return Fail(ErrorCode::kCorrupt, "the latents are cut short");
      hash = Hash64(Bytes(bytes), hash);
      at += bytes.size();
    }
    if (tokens_hash != r.tokens_hash || hash != r.payload_hash)
      return Fail(ErrorCode::kCorrupt, "latents of positions ", r.first, " to ", placed.end() - 1, ": wrong checksum");
  }
  return {};
}

Status SnapshotFiles::Read(const SnapshotSource& state, const SnapshotSource& latents, const SnapshotIdentity& identity,
                           std::span<const TokenId> wanted, Session& session, std::vector<float>* logits) {
  session.Reset();
  SequenceState& to = session.state_;
  SnapshotBody body{};
  uint64_t kda_at = 0;
  const int64_t most = std::min(static_cast<int64_t>(wanted.size()), session.capacity());
  DFIN_TRY(const std::vector<TokenId> tokens,
           ReadBody(state, identity, {to.CurrentKdaBytes().size(), to.mla()}, most, &body, &kda_at));
  if (!std::equal(tokens.begin(), tokens.end(), wanted.begin()))
    return Fail(ErrorCode::kNotFound, "of other tokens than those that are wanted");
  DFIN_TRY_VOID(ReadLatents(latents, identity, body.latents_hash, tokens, to));
  if (!state.Read(kda_at, to.NextKdaBytes()) || Hash64(Bytes(to.NextKdaBytes())) != body.kda_hash)
    return Fail(ErrorCode::kCorrupt, "the KDA state's checksum is wrong");
  if (logits != nullptr) {
    logits->resize(body.logits);
    const MutBytes bytes = std::as_writable_bytes(std::span(*logits));
    if (!state.Read(state.size() - bytes.size(), bytes) || Hash64(Bytes(bytes)) != body.logits_hash)
      return Fail(ErrorCode::kCorrupt, "the logits' checksum is wrong");
  }
  to.Commit(static_cast<int64_t>(tokens.size()));
  session.tokens_.assign(tokens.begin(), tokens.end());
  return {};
}

Status SnapshotFiles::Load(std::span<const TokenId> wanted, Session& session, std::vector<float>* logits) const {
  session.Reset();
  const OpenFile state(StatePath(), O_RDONLY), latents(LatentsPath(), O_RDONLY);
  if (state.absent()) return Fail(ErrorCode::kNotFound, StatePath(), ": not there");
  if (!state.ok()) return state.Fails(StatePath(), "open");
  if (!latents.ok()) return latents.Fails(LatentsPath(), "open");
  Status read = Read(state, latents, identity_, wanted, session, logits);
  if (read) return {};
  session.Reset();
  return FailWith(std::move(read), StatePath());
}

// What is to be kept.
struct SnapshotFiles::Content {
  const std::vector<TokenId>& tokens;
  Bytes kda;
  const MlaCache& mla;
  std::span<const float> logits;  // may be empty

  SnapshotShape shape() const { return {kda.size(), mla}; }
};

Status SnapshotFiles::SaveLatents(const Content& content, uint64_t* last_hash) const {
  OpenFile file(LatentsPath(), O_RDWR | O_CREAT);
  if (!file.ok()) return file.Fails(LatentsPath(), "open");
  const SnapshotShape shape = content.shape();
  SnapshotHead head;
  const bool usable = file.Read(0, BytesOf(head)) && CheckSnapshotHead(head, kLatentsMagic, identity_, shape);
  if (!usable) {
    head = MakeSnapshotHead(kLatentsMagic, identity_, shape);
    if (!file.CutTo(0) || !file.Append(BytesOf(head))) return file.Fails(LatentsPath(), "write");
  }
  LatentsEnd end = EndOfShared(file, head, shape, content.tokens);
  if (end.bytes != file.size() && !file.CutTo(end.bytes)) return file.Fails(LatentsPath(), "shorten");
  while (end.position < static_cast<int64_t>(content.tokens.size()))
    if (!AppendLatents(file, shape, content.tokens, content.mla, &end)) return file.Fails(LatentsPath(), "write");
  if (!file.Flush()) return file.Fails(LatentsPath(), "flush");
  *last_hash = end.hash;
  return {};
}

Status SnapshotFiles::Save(const Session& session) const {
  return Save(Content{session.tokens_, session.state_.CurrentKdaBytes(), session.state_.mla(), {}});
}

Status SnapshotFiles::Save(const SessionCheckpoint& checkpoint) const {
  return Save(Content{checkpoint.tokens, checkpoint.state.kda(), checkpoint.state.mla(), checkpoint.logits});
}

Status SnapshotFiles::Save(const Content& content) const {
  DFIN_CHECK(!content.tokens.empty(), "an empty session is not kept");
  SnapshotBody body{};
  DFIN_TRY_VOID(SaveLatents(content, &body.latents_hash));
  const SnapshotHead head = MakeSnapshotHead(kStateMagic, identity_, content.shape());
  const std::vector<TokenId> tokens = PaddedTokens(content.tokens);
  body.positions = content.tokens.size();
  body.tokens_hash = HashOfTokens(tokens, 0);
  body.kda_hash = Hash64(content.kda);
  body.logits = content.logits.size();
  body.logits_hash = Hash64(std::as_bytes(content.logits));
  body.hash = HashOf(body);
  DFIN_TRY(AtomicFile file, AtomicFile::Create(StatePath()));
  DFIN_TRY_VOID(file.Write(std::as_bytes(std::span(&head, 1))));
  DFIN_TRY_VOID(file.Write(BytesOf(body)));
  DFIN_TRY_VOID(file.Write(std::as_bytes(std::span(tokens))));
  DFIN_TRY_VOID(file.Write(content.kda));
  DFIN_TRY_VOID(file.Write(std::as_bytes(content.logits)));
  return file.Publish();
}

Result<SnapshotFiles::Summary> SnapshotFiles::ReadSummary(const Session& like) const {
  const OpenFile state(StatePath(), O_RDONLY);
  if (!state.ok()) return state.Fails(StatePath(), "open");
  const SequenceState& shape = like.state();
  SnapshotBody body{};
  uint64_t kda_at = 0;
  Summary summary;
  DFIN_TRY(summary.tokens,
           ReadBody(state, identity_, {shape.CurrentKdaBytes().size(), shape.mla()}, like.capacity(), &body, &kda_at));
  summary.has_logits = body.logits > 0;
  return summary;
}

void SnapshotFiles::Remove() const {
  std::error_code ignored;
  std::filesystem::remove(StatePath(), ignored);
  std::filesystem::remove(LatentsPath(), ignored);
}

}  // namespace deltafin
