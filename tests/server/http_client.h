// http_client.h: a plain HTTP client for tests: it sends what it is told to, also what is wrong, and reads bit by bit.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace deltafin::test {

struct Reply {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
};

class HttpConnection {
 public:
  explicit HttpConnection(int port);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  bool Send(std::string_view bytes);
  // Up to `seconds` for all of it.
  Reply Read(double seconds = 30);
  // Whatever comes next; "": the end, or nothing for so long.
  std::string ReadSome(double seconds = 30);
  // Nothing is read or sent any more.
  void Close();

 private:
  int socket_ = -1;
  std::string held_;
};

std::string PostText(const std::string& path, const std::string& body, const std::string& headers = "");
Reply Post(int port, const std::string& path, const std::string& body, const std::string& headers = "");
Reply Get(int port, const std::string& path, const std::string& headers = "");

// The "data:" lines of a stream of events, without "[DONE]".
std::vector<std::string> DataLines(const std::string& body);

}  // namespace deltafin::test
