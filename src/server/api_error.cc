#include "server/api_error.h"

#include "server/json_text.h"

namespace deltafin {
namespace {

const char* TypeOf(int status, ApiShape shape) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return shape == ApiShape::kAnthropic ? "request_too_large" : "invalid_request_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return shape == ApiShape::kAnthropic ? "overloaded_error" : "server_error";
    case 500:
      return shape == ApiShape::kAnthropic ? "api_error" : "server_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

std::string ErrorBody(const ApiError& error, ApiShape shape) {
  const std::string type = TypeOf(error.status, shape);
  if (shape == ApiShape::kAnthropic)
    return "{\"type\": \"error\", \"error\": {\"type\": " + JsonString(type) +
           ", \"message\": " + JsonString(error.message) + "}}";
  const auto or_null = [](const std::string& text) { return text.empty() ? "null" : JsonString(text); };
  return "{\"error\": {\"message\": " + JsonString(error.message) + ", \"type\": " + JsonString(type) +
         ", \"param\": " + or_null(error.param) + ", \"code\": " + or_null(error.code) + "}}";
}

HttpResponse ErrorResponse(const ApiError& error, ApiShape shape) {
  HttpResponse response{error.status, "application/json", ErrorBody(error, shape)};
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "2");
  return response;
}

ApiError ToApiError(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return {400, error.message()};
    case ErrorCode::kUnavailable:
      return {429, error.message(), "", "queue_full"};
    case ErrorCode::kCancelled:
    case ErrorCode::kIo:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kDeadline:
      return {503, error.message()};
    default:
      return {500, error.message()};
  }
}

ApiError BadField(std::string param, const std::string& expected) {
  return {400, param + ": expected " + expected, param, "invalid_value"};
}

}  // namespace deltafin
