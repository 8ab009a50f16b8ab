// stream_options.h: the options of a model whose experts are fetched over the network as they are routed.
//
// Functions without state; main thread. Errors: kInvalidArgument naming the option, those of reading the token's file.
#pragma once

#include <optional>
#include <string>

#include "app/common_options.h"
#include "base/log.h"
#include "base/result.h"
#include "checkpoint/remote_files.h"
#include "engine/engine_options.h"

namespace deltafin {

// --check-twice [auto|on|off]; "": without a value.
void AddCheckTwice(CLI::App& app, std::optional<std::string>& text);
void AddStreamOptions(CLI::App& app, CommonOptions& options);
Result<StreamOptions> ToStreamOptions(const CommonOptions& options);

// The one word that the file holds; "" for no file.
Result<std::string> ReadToken(const std::string& path);

// The hub that a folder's manifest names. Both outlive what it makes.
RemoteFilesFactory HubOf(const CommonOptions& options, Logger& logger);

}  // namespace deltafin
