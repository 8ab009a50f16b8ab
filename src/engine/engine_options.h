// EngineOptions: the one configuration of an engine. The command line fills it; nothing below reads the environment.
//
// A value type. Validation happens where a value meets what it is about (memory plan, backend table, I/O engine), and
// every refusal names the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace deltafin {

enum class DenseMode : uint8_t {
  kAuto,      // as much in memory as fits, the rest streamed
  kResident,  // all in memory, refused when it does not fit
  kStream,    // every layer streamed for every step
};

enum class DraftMode : uint8_t {
  kOff,
  kAuto,    // what there is room for, while it pays
  kNgram,   // this one, while it pays; refused without room
  kDspark,  // this one, from draft_model; refused where it does not fit the model or the memory
  kQwen,    // the same
};

// Of a model whose experts are fetched as they are routed.
struct StreamOptions {
  bool offline = false;                       // --offline: nothing is fetched
  std::optional<uint64_t> keep_experts = {};  // --keep-experts: most bytes of fetched experts that stay on disk
  int connections = 8;                        // --connections: ranges that are fetched at once
};

struct EngineOptions {
  std::string model = {};                     // --model: checkpoint folder
  std::optional<uint64_t> memory = {};        // --memory: bytes in all; default: most of what is available
  std::optional<uint64_t> expert_cache = {};  // --expert-cache: bytes of expert slots; default: what the rest leaves
  int threads = 0;                            // --threads: 0 = every fast core
  bool pin = true;                            // --pin: each worker runs on a core of its own
  // --kv-dtype: the type in which latents are kept; kBF16 halves their memory and changes results
  DType kv_dtype = DType::kF32;
  int64_t context = 0;          // --context: most tokens of a sequence; 0 = default
  int64_t chunk = 0;            // --chunk: prompt tokens computed together; 0 = from the memory plan
  std::string device = "auto";  // --device: auto | cpu | reference
  std::string isa = "auto";     // --isa: auto | avx2 | avx512 | neon
  std::string io = "auto";      // --io: auto | uring | pread
  // --experts: folders of an expert set; empty: those that pack noted for this model, else the shards
  std::vector<std::string> experts = {};
  std::string dense = {};  // --dense: folder of packed dense weights; "": they are read from the shards
  StreamOptions stream = {};
  bool verify_reads = false;  // --verify-reads: every expert read is checked against its checksum
  bool prefetch = true;       // --prefetch: the next layer's likely experts are read while drives are idle
  // --warm-start: experts that earlier runs wanted most are read into free slots in the background, and their counts
  // help to choose what leaves the cache. Needs a state folder.
  bool warm_start = false;
  std::string expert_trace = {};  // --expert-trace: file for the experts that every step wanted; "" = none
  DenseMode dense_mode = DenseMode::kAuto;
  std::string state_dir = {};         // --state-dir: "" = keep nothing (--no-state)
  bool usage_counts = true;           // counts of use are taken from there and added to; off in benchmarks
  int64_t sequences = 1;              // --parallel: sessions that are in use at once
  int64_t prefix_checkpoints = 0;     // that a prefix cache should have room for, where memory allows
  DraftMode draft = DraftMode::kOff;  // --draft; only where tokens are generated
  std::string draft_model = {};       // --draft-model: folder of a model that drafts; kAuto, kDspark, kQwen
  int64_t max_drafts = 0;             // --max-drafts: 1 to kMostDrafts; 0 = default
  // Rows that the caller keeps in memory as results: logits of every token, and with taps every intermediate value.
  int64_t result_logit_rows = 0;
  int64_t result_tap_rows = 0;
  uint64_t tokenizer_bytes = 0;  // what the caller's tokenizer holds, for the memory plan
};

}  // namespace deltafin
