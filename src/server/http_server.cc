#include "server/http_server.h"

#include <fcntl.h>
#include <httplib.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <regex>
#include <thread>

#include "base/clock.h"

namespace deltafin {
namespace {

// Threads beyond the allowed connections: those that say that there are too many.
constexpr int64_t kSpareThreads = 4;
constexpr int kBacklog = 512;
constexpr int kPollSliceMs = 100;
// After a response that ends a connection: what a client still sends is read for so long, or the response may be lost.
constexpr double kLingerSeconds = 1;

// One accepted socket. httplib asks it for bytes and knows nothing of limits.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, uint64_t id, const HttpLimits& limits, const std::atomic<bool>& stopping)
      : socket_(socket), id_(id), limits_(limits), stopping_(stopping) {
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    char host[NI_MAXHOST] = "";
    if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
      getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    remote_ = host;
  }

  // Waits for the first byte of a request. False: none comes.
  bool AwaitRequest() {
    taken_ = 0;
    header_ended_ = too_large_ = header_too_large_ = close_ = false;
    tail_.clear();
    const int64_t start = clock_.NowNs();
    deadline_ns_ = start + static_cast<int64_t>(limits_.request_seconds * 1e9);
    if (begin_ < end_) return true;
    const int64_t until = start + static_cast<int64_t>(limits_.idle_seconds * 1e9);
    while (!stopping_ && clock_.NowNs() < until) {
      if (!Poll(POLLIN, kPollSliceMs)) continue;
      deadline_ns_ = clock_.NowNs() + static_cast<int64_t>(limits_.request_seconds * 1e9);
      return Fill();
    }
    return false;
  }

  bool is_readable() const override { return begin_ < end_ || const_cast<Connection*>(this)->Poll(POLLIN, 0); }
  bool is_writable() const override { return !gone_ && !Gone(); }

