#include "pack/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

constexpr char kMagic[9] = "DFINPCK1";
constexpr size_t kHeadBytes = 24;  // magic, length of the text, its checksum
constexpr size_t kEntryHead = 8;   // kind, bytes of the payload
constexpr size_t kMaxPayload = size_t{1} << 20;
constexpr uint64_t kMaxJournalBytes = uint64_t{4} << 30;

template <typename T>
void Put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
}

template <typename T>
T Get(const std::byte* from) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(from[i]) << (8 * i);
  return static_cast<T>(value);
}

std::string Payload(const JournalEntry& entry) {
  std::string out;
  Put(out, entry.position);
  Put(out, entry.slot);
  if (entry.kind == JournalKind::kEmptied) return out + entry.shard;
  if (entry.kind != JournalKind::kRecord) return out;
  Put(out, entry.whole);
  for (const uint8_t base : entry.bases) Put(out, base);
  Put(out, uint8_t{0});
  Put(out, entry.hash);
  for (const uint64_t hash : entry.chunk_hashes) Put(out, hash);
  return out;
}

std::optional<JournalEntry> ParsePayload(uint32_t kind, Bytes payload) {
  if (payload.size() < 8 || kind < 1 || kind > 4) return std::nullopt;
  JournalEntry entry;
  entry.kind = static_cast<JournalKind>(kind);
  entry.position = Get<uint32_t>(payload.data());
  entry.slot = Get<uint32_t>(payload.data() + 4);
  payload = payload.subspan(8);
  if (entry.kind == JournalKind::kEmptied) {
    entry.shard.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    return entry;
  }
  if (entry.kind != JournalKind::kRecord) return payload.empty() ? std::optional(entry) : std::nullopt;
  if (payload.size() < 16 || payload.size() % 8 != 0) return std::nullopt;
  entry.whole = Get<uint32_t>(payload.data());
  for (size_t m = 0; m < entry.bases.size(); ++m) entry.bases[m] = static_cast<uint8_t>(payload[4 + m]);
  entry.hash = Get<uint64_t>(payload.data() + 8);
  for (size_t at = 16; at < payload.size(); at += 8) entry.chunk_hashes.push_back(Get<uint64_t>(payload.data() + at));
  return entry;
}

// Whether a whole entry with the right checksum lies at `at`; its size, else 0.
size_t EntryAt(Bytes bytes, size_t at, uint64_t seed) {
  if (bytes.size() - at < kEntryHead + 8) return 0;
  const auto size = static_cast<size_t>(Get<uint32_t>(bytes.data() + at + 4));
  if (size > kMaxPayload || bytes.size() - at < kEntryHead + size + 8) return 0;
  const uint64_t hash = Get<uint64_t>(bytes.data() + at + kEntryHead + size);
  return Hash64(bytes.subspan(at, kEntryHead + size), seed) == hash ? kEntryHead + size + 8 : 0;
}

// Where a good kEmptied entry begins behind a bad one; 0 when there is none. Everything before such an entry was
// flushed before it was written, so what is bad there is damage and not a write that was interrupted.
size_t LaterEmptied(Bytes bytes, size_t at, uint64_t seed) {
  for (size_t next = at + 1; next + kEntryHead + 8 <= bytes.size(); ++next) {
    if (Get<uint32_t>(bytes.data() + next) != static_cast<uint32_t>(JournalKind::kEmptied)) continue;
    if (EntryAt(bytes, next, seed) != 0) return next;
  }
  return 0;
}

uint64_t SeedOf(std::string_view header) { return Hash64(header, 1); }

std::string Head(const std::string& header) {
  std::string out(kMagic, 8);
  Put(out, static_cast<uint64_t>(header.size()));
  Put(out, Hash64(header));
  return out + header;
}

}  // namespace

Result<std::optional<PackJournal::Contents>> PackJournal::Read(const std::string& folder) {
  const std::string path = folder + "/" + kJournalName;
  Result<std::string> text = ReadWholeFile(path, kMaxJournalBytes);
  if (!text && text.error().code() == ErrorCode::kNotFound) return std::optional<Contents>();
  if (!text) return Failure(std::move(text.error()));
  return Parse(std::as_bytes(std::span(*text)), path);
}

