// ServerContext: what every endpoint works with. RequestLimits: how large a request may be.
//
// References outlive the server. Constant while requests are served, so any thread may read it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sampler.h"
#include "server/generation_service.h"
#include "text/token_order.h"
#include "text/tokenizer.h"

namespace deltafin {

struct RequestLimits {
  int json_levels = 64;
  int64_t messages = 4096;
  int64_t tools = 512;
  int64_t schema_bytes = 256 << 10;  // of one schema, as JSON
  int64_t choices = 16;              // n
  int64_t stops = 16;
  int64_t stop_bytes = 1024;
  int64_t logit_biases = 4096;
  int64_t prompts = 64;  // of one /v1/completions request
};

struct ServerContext {
  const Tokenizer& tokenizer;
  const TokenOrder& token_order;
  GenerationService& service;
  EngineMonitor& monitor;
  std::string model;        // its name in the API
  SamplingParams defaults;  // of the model
  RequestLimits limits;
  std::string version;
  int64_t started = 0;         // seconds since 1970
  double comment_seconds = 5;  // a stream that says nothing for so long gets a comment
};

}  // namespace deltafin
