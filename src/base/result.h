// Result<T> and Status: the return type of everything that can fail for a reason outside the program.
//
// Result<T> holds a T or an Error; Status holds nothing or an Error. Both are [[nodiscard]]. Nothing in deltafin throws
// across a folder boundary. The only includer of tl/expected.hpp.
//
//   Result<File> OpenFile(path);
//   DFIN_TRY(File file, OpenFile(path));          // returns the error from the enclosing function, else defines `file`
//   DFIN_TRY_VOID(file.Sync());                   // the same for a Status
//   return Fail(ErrorCode::kNotFound, "config.json: missing in ", folder);
#pragma once

#include <sstream>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace deltafin {

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;
using Failure = tl::unexpected<Error>;

// Joins anything printable into one string. For messages, not for hot paths.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

template <typename... Parts>
Failure Fail(ErrorCode code, const Parts&... parts) {
  return Failure(Error(code, Cat(parts...)));
}

// Forwards the error of `result` with a context in front.
template <typename T>
Failure FailWith(Result<T>&& result, std::string_view context) {
  return Failure(std::move(result.error()).WithContext(context));
}

}  // namespace deltafin

#define DFIN_CONCAT_INNER(a, b) a##b
#define DFIN_CONCAT(a, b) DFIN_CONCAT_INNER(a, b)

#define DFIN_TRY(declaration, expression) DFIN_TRY_IMPL(DFIN_CONCAT(dfin_result_, __LINE__), declaration, expression)
#define DFIN_TRY_IMPL(result, declaration, expression)     \
  auto result = (expression);                              \
  if (!result) [[unlikely]]                                \
    return ::deltafin::Failure(std::move(result.error())); \
  declaration = std::move(*result)

#define DFIN_TRY_VOID(expression)                                 \
  do {                                                            \
    auto dfin_status = (expression);                              \
    if (!dfin_status) [[unlikely]]                                \
      return ::deltafin::Failure(std::move(dfin_status.error())); \
  } while (false)
