#include "http_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>

namespace deltafin::test {

HttpConnection::HttpConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Close();
}

HttpConnection::~HttpConnection() { Close(); }

void HttpConnection::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

bool HttpConnection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string HttpConnection::ReadSome(double seconds) {
  pollfd ready{socket_, POLLIN, 0};
  if (socket_ < 0 || poll(&ready, 1, static_cast<int>(seconds * 1000)) <= 0) return "";
  char buffer[65536];
  const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
  return got <= 0 ? "" : std::string(buffer, static_cast<size_t>(got));
}

namespace {

// True: whole. Chunks are taken apart.
bool TakeBody(const std::string& text, const Reply& reply, std::string* body, size_t* used) {
  const auto length = reply.headers.find("content-length");
  if (length != reply.headers.end()) {
    *used = std::strtoul(length->second.c_str(), nullptr, 10);
    if (text.size() < *used) return false;
    *body = text.substr(0, *used);
    return true;
  }
  size_t at = 0;
  body->clear();
  for (;;) {
    const size_t line = text.find("\r\n", at);
    if (line == std::string::npos) return false;
    const size_t size = std::strtoul(text.c_str() + at, nullptr, 16);
    if (text.size() < line + 2 + size + 2) return false;
    body->append(text, line + 2, size);
    at = line + 2 + size + 2;
    *used = at;
    if (size == 0) return true;
  }
}

}  // namespace

Reply HttpConnection::Read(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Reply reply;
  size_t header = std::string::npos;
  for (;;) {
    header = held_.find("\r\n\r\n");
    if (header != std::string::npos) {
      std::istringstream lines(held_.substr(0, header));
      std::string line;
      std::getline(lines, line);
      reply.status = std::atoi(line.c_str() + 9);
      while (std::getline(lines, line)) {
        const size_t colon = line.find(": ");
        if (colon == std::string::npos) continue;
        std::string name = line.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(c));
        reply.headers[name] = line.substr(colon + 2, line.find('\r') - colon - 2);
      }
      size_t used = 0;
      if (TakeBody(held_.substr(header + 4), reply, &reply.body, &used)) {
        held_.erase(0, header + 4 + used);
        return reply;
      }
    }
    const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
    const std::string more = left <= 0 ? "" : ReadSome(left);
    if (more.empty()) return reply;
    held_ += more;
  }
}

std::string PostText(const std::string& path, const std::string& body, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

Reply Post(int port, const std::string& path, const std::string& body, const std::string& headers) {
  HttpConnection connection(port);
  connection.Send(PostText(path, body, headers));
  return connection.Read();
}

Reply Get(int port, const std::string& path, const std::string& headers) {
  HttpConnection connection(port);
  connection.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  return connection.Read();
}

std::vector<std::string> DataLines(const std::string& body) {
  std::vector<std::string> data;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("data: ", 0) == 0 && line != "data: [DONE]") data.push_back(line.substr(6));
  return data;
}

}  // namespace deltafin::test
