#include "setup/hub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/digest.h"

namespace deltafin::test {
namespace {

constexpr int kPollMs = 50;

std::string DigestOf(const std::string& name, const std::string& contents) {
  Result<Digest> digest = name.ends_with(".safetensors") ? Digest::Sha256() : Digest::GitSha1(contents.size());
  if (!digest || !digest->Add(std::as_bytes(std::span(contents)))) std::abort();
  return *digest->Finish();
}

std::string HeaderOf(const std::string& request, const std::string& name) {
  std::string lower = request;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t at = lower.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return request.substr(begin, request.find("\r\n", begin) - begin);
}

std::string Decoded(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool escape = path[i] == '%' && i + 2 < path.size();
    out += escape ? static_cast<char>(std::stoi(path.substr(i + 1, 2), nullptr, 16)) : path[i];
    if (escape) i += 2;
  }
  return out;
}

std::string Json(const std::string& name, const std::string& contents, const std::string& digest) {
  const std::string size = std::to_string(contents.size());
  if (!name.ends_with(".safetensors"))
    return R"({"type":"file","oid":")" + digest + R"(","size":)" + size + R"(,"path":")" + name + R"("})";
  return R"({"type":"file","oid":"00000000000000000000000000000000000000aa","size":)" + size + R"(,"lfs":{"oid":")" +
         digest + R"(","size":)" + size + R"(,"pointerSize":134},"path":")" + name + R"("})";
}

}  // namespace

std::map<std::string, std::string> HubServer::FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().lexically_relative(folder).string()].assign(std::istreambuf_iterator<char>(in), {});
  }
  return files;
}

HubServer::HubServer(std::map<std::string, std::string> files) : files_(std::move(files)) {
  for (const auto& [name, contents] : files_) digests_[name] = DigestOf(name, contents);
  for (Listener* listener : {&api_, &content_}) {
    listener->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener->fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener->fd, 64) != 0 ||
        getsockname(listener->fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    listener->port = ntohs(address.sin_port);
    listener->thread = std::thread([this, listener] { Listen(*listener, listener == &content_); });
  }
}

HubServer::~HubServer() {
  stop_ = true;
  for (Listener* listener : {&api_, &content_}) {
    listener->thread.join();
    close(listener->fd);
  }
  for (std::thread& connection : connections_) connection.join();
}

std::string HubServer::url() const { return "http://127.0.0.1:" + std::to_string(api_.port); }
std::string HubServer::content_url() const { return "http://127.0.0.1:" + std::to_string(content_.port); }

void HubServer::Disturb(std::function<void(const HubRequest&, HubAnswer&)> disturb) {
  const std::lock_guard lock(mutex_);
  disturb_ = std::move(disturb);
}

void HubServer::RequireToken(std::string token) {
  const std::lock_guard lock(mutex_);
  token_ = std::move(token);
}

std::vector<HubRequest> HubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HubServer::Listen(Listener& listener, bool content) {
  while (!stop_) {
    pollfd waiting{listener.fd, POLLIN, 0};
    if (poll(&waiting, 1, kPollMs) <= 0) continue;
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::lock_guard lock(mutex_);
    connections_.emplace_back([this, fd, content] { Serve(fd, content); });
  }
}

