#include "app/kept_session.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "checkpoint/atomic_file.h"
#include "checkpoint/hex.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 64;

// A locked folder; closing the descriptor unlocks it. -1: somebody else holds it, or it is not there.
int LockFolder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// Sessions used longest ago lose their state first, then everything.
void Tidy(const fs::path& sessions) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator it(sessions, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const auto time = fs::last_write_time(it->path() / "journal", gone);
    if (!gone) found.emplace_back(time, it->path());
  }
  std::sort(found.rbegin(), found.rend());
  for (size_t i = KeptSession::kStatesKept; i < found.size(); ++i) {
    const int lock = LockFolder(found[i].second);
    if (lock < 0) continue;
    for (const char* file : {"s.state", "s.latents"}) fs::remove(found[i].second / file, error);
    if (i >= KeptSession::kSessionsKept) fs::remove_all(found[i].second, error);
    close(lock);
  }
}

bool OtherModelHas(const fs::path& sessions, const std::string& name, const fs::path& own) {
  std::error_code error;
  for (fs::directory_iterator it(sessions, error), end; !error && it != end; it.increment(error)) {
    const std::string folder = it->path().filename().string();
    if (folder.size() == name.size() + 17 && folder.starts_with(name + "-") && it->path() != own) return true;
  }
  return false;
}

// What processes that died while they wrote have left behind. The folder is locked: nobody writes in it now.
void RemoveParts(const fs::path& folder) {
  std::vector<fs::path> parts;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().find(kPartMark) != std::string::npos) parts.push_back(it->path());
  for (const fs::path& part : parts) fs::remove(part, error);
}

// A journal that cannot be read is put aside, never overwritten: it may be all that is left of a conversation.
Result<SessionJournal> OpenJournal(const fs::path& folder, const std::string& name, uint64_t fingerprint,
                                   Logger& logger) {
  const fs::path path = folder / "journal";
  Result<SessionJournal> journal = SessionJournal::Open(path.string(), fingerprint);
  if (journal && !journal->kept_damaged().empty())
    logger.Warn(Cat("--session ", name, ": ", path.string(), " is damaged or was cut short: ", journal->turns().size(),
                    " turns of it are used, all of it is kept as ", journal->kept_damaged()));
  if (journal || journal.error().code() == ErrorCode::kIo) return journal;
  const fs::path aside = SessionJournal::NameForDamaged(path.string());
  std::error_code failed;
  fs::rename(path, aside, failed);
  if (failed) return journal;
  logger.Warn(Cat("--session ", name, ": ", journal.error().message(), ": it was put aside as ", aside.string(),
                  ", and the session begins anew"));
  return SessionJournal::Open(path.string(), fingerprint);
}

}  // namespace

Status KeptSession::CheckName(const std::string& name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool good = !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), plain) &&
                    name[0] != '.' && name[0] != '-';
  if (good) return {};
  return Fail(ErrorCode::kInvalidArgument, "--session \"", name, "\": expected a name of 1 to ", kLongestName,
              " letters, digits, dots, dashes and underscores that begins with a letter, a digit or an underscore");
}

Result<KeptSession> KeptSession::Open(const std::string& state_dir, const std::string& name, const Engine& engine,
                                      Logger& logger) {
  DFIN_TRY_VOID(CheckName(name));
  const uint64_t fingerprint = engine.checkpoint().fingerprint();
  const fs::path sessions = fs::path(state_dir) / "sessions";
  const fs::path folder = sessions / (name + "-" + ToHex(fingerprint));
  std::error_code error;
  const bool is_new = !fs::exists(folder, error);
  fs::create_directories(folder, error);
  if (error) return Fail(ErrorCode::kIo, folder.string(), ": cannot make this folder: ", error.message());
  const int lock = LockFolder(folder);
  if (lock < 0)
    return Fail(ErrorCode::kUnavailable, "--session ", name,
                ": expected to be alone with it, got another process that has it open: wait for it to end");
  RemoveParts(folder);
  if (is_new && OtherModelHas(sessions, name, folder))
    logger.Warn(Cat("--session ", name,
                    ": what is kept under this name was made with another model; it stays, and a new ",
                    "session begins"));
  Result<SessionJournal> journal = OpenJournal(folder, name, fingerprint, logger);
  if (!journal) {
    close(lock);
    return Failure(std::move(journal.error()));
  }
  Tidy(sessions);
  return KeptSession(name, lock, std::move(*journal),
                     SnapshotFiles((folder / "s").string(), {fingerprint, engine.backend_name()}), logger);
}

KeptSession::KeptSession(KeptSession&& other) noexcept
    : name_(std::move(other.name_)),
      lock_(std::exchange(other.lock_, -1)),
      journal_(std::move(other.journal_)),
      files_(std::move(other.files_)),
      logger_(other.logger_),
      saved_(other.saved_) {}

KeptSession::~KeptSession() {
  if (lock_ >= 0) close(lock_);
}

void KeptSession::Load(std::span<const TokenId> tokens, Session& session) {
  const Status loaded = files_.Load(tokens, session);
  saved_ = session.length();
  if (loaded || loaded.error().code() == ErrorCode::kNotFound) return;
  logger_->Warn(
      Cat("--session ", name_, ": its state is not used, and its tokens are read again: ", loaded.error().message()));
  // Parts of damaged files must not be taken for good ones.
  if (loaded.error().code() == ErrorCode::kCorrupt) files_.Remove();
}

void KeptSession::AddAnswer(TokenId token, const Session& session) {
  const Status added = journal_.AddAnswer(token);
  if (!added) logger_->WarnOnce(Cat("--session ", name_, ": the answer is not kept: ", added.error().message()));
  if (session.length() - saved_ >= kSaveEvery || session.length() < saved_) SaveState(session);
}

void KeptSession::SaveState(const Session& session) {
  if (session.length() == 0 || session.length() == saved_) return;
  saved_ = session.length();
  const Status saved = files_.Save(session);
  if (!saved)
    logger_->WarnOnce(
        Cat("--session ", name_, ": its state is not kept, and will be read again: ", saved.error().message()));
}

}  // namespace deltafin
