#include "checkpoint/model_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"

namespace deltafin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFormat = "deltafin-files ";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kEnd = "end ";
constexpr size_t kMostFiles = 100'000;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
constexpr size_t kMostName = 1024;

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
}

bool IsBelowFolder(std::string_view name) {
  if (name.empty() || name.size() > kMostName || HasControl(name) || name.find('\\') != std::string_view::npos)
    return false;
  for (;;) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

// Up to the next space, which is taken too.
std::string_view TakeWord(std::string_view& line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, space);
  line.remove_prefix(std::min(line.size(), space + 1));
  return word;
}

// "sha256 DIGITS BYTES NAME" or "git_sha1 DIGITS BYTES NAME".
std::optional<ModelFile> ParseFile(std::string_view line) {
  ModelFile file;
  const std::string_view kind = TakeWord(line), sum = TakeWord(line), bytes = TakeWord(line);
  if (kind == "sha256" && IsHex(sum, 64))
    file.sha256 = sum;
  else if (kind == "git_sha1" && IsHex(sum, 40))
    file.git_sha1 = sum;
  else
    return std::nullopt;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), file.bytes);
  if (error != std::errc() || end != bytes.data() + bytes.size() || file.bytes > kMostBytes) return std::nullopt;
  if (!IsBelowFolder(line)) return std::nullopt;
  file.name = line;
  return file;
}

Status AddLine(std::string_view line, const std::string& what, ModelFiles& out) {
  if (line.starts_with("repository ") && out.files.empty()) {
    out.repository = line.substr(11);
    return {};
  }
  if (line.starts_with("commit ") && out.files.empty()) {
    out.commit = line.substr(7);
    return {};
  }
  std::optional<ModelFile> file = ParseFile(line);
  if (!file || out.files.size() >= kMostFiles)
    return Fail(ErrorCode::kCorrupt, what,
                ": expected a checksum, a size and a name inside the folder on each line, at most ", kMostFiles,
                " lines, got something else on line ", out.files.size() + 1, " of files");
  if (!out.files.empty() && !(out.files.back().name < file->name))
    return Fail(ErrorCode::kCorrupt, what, ": expected names in order, each once, got one that is not");
  out.files.push_back(std::move(*file));
  return {};
}

// The text without its last line, which is the checksum of all before it.
Result<std::string_view> Checked(std::string_view text, const std::string& what) {
  constexpr size_t kEndBytes = 4 + 16 + 1;
  const bool has_end = text.size() > kEndBytes && text.back() == '\n' && text[text.size() - kEndBytes - 1] == '\n' &&
                       text.substr(text.size() - kEndBytes).starts_with(kEnd);
  if (!has_end)
    return Fail(ErrorCode::kCorrupt, what, ": expected a last line with its checksum, got none: it is torn");
  const std::string_view body = text.substr(0, text.size() - kEndBytes);
  if (FromHex(text.substr(text.size() - 17, 16)) != Hash64(body))
    return Fail(ErrorCode::kCorrupt, what, ": expected the checksum of its last line, got another: it is damaged");
  return body;
}

bool IsBlobOf(const fs::path& target, ModelFile& file) {
  const std::string name = target.filename().string();
  if (target.parent_path().filename() != "blobs") return false;
  if (IsHex(name, 64)) file.sha256 = name;
  if (IsHex(name, 40)) file.git_sha1 = name;
  return !file.sha256.empty() || !file.git_sha1.empty();
}

// A snapshot of the hub's own cache: models--OWNER--NAME/snapshots/COMMIT, names are links to ../../blobs/CHECKSUM.
std::optional<ModelFiles> FromLinks(const std::string& folder) {
  ModelFiles out;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code ignored;
    if (!it->is_symlink(ignored) || out.files.size() >= kMostFiles) continue;
    ModelFile file;
    if (!IsBlobOf(fs::read_symlink(it->path(), ignored), file)) continue;
    file.name = it->path().lexically_relative(folder).generic_string();
    const auto bytes = fs::file_size(it->path(), ignored);
    file.bytes = ignored ? 0 : static_cast<uint64_t>(bytes);
    if (IsBelowFolder(file.name)) out.files.push_back(std::move(file));
  }
  if (out.files.empty()) return std::nullopt;
  std::sort(out.files.begin(), out.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const std::string commit = fs::path(folder).lexically_normal().filename().string();
  if (IsHex(commit, 40)) out.commit = commit;
  return out;
}

}  // namespace

const ModelFile* ModelFiles::Find(std::string_view name) const {
  const auto it = std::lower_bound(files.begin(), files.end(), name,
                                   [](const ModelFile& file, std::string_view wanted) { return file.name < wanted; });
  return it == files.end() || it->name != name ? nullptr : &*it;
}

std::string ModelFiles::ToText() const {
  std::string text = Cat(kFormat, kVersion, "\n");
  if (!repository.empty()) text += Cat("repository ", repository, "\n");
  if (!commit.empty()) text += Cat("commit ", commit, "\n");
  for (const ModelFile& file : files)
    text += Cat(file.sha256.empty() ? "git_sha1 " : "sha256 ", file.sha256.empty() ? file.git_sha1 : file.sha256, " ",
                file.bytes, " ", file.name, "\n");
  return Cat(text, kEnd, ToHex(Hash64(text)), "\n");
}

Result<ModelFiles> ModelFiles::FromText(std::string_view text, const std::string& what) {
  if (!text.starts_with(kFormat))
    return Fail(ErrorCode::kCorrupt, what, ": expected \"deltafin-files 1\", got something else");
  DFIN_TRY(std::string_view body, Checked(text, what));
  if (body.substr(0, body.find('\n')).substr(kFormat.size()) != kVersion)
    return Fail(ErrorCode::kUnsupported, what, ": expected version ", kVersion,
                ", got another: it was written by a newer deltafin");
  body.remove_prefix(body.find('\n') + 1);
  ModelFiles out;
  while (!body.empty()) {
    const size_t end = body.find('\n');
    DFIN_TRY_VOID(AddLine(body.substr(0, end), what, out));
    body.remove_prefix(end + 1);
  }
  for (const std::string* said : {&out.repository, &out.commit})
    if (said->size() > kMostName || HasControl(*said))
      return Fail(ErrorCode::kCorrupt, what, ": expected a repository and a commit, got something else");
  return out;
}

Result<std::optional<ModelFiles>> KnownModelFiles(const std::string& folder) {
  const std::string path = Cat(folder, "/", kModelFilesName);
  const Result<std::string> text = ReadWholeFile(path, kMaxModelFilesBytes);
  if (!text && text.error().code() != ErrorCode::kNotFound) return Failure(Error(text.error()));
  if (!text) return FromLinks(folder);
  DFIN_TRY(ModelFiles files, ModelFiles::FromText(*text, path));
  return std::optional<ModelFiles>(std::move(files));
}

Status WriteModelFiles(const std::string& folder, const ModelFiles& files) {
  const std::string text = files.ToText();
  return WriteFileAtomically(Cat(folder, "/", kModelFilesName), std::as_bytes(std::span(text)));
}

}  // namespace deltafin