void HubServer::Serve(int fd, bool content) {
  std::string text;
  while (!stop_) {
    const size_t end = text.find("\r\n\r\n");
    if (end == std::string::npos) {
      pollfd waiting{fd, POLLIN, 0};
      if (poll(&waiting, 1, kPollMs) <= 0) continue;
      char buffer[8192];
      const ssize_t n = read(fd, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
      continue;
    }
    const std::string head = text.substr(0, end + 2);
    text.erase(0, end + 4);
    HubRequest request;
    const size_t space = head.find(' ');
    request.target = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
    request.range = HeaderOf(head, "range");
    request.authorization = HeaderOf(head, "authorization");
    request.to_content_port = content;
    const std::string resolve = std::string("/") + kRepo + "/resolve/";
    if (content && request.target.starts_with("/content/")) request.file = Decoded(request.target.substr(9));
    if (request.target.starts_with(resolve)) {
      const size_t slash = request.target.find('/', resolve.size());
      if (slash != std::string::npos) request.file = Decoded(request.target.substr(slash + 1));
    }
    HubAnswer answer;
    {
      const std::lock_guard lock(mutex_);
      request.number = requests_.size();
      requests_.push_back(request);
      answer = Answer(request);
      if (disturb_) disturb_(request, answer);
    }
    if (!Send(fd, answer)) break;
  }
  close(fd);
}

HubAnswer HubServer::Answer(const HubRequest& request) const {
  const std::string api = std::string("/api/models/") + kRepo;
  HubAnswer missing;
  missing.status = 404;
  missing.body = "nothing here";
  if (!token_.empty() && !request.to_content_port && request.authorization != "Bearer " + token_) {
    missing.status = 401;
    return missing;
  }
  if (!request.file.empty()) return files_.contains(request.file) ? File(request) : missing;
  if (request.target == api + "/revision/main") {
    HubAnswer answer;
    answer.body = std::string(R"({"id":")") + kRepo + R"(","sha":")" + kCommit + R"("})";
    return answer;
  }
  return request.target.starts_with(api + "/tree/" + kCommit + "?") ? Tree(request.target) : missing;
}

HubAnswer HubServer::Tree(const std::string& target) const {
  const size_t mark = target.find("cursor=");
  const size_t begin = mark == std::string::npos ? 0 : std::strtoul(target.c_str() + mark + 7, nullptr, 10);
  HubAnswer answer;
  answer.body = "[";
  size_t i = 0;
  for (const auto& [name, contents] : files_) {
    if (i++ < begin) continue;
    if (i > begin + page_files_) break;
    if (answer.body.size() > 1) answer.body += ",";
    answer.body += Json(name, contents, digests_.at(name));
  }
  answer.body += "]";
  if (begin + page_files_ < files_.size())
    answer.headers["Link"] = "<" + url() + "/api/models/" + kRepo + "/tree/" + kCommit +
                             "?recursive=true&cursor=" + std::to_string(begin + page_files_) + R"(>; rel="next")";
  return answer;
}

HubAnswer HubServer::File(const HubRequest& request) const {
  const std::string& contents = files_.at(request.file);
  HubAnswer answer;
  if (!request.to_content_port) answer.headers["X-Repo-Commit"] = kCommit;
  if (!request.to_content_port && request.file.ends_with(".safetensors")) {
    answer.status = 302;
    answer.headers["Location"] = content_url() + "/content/" + request.file;
    answer.headers["X-Linked-Size"] = std::to_string(contents.size());
    answer.headers["X-Linked-Etag"] = '"' + digests_.at(request.file) + '"';
    return answer;
  }
  size_t first = 0, last = 0;
  if (std::sscanf(request.range.c_str(), "bytes=%zu-%zu", &first, &last) == 2) {
    if (first >= contents.size()) {
      answer.status = 416;
      return answer;
    }
    last = std::min(last, contents.size() - 1);
    answer.status = 206;
    answer.headers["Content-Range"] =
        "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" + std::to_string(contents.size());
    answer.body = contents.substr(first, last - first + 1);
  } else {
    answer.body = contents;
  }
  return answer;
}

bool HubServer::Send(int fd, const HubAnswer& answer) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " Status\r\n";
  for (const auto& [name, value] : answer.headers) head += name + ": " + value + "\r\n";
  if (!answer.headers.contains("Content-Length"))
    head += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
  head += "\r\n";
  size_t bytes = answer.body.size();
  if (answer.cut_at) bytes = std::min(bytes, *answer.cut_at);
  if (answer.stall_at) bytes = std::min(bytes, *answer.stall_at);
  const std::string all = answer.raw.empty() ? head + answer.body.substr(0, bytes) : answer.raw;
  for (size_t done = 0; done < all.size() && !stop_;) {
    pollfd waiting{fd, POLLOUT, 0};
    if (poll(&waiting, 1, kPollMs) <= 0) continue;
    const ssize_t n = send(fd, all.data() + done, all.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  // Until the other side gives up.
  while (answer.stall_at && !stop_) {
    pollfd waiting{fd, POLLIN, 0};
    char byte = 0;
    if (poll(&waiting, 1, kPollMs) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0) return false;
  }
  return !answer.cut_at && answer.raw.empty();
}

}  // namespace deltafin::test
