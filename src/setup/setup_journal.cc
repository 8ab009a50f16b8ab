#include "setup/setup_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/json.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

constexpr std::string_view kMark = "deltafin-setup 1 ";
constexpr uint64_t kMaxJournalBytes = uint64_t{1} << 30;
constexpr size_t kHashBytes = 17;  // a space and 16 digits

uint64_t SeedOf(std::string_view header) { return Hash64(header, 2); }

std::string Line(const SetupEntry& entry, uint64_t seed) {
  std::string text;
  switch (entry.kind) {
    case SetupEntry::Kind::kRange:
      text = Cat("range ", entry.file, " ", entry.offset, " ", entry.length);
      break;
    case SetupEntry::Kind::kAgain:
      text = Cat("again ", entry.file);
      break;
    case SetupEntry::Kind::kVerified:
      text = Cat("verified ", entry.file, " ", entry.modified_ns);
      break;
  }
  return Cat(text, " ", ToHex(Hash64(text, seed)), "\n");
}

// The words of a line as numbers behind the first.
template <typename... Numbers>
bool Words(std::string_view text, std::string_view word, Numbers&... numbers) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto take = [&](auto& number) {
    if (text.empty() || text.front() != ' ') return false;
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  };
  return (take(numbers) && ...) && text.empty();
}

std::optional<SetupEntry> ParseEntry(std::string_view line, uint64_t seed) {
  if (line.size() <= kHashBytes) return std::nullopt;
  const std::string_view text = line.substr(0, line.size() - kHashBytes);
  const std::optional<uint64_t> hash = FromHex(line.substr(line.size() - kHashBytes + 1));
  if (!hash || line[text.size()] != ' ' || Hash64(text, seed) != *hash) return std::nullopt;
  SetupEntry entry;
  if (Words(text, "range", entry.file, entry.offset, entry.length))
    entry.kind = SetupEntry::Kind::kRange;
  else if (Words(text, "again", entry.file))
    entry.kind = SetupEntry::Kind::kAgain;
  else if (Words(text, "verified", entry.file, entry.modified_ns))
    entry.kind = SetupEntry::Kind::kVerified;
  else
    return std::nullopt;
  return entry;
}

}  // namespace

Result<std::optional<SetupJournal::Contents>> SetupJournal::Read(const std::string& folder) {
  const std::string path = folder + "/" + kSetupJournalName;
  Result<std::string> text = ReadWholeFile(path, kMaxJournalBytes);
  if (!text && text.error().code() == ErrorCode::kNotFound) return std::optional<Contents>();
  if (!text) return Failure(std::move(text.error()));
  DFIN_TRY(Contents contents, Parse(*text, path));
  return std::optional<Contents>(std::move(contents));
}

Result<SetupJournal::Contents> SetupJournal::Parse(std::string_view text, const std::string& what) {
  const auto damaged = [&](const char* got) {
    return Fail(ErrorCode::kCorrupt, what, ": expected the journal of a download, got ", got,
                ": remove it and give the same command again; whole files that are there are checked and kept");
  };
  if (!text.starts_with(kMark)) return damaged("another kind of file");
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end < kMark.size() + kHashBytes) return damaged("a file that ends early");
  const std::string_view first = text.substr(0, end - kHashBytes);
  const std::optional<uint64_t> hash = FromHex(text.substr(end - kHashBytes + 1, kHashBytes - 1));
  if (!hash || text[end - kHashBytes] != ' ' || Hash64(first) != *hash) return damaged("a damaged one");
  Contents contents;
  contents.header = first.substr(kMark.size());
  const uint64_t seed = SeedOf(contents.header);
  size_t at = end + 1;
  for (;;) {
    const size_t stop = text.find('\n', at);
    if (stop == std::string_view::npos) break;
    const std::optional<SetupEntry> entry = ParseEntry(text.substr(at, stop - at), seed);
    if (!entry) break;
    contents.entries.push_back(*entry);
    at = stop + 1;
  }
  contents.good_bytes = at;
  return contents;
}

SetupJournal::SetupJournal(std::string path, const std::string& header, DiskHook hook)
    : path_(std::move(path)), seed_(SeedOf(header)), hook_(std::move(hook)) {}

SetupJournal::~SetupJournal() {
  if (fd_ >= 0) close(fd_);
}

Result<std::unique_ptr<SetupJournal>> SetupJournal::Open(const std::string& folder, const std::string& header,
                                                         const std::optional<Contents>& contents, DiskHook hook) {
  std::unique_ptr<SetupJournal> journal(new SetupJournal(folder + "/" + kSetupJournalName, header, std::move(hook)));
  const std::string& path = journal->path_;
  if (!contents) {
    const std::string text = Cat(kMark, header);
    const std::string first = Cat(text, " ", ToHex(Hash64(text)), "\n");
    DFIN_TRY_VOID(PublishFile(journal->hook_, path, std::as_bytes(std::span(first))));
    journal->end_ = first.size();
  } else {
    journal->end_ = contents->good_bytes;
  }
  journal->fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (journal->fd_ < 0) return DiskFailure("opening", path, errno);
  if (flock(journal->fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Fail(ErrorCode::kUnavailable, path, ": another setup is at work on this folder: wait for it to end");
  if (ftruncate(journal->fd_, static_cast<off_t>(journal->end_)) != 0) return DiskFailure("cutting", path, errno);
  return journal;
}

Status SetupJournal::Append(const SetupEntry& entry) {
  const std::lock_guard lock(mutex_);
  if (failed_)
    return Fail(ErrorCode::kIo, path_, ": an earlier write failed: give the same command again when the drive works");
  failed_ = true;
  const std::string line = Line(entry, seed_);
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kWrite, path_));
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = pwrite(fd_, line.data() + done, line.size() - done, static_cast<off_t>(end_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return DiskFailure("writing", path_, n < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(n);
  }
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kSync, path_));
  if (fsync(fd_) != 0) return DiskFailure("flushing", path_, errno);
  end_ += line.size();
  failed_ = false;
  return {};
}

}  // namespace deltafin
