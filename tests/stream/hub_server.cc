#include "stream/hub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/digest.h"
#include "base/json.h"

namespace deltafin::test {
namespace {

void SendAll(int socket, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(socket, data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return;
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
}
void SendAll(int socket, const std::string& text) { SendAll(socket, text.data(), text.size()); }

void SendText(int socket, int status, const std::string& headers, const std::string& body) {
  SendAll(socket, "HTTP/1.1 " + std::to_string(status) + " X\r\nConnection: close\r\n" + headers +
                      "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

std::string ReadHead(int socket) {
  std::string head;
  char c = 0;
  while (head.size() < 65536 && !head.ends_with("\r\n\r\n") && recv(socket, &c, 1, 0) == 1) head += c;
  return head;
}

std::string HeaderOf(const std::string& head, const std::string& name) {
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  const std::string mark = "\r\n" + name + ": ";
  const auto it = std::search(head.begin(), head.end(), mark.begin(), mark.end(), same);
  if (it == head.end()) return "";
  const auto begin = static_cast<size_t>(it - head.begin()) + mark.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

HubServer::HubServer(const std::string& folder) : folder_(folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string text = ReadWholeFile(entry.path().string(), uint64_t{1} << 30).value();
    Digest digest = std::move(Digest::Sha256().value());
    DFIN_CHECK(digest.Add(std::as_bytes(std::span(text))), "hashes");
    files_.push_back({entry.path().filename().string(), digest.Finish().value(), text.size()});
  }
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 64) == 0 &&
                     getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  DFIN_CHECK(bound, "a port of this machine");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Accept(); });
}

HubServer::~HubServer() {
  stop_ = true;
  thread_.join();
  while (serving_ > 0) Sleep(5);
  close(listener_);
}

std::string HubServer::endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

void HubServer::SetFaults(const HubFaults& faults) {
  const std::lock_guard lock(mutex_);
  faults_ = faults;
  happened_ = {};
  due_.clear();
  for (const auto& [percent, fault] :
       {std::pair(faults.stall, Fault::kStall), std::pair(faults.flip, Fault::kFlip),
        std::pair(faults.truncate, Fault::kTruncate), std::pair(faults.busy, Fault::kBusy),
        std::pair(faults.error, Fault::kError), std::pair(faults.drop, Fault::kDrop)})
    if (percent > 0) due_.push_back(fault);
}

HubFaults HubServer::happened() const {
  const std::lock_guard lock(mutex_);
  return happened_;
}

void HubServer::Move(bool forget) {
  moved_ = true;
  forgotten_ = forget;
}

void HubServer::BeGood() {
  SetFaults({});
  SetDelay(0);
  away_ = moved_ = forgotten_ = ignores_ranges_ = saw_token_ = false;
  FlipHeaders(0);
}

void HubServer::FlipHeaders(int count) {
  const std::lock_guard lock(mutex_);
  header_flips_ = count;
  flipped_headers_.clear();
}

// No JSON, and a name that no tensor has, in turn.
void HubServer::FlipHeader(const std::string& path, std::string& body) {
  const std::lock_guard lock(mutex_);
  int& flipped = flipped_headers_[path];
  if (flipped >= header_flips_) return;
  char& byte = body.at(flipped++ % 2 == 0 ? 8 : body.find("weight"));
  byte = static_cast<char>(byte ^ 1);
}

void HubServer::Accept() {
  while (!stop_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, 50) <= 0) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (away_) {
      close(connection);
      continue;
    }
    ++serving_;
    std::thread([this, connection] {
      Serve(connection);
      close(connection);
      --serving_;
    }).detach();
  }
}

std::string HubServer::Listing() const {
  Json list = Json::array();
  for (const File& file : files_)
    list.push_back({{"type", "file"},
                    {"path", file.path},
                    {"size", file.bytes},
                    {"oid", std::string(40, '0')},
                    {"lfs", {{"oid", file.sha256}, {"size", file.bytes}}}});
  return DumpJson(list);
}