  ssize_t read(char* out, size_t size) override {
    if (begin_ == end_ && !AwaitBytes()) return -1;
    if (begin_ == end_) return 0;
    const size_t count = std::min(size, end_ - begin_);
    if (!Account(buffer_ + begin_, count)) return -1;
    std::memcpy(out, buffer_ + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    if (header_too_large_) return static_cast<ssize_t>(size);  // what httplib would say of it; see Refuse()
    return Send(data, size);
  }
  void Refuse(const std::string& response) {
    (void)Send(response.data(), response.size());
    close_ = true;
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = remote_;
    port = static_cast<int>(id_);  // by it a handler finds its connection
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return socket_; }

  // The client closed its side, or the connection broke.
  bool Gone() const {
    if (gone_) return true;
    pollfd poll_fd{socket_, POLLIN | POLLRDHUP, 0};
    if (poll(&poll_fd, 1, 0) <= 0) return false;
    return (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
  }

  void CloseAfterResponse() { close_ = true; }
  bool closes() const { return close_ || too_large_ || header_too_large_; }
  bool too_large() const { return too_large_; }
  bool header_too_large() const { return header_too_large_; }

  void End() {
    if (closes() && !gone_) {
      shutdown(socket_, SHUT_WR);
      char scrap[4096];
      const int64_t until = clock_.NowNs() + static_cast<int64_t>(kLingerSeconds * 1e9);
      while (clock_.NowNs() < until) {
        if (!Poll(POLLIN, kPollSliceMs)) continue;
        if (recv(socket_, scrap, sizeof scrap, 0) <= 0) break;
      }
    }
    close(socket_);
  }

 private:
  ssize_t Send(const char* data, size_t size) {
    const int64_t until = clock_.NowNs() + static_cast<int64_t>(limits_.write_seconds * 1e9);
    size_t done = 0;
    while (done < size && !gone_) {
      const ssize_t sent = send(socket_, data + done, size - done, MSG_NOSIGNAL);
      if (sent > 0) {
        done += static_cast<size_t>(sent);
      } else if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        gone_ = true;
      } else if (!Poll(POLLOUT, kPollSliceMs) && clock_.NowNs() > until) {
        gone_ = true;
      }
    }
    return gone_ ? -1 : static_cast<ssize_t>(size);
  }
  bool Poll(short events, int milliseconds) {
    pollfd poll_fd{socket_, events, 0};
    return poll(&poll_fd, 1, milliseconds) > 0;
  }

  // False: none came in time.
  bool AwaitBytes() {
    while (clock_.NowNs() < deadline_ns_ && !stopping_)
      if (Poll(POLLIN, kPollSliceMs)) return Fill();
    return false;
  }

  bool Fill() {
    const ssize_t got = recv(socket_, buffer_, sizeof buffer_, 0);
    begin_ = 0;
    end_ = got > 0 ? static_cast<size_t>(got) : 0;
    return got > 0;
  }

  // Header and body have limits of their own.
  bool Account(const char* data, size_t count) {
    taken_ += count;
    if (!header_ended_) {
      tail_.append(data, count);
      header_ended_ = tail_.find("\r\n\r\n") != std::string::npos || tail_.find("\n\n") != std::string::npos;
      if (tail_.size() > 3) tail_.erase(0, tail_.size() - 3);
      header_too_large_ = taken_ > limits_.header_bytes;
      if (header_ended_) taken_ = 0;
      return !header_too_large_;
    }
    // A body that comes in chunks has their sizes beside it.
    too_large_ = taken_ > limits_.body_bytes + limits_.body_bytes / 4 + limits_.header_bytes;
    return !too_large_;
  }

  const int socket_;
  const uint64_t id_;
  const HttpLimits& limits_;
  const std::atomic<bool>& stopping_;
  const SteadyClock clock_;
  std::string remote_;
  char buffer_[16384];
  size_t begin_ = 0, end_ = 0;
  uint64_t taken_ = 0;
  int64_t deadline_ns_ = 0;
  std::string tail_;
  bool header_ended_ = false, too_large_ = false, header_too_large_ = false, close_ = false;
  bool gone_ = false;
};

std::string Escaped(const std::string& path) {
  static const char* const kSpecial = "\\^$.|?*+()[]{}";
  std::string out;
  for (const char c : path) {
    if (std::strchr(kSpecial, c) != nullptr) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace

class HttpServer::Listener final : public httplib::Server {
 public:
  explicit Listener(const HttpLimits& limits) : limits_(limits) {
    set_payload_max_length(limits.body_bytes);
    set_keep_alive_timeout(static_cast<time_t>(limits.idle_seconds));  // what it tells clients
    set_keep_alive_max_count(10'000);
    // Not SO_REUSEPORT, with which a second server on the port would get half of the requests.
    set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    new_task_queue = [this] {
      return new httplib::ThreadPool(static_cast<size_t>(limits_.connections + kSpareThreads));
    };
    set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty() || !error_body_) return;
      const std::shared_ptr<Connection> connection = Find(request.remote_port);
      if (connection != nullptr && connection->too_large()) response.status = 413;
      response.set_content(error_body_(response.status), "application/json");
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (!gate_) return HandlerResponse::Unhandled;
      const std::unique_ptr<HttpResponse> refused = gate_(View(request));
      if (refused == nullptr) return HandlerResponse::Unhandled;
      // Its body was not read.
      if (const std::shared_ptr<Connection> connection = Find(request.remote_port)) connection->CloseAfterResponse();
      refused->headers.emplace_back("Connection", "close");
      Answer(std::move(*refused), response);
      return HandlerResponse::Handled;
    });
  }

  void AddRoute(const std::string& method, const std::string& path, HttpHandler handler) {
    const std::string pattern = Escaped(path);
    Handler adapted = [this, handler = std::move(handler)](const httplib::Request& request,
                                                           httplib::Response& response) {
      Answer(handler(View(request)), response);
    };
    if (method == "POST")
      Post(pattern, std::move(adapted));
    else if (method == "OPTIONS")
      Options(pattern, std::move(adapted));
    else
      Get(pattern, std::move(adapted));
  }

  Status BindTo(const std::string& host, int port) {
    port_ = port;
    const bool bound = port == 0 ? (port_ = bind_to_any_port(host)) > 0 : bind_to_port(host, port);
    if (!bound)
      return Fail(ErrorCode::kUnavailable, "--host ", host, " --port ", port,
                  ": cannot be bound: it is in use, or no address of this machine");
    ::listen(svr_sock_, kBacklog);  // the library's own backlog is 5
    return {};
  }

  void Run() {
    thread_ = std::thread([this] { listen_after_bind(); });
  }
  void End() {
    stopping_ = true;
    if (!thread_.joinable()) return;
    while (!is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop();
    thread_.join();
  }

  int port() const { return port_; }
  int64_t alive() const { return alive_; }
  std::function<std::unique_ptr<HttpResponse>(const HttpRequest&)> gate_;
  std::function<std::string(int)> error_body_;

 private:
  HttpRequest View(const httplib::Request& request) {
    HttpRequest view{request.method, request.path, request.body, request.remote_addr, {}, {}};
    view.header = [&request](const std::string& name) { return request.get_header_value(name.c_str()); };
    view.client_gone = [connection = Find(request.remote_port)] { return connection == nullptr || connection->Gone(); };
    return view;
  }

  static void Answer(HttpResponse from, httplib::Response& to) {
    to.status = from.status;
    for (const auto& [name, value] : from.headers) to.set_header(name.c_str(), value);
    if (!from.stream) {
      to.set_content(from.body, from.content_type.c_str());
      return;
    }
    to.set_chunked_content_provider(
        from.content_type.c_str(), [stream = std::move(from.stream)](size_t, httplib::DataSink& sink) {
          stream([&sink](std::string_view text) { return text.empty() || sink.write(text.data(), text.size()); });
          sink.done();
          return true;
        });
  }

  std::shared_ptr<Connection> Find(int id) {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(static_cast<uint64_t>(id));
    return found == connections_.end() ? nullptr : found->second;
  }

  std::string Refusal(int status, const char* reason) const {
    const std::string body = error_body_ ? error_body_(status) : "";
    return Cat("HTTP/1.1 ", status, " ", reason, "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
               "\r\nRetry-After: 1\r\nConnection: close\r\n\r\n", body);
  }

  bool process_and_close_socket(socket_t socket) override {
    std::shared_ptr<Connection> connection;
    bool too_many = false;
    {
      const std::lock_guard lock(mutex_);
      next_id_ = next_id_ % 0x7fffffff + 1;
      connection = std::make_shared<Connection>(socket, next_id_, limits_, stopping_);
      connections_[next_id_] = connection;
      too_many = static_cast<int64_t>(connections_.size()) > limits_.connections;
      alive_ = static_cast<int64_t>(connections_.size());
    }
    const uint64_t id = next_id_of(*connection);
    if (too_many) {
      connection->Refuse(Refusal(503, "Service Unavailable"));
    } else {
      Serve(*connection);
    }
    connection->End();
    const std::lock_guard lock(mutex_);
    connections_.erase(id);
    alive_ = static_cast<int64_t>(connections_.size());
    return true;
  }

  static uint64_t next_id_of(const Connection& connection) {
    std::string ip;
    int port = 0;
    connection.get_remote_ip_and_port(ip, port);
    return static_cast<uint64_t>(port);
  }

  void Serve(Connection& connection) {
    while (connection.AwaitRequest()) {
      bool closed = false;
      const bool served = process_request(connection, stopping_, closed, nullptr);
      if (connection.header_too_large()) connection.Refuse(Refusal(431, "Request Header Fields Too Large"));
      if (!served || closed || stopping_ || connection.closes()) return;
    }
  }

  const HttpLimits limits_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> alive_{0};
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;
  uint64_t next_id_ = 0;
  int port_ = 0;
  std::thread thread_;
};

HttpServer::HttpServer(const HttpLimits& limits) : listener_(std::make_unique<Listener>(limits)) {}
HttpServer::~HttpServer() { Stop(); }

void HttpServer::Route(const std::string& method, const std::string& path, HttpHandler handler) {
  listener_->AddRoute(method, path, std::move(handler));
}
void HttpServer::SetGate(std::function<std::unique_ptr<HttpResponse>(const HttpRequest&)> gate) {
  listener_->gate_ = std::move(gate);
}
void HttpServer::SetErrorBody(std::function<std::string(int)> body) { listener_->error_body_ = std::move(body); }
void HttpServer::SetDefaultHeaders(HttpHeaders headers) {
  httplib::Headers all;
  for (auto& [name, value] : headers) all.emplace(std::move(name), std::move(value));
  listener_->set_default_headers(std::move(all));
}
Status HttpServer::Bind(const std::string& host, int port) { return listener_->BindTo(host, port); }
int HttpServer::port() const { return listener_->port(); }
void HttpServer::Start() { listener_->Run(); }
void HttpServer::Stop() { listener_->End(); }
int64_t HttpServer::connections() const { return listener_->alive(); }

}  // namespace deltafin
