// ApiError: a refusal or failure as a client of the API sees it.
//
// `param` names the field that is to blame ("messages[2].role"), where one is. Two shapes exist, OpenAI's and
// Anthropic's. No text of a request is repeated beyond the names of its fields and short values. Value type.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "server/http_server.h"

namespace deltafin {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};
  std::string code = {};
};

enum class ApiShape : uint8_t { kOpenAi, kAnthropic };

// {"error": {"message", "type", "param", "code"}}, or {"type": "error", "error": {"type", "message"}}.
std::string ErrorBody(const ApiError& error, ApiShape shape);
HttpResponse ErrorResponse(const ApiError& error, ApiShape shape);

// 400 for what the request is to blame for, 503 for what the machine is.
ApiError ToApiError(const Error& error);
// The common one: 400, "FIELD: expected ...".
ApiError BadField(std::string param, const std::string& expected);

}  // namespace deltafin