void HubServer::Serve(int connection) {
  const std::string head = ReadHead(connection);
  const size_t begin = head.find(' ') + 1;
  const std::string path = head.substr(begin, head.find(' ', begin) - begin);
  const std::string first = first_commit(), now = moved_ ? std::string(40, 'b') : first;
  const std::string api = std::string("/api/models/") + kRepo;
  if (!HeaderOf(head, "Authorization").empty()) saw_token_ = true;
  if (path == api + "/revision/main") return SendText(connection, 200, "", "{\"sha\":\"" + now + "\"}");
  if (path.starts_with(api + "/tree/")) return SendText(connection, 200, "", Listing());
  const std::string resolve = std::string("/") + kRepo + "/resolve/" + first + "/";
  if (path.starts_with(resolve) && !forgotten_)
    return ServeFile(connection, path.substr(resolve.size()), ignores_ranges_ ? "" : HeaderOf(head, "Range"));
  SendText(connection, 404, "", "no such thing");
}

HubServer::Fault HubServer::NextFault() {
  const std::lock_guard lock(mutex_);
  auto luck = static_cast<int>(random_() % 100);
  Fault fault = due_.empty() ? Fault::kNone : due_.back();
  if (!due_.empty()) {
    due_.pop_back();
    luck = 100;
  }
  const auto kind = [&](int percent, Fault one, int& count) {
    if (fault == Fault::kNone && luck >= 0 && (luck -= percent) < 0) fault = one;
    if (fault == one) ++count;
  };
  kind(faults_.drop, Fault::kDrop, happened_.drop);
  kind(faults_.truncate, Fault::kTruncate, happened_.truncate);
  kind(faults_.error, Fault::kError, happened_.error);
  kind(faults_.busy, Fault::kBusy, happened_.busy);
  kind(faults_.flip, Fault::kFlip, happened_.flip);
  kind(faults_.stall, Fault::kStall, happened_.stall);
  return fault;
}

void HubServer::Flip(std::string& body) {
  const std::lock_guard lock(mutex_);
  char& byte = body[random_() % body.size()];
  byte = static_cast<char>(byte ^ 1);
}

void HubServer::ServeFile(int connection, const std::string& path, const std::string& range) {
  ++requests_;
  if (delay_ms_ > 0) Sleep(delay_ms_);
  const auto file = std::find_if(files_.begin(), files_.end(), [&](const File& f) { return f.path == path; });
  if (file == files_.end()) return SendText(connection, 404, "", "no such file");
  const Fault fault = NextFault();
  if (fault == Fault::kDrop) return;
  if (fault == Fault::kError) return SendText(connection, 500, "", "made to fail");
  if (fault == Fault::kBusy) return SendText(connection, 429, "Retry-After: 0\r\n", "busy");
  std::string body = ReadWholeFile(folder_ + "/" + path, uint64_t{1} << 30).value();
  unsigned long long from = 0, to = body.size() - 1;
  const bool ranged = std::sscanf(range.c_str(), "bytes=%llu-%llu", &from, &to) >= 1;
  if (ranged) body = body.substr(from, to - from + 1);
  const size_t all = body.size();
  if (fault == Fault::kFlip && all > 0) Flip(body);
  const bool has_header = ranged && from == 0 && all > 8 && path.ends_with(".safetensors");
  if (has_header) FlipHeader(path, body);
  std::string headers = "HTTP/1.1 " + std::string(ranged ? "206" : "200") + " X\r\nConnection: close\r\nETag: \"" +
                        file->sha256 + "\"\r\nX-Linked-Etag: \"" + file->sha256 +
                        "\"\r\nX-Repo-Commit: " + first_commit() + "\r\n";
  if (ranged)
    headers += "Content-Range: bytes " + std::to_string(from) + "-" + std::to_string(to) + "/" +
               std::to_string(file->bytes) + "\r\n";
  SendAll(connection, headers + "Content-Length: " + std::to_string(all) + "\r\n\r\n");
  const bool stalls = fault == Fault::kStall;
  const size_t sent = stalls || fault == Fault::kTruncate ? all / 2 : all;
  SendAll(connection, body.data(), sent);
  body_bytes_ += sent;
  for (int i = 0; stalls && i < 60 && !stop_; ++i) Sleep(50);
}

}  // namespace deltafin::test
