// Checkpoint: a folder in the release's layout, opened and checked: config.json, model.safetensors.index.json, shards.
//
// Open() reads the headers (or their cached form), and holds every text tensor's place: after it, each tensor that the
// spec calls for is known to be there with the right dtype and shape, inside its file, overlapping nothing. Holds no
// weights. Immutable after Open; thread-safe.
// Errors name the file, the tensor or key, what was expected and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/ids.h"
#include "base/result.h"
#include "io/direct_file.h"
#include "io/drive.h"
#include "spec/expert_record.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

// Where a dense tensor lies.
struct TensorPlace {
  DType dtype = DType::kF32;
  Shape shape;
  int32_t shard = 0;
  uint64_t offset = 0;  // absolute, in bytes from the start of the file
  uint64_t bytes = 0;
};

// Where a routed expert lies: one contiguous extent of a shard.
struct ExpertPlace {
  int32_t shard = 0;
  uint64_t offset = 0;
  ExpertRecordLayout layout;
};

// Which routed experts the shards must hold.
enum class ExpertsWanted : uint8_t {
  kInShards,   // all
  kElsewhere,  // none: an expert set has them. Shards without dense tensors may be missing. What is there is checked.
  kPartial,    // for pack: any part of a download; dense tensors may be missing with their shards
};

struct CheckpointOptions {
  std::string folder;
  // Folder for the cached header index ("" = do not cache; kPartial never does). See docs/FORMAT.md.
  std::string index_cache_folder;
  // Looked at between shards.
  CancelToken cancel = {};
  // Called with the number of shards whose headers were read, of all; not when the cached index is used.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
  ExpertsWanted experts = ExpertsWanted::kInShards;
  ReadsBuffered reads_buffered = {};
  // The caller knows that experts of a streamed folder (checkpoint/stream_folder.h) may be absent; else such a folder
  // is refused where experts are wanted. Its headers are not cached.
  bool may_be_streamed = false;
};

class Checkpoint {
 public:
  static Result<Checkpoint> Open(const CheckpointOptions& options);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& folder() const;
  const ModelSpec& spec() const;
  // Hash over the config and over which shard holds which dense tensor; names caches and saved state. The same whether
  // experts are in the shards, moved out of them, or not all there yet.
  uint64_t fingerprint() const;

  // The dense (non-expert) text tensors, by full checkpoint name. Aborts on a name that the spec does not call for;
  // everything the spec calls for is there, but with kPartial.
  const TensorPlace& Dense(std::string_view name) const;
  bool has_dense(std::string_view name) const;
  // Names of one layer's dense tensors in file order; layer -1: the globals (embed_tokens, lm_head, norm,
  // output_attn_res_*).
  const std::vector<std::string>& DenseNames(int layer) const;
  // Only where has_expert(); always with kInShards.
  const ExpertPlace& Expert(ExpertKey key) const;
  bool has_expert(ExpertKey key) const;

  // The shards that are there and have text tensors.
  int shard_count() const;
  const DirectFile& shard(int index) const;
  // The devices that the shards lie on, and which of them holds a shard: drives 0 and on of the I/O scheduler.
  const std::vector<DriveInfo>& drives() const;
  int32_t shard_drive(int index) const;
  bool headers_were_cached() const;
  // Why the headers could not be cached for the next start; "" when they are, or nobody asked for it.
  const std::string& index_cache_note() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deltafin