Result<std::optional<PackJournal::Contents>> PackJournal::Parse(Bytes bytes, const std::string& what) {
  const auto damaged = [&](const char* got) {
    return Fail(
        ErrorCode::kCorrupt, what, ": expected the journal of an unfinished pack, got ", got,
        ": bring it back from a copy. Only a pack without --move may be started over, by removing the file and the "
        "experts-g* files beside it; after --move they are the only copy");
  };
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic, 8) != 0) return damaged("another kind of file");
  const auto length = Get<uint64_t>(bytes.data() + 8);
  if (length > bytes.size() - kHeadBytes) return damaged("a file that ends early");
  Contents out;
  out.header.assign(reinterpret_cast<const char*>(bytes.data()) + kHeadBytes, static_cast<size_t>(length));
  if (Hash64(out.header) != Get<uint64_t>(bytes.data() + 16)) return damaged("a damaged one");
  size_t at = kHeadBytes + static_cast<size_t>(length);
  const uint64_t seed = SeedOf(out.header);
  while (bytes.size() - at >= kEntryHead + 8) {
    const size_t size = EntryAt(bytes, at, seed);
    if (size == 0) break;
    std::optional<JournalEntry> entry =
        ParsePayload(Get<uint32_t>(bytes.data() + at), bytes.subspan(at + kEntryHead, size - kEntryHead - 8));
    if (!entry) break;
    out.entries.push_back(std::move(*entry));
    at += size;
  }
  if (LaterEmptied(bytes, at, seed) != 0)
    return Fail(ErrorCode::kCorrupt, what, ": damaged at byte ", at,
                ", before shards gave up their experts: nothing was "
                "changed. Do not remove it, it says where those experts are: bring it back from a copy");
  out.good_bytes = at;
  return std::optional<Contents>(std::move(out));
}

Result<PackJournal> PackJournal::Create(const std::string& folder, const std::string& header, DiskHook hook) {
  PackJournal journal(folder + "/" + kJournalName, SeedOf(header), std::move(hook));
  const std::string head = Head(header);
  DFIN_TRY_VOID(PublishFile(journal.hook_, journal.path_, std::as_bytes(std::span(head))));
  DFIN_TRY_VOID(journal.OpenAt(head.size()));
  return journal;
}

Result<PackJournal> PackJournal::Continue(const std::string& folder, const Contents& contents, DiskHook hook) {
  PackJournal journal(folder + "/" + kJournalName, SeedOf(contents.header), std::move(hook));
  DFIN_TRY_VOID(journal.OpenAt(contents.good_bytes));
  return journal;
}

Status PackJournal::OpenAt(uint64_t bytes) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) return DiskFailure("opening", path_, errno);
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Fail(ErrorCode::kUnavailable, path_, ": another pack is at work on these folders: wait for it to end");
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return DiskFailure("cutting", path_, errno);
  end_ = bytes;
  return {};
}

PackJournal::PackJournal(PackJournal&& other) noexcept { *this = std::move(other); }
PackJournal& PackJournal::operator=(PackJournal&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(seed_, other.seed_);
  std::swap(hook_, other.hook_);
  std::swap(fd_, other.fd_);
  std::swap(failed_, other.failed_);
  std::swap(end_, other.end_);
  return *this;
}
PackJournal::~PackJournal() {
  if (fd_ >= 0) close(fd_);
}

Status PackJournal::Append(const std::vector<JournalEntry>& entries) {
  if (failed_)
    return Fail(ErrorCode::kIo, path_, ": an earlier write failed: give the same command again when the drive works");
  failed_ = true;
  std::string out;
  for (const JournalEntry& entry : entries) {
    const std::string payload = Payload(entry);
    std::string one;
    Put(one, static_cast<uint32_t>(entry.kind));
    Put(one, static_cast<uint32_t>(payload.size()));
    one += payload;
    Put(one, Hash64(one, seed_));
    out += one;
  }
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kWrite, path_));
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = pwrite(fd_, out.data() + done, out.size() - done, static_cast<off_t>(end_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return DiskFailure("writing", path_, n < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(n);
  }
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kSync, path_));
  if (fsync(fd_) != 0) return DiskFailure("flushing", path_, errno);
  end_ += out.size();
  failed_ = false;
  return {};
}

Status PackJournal::Remove() { return RemoveFile(hook_, path_); }

}  // namespace deltafin
