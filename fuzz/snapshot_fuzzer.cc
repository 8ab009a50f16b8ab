// Fuzzes what reads a session's state back. The first byte says which checksums are made right, so that what follows
// them is reached; the next two are the length of the state file; the latents follow. Seeds: fuzz/corpus/snapshot.
#include <algorithm>
#include <cstring>

#include "engine/snapshot_files.h"
#include "engine/snapshot_format.h"
#include "require.h"

namespace {

using namespace deltafin;
using fuzz::Require;

class Memory : public SnapshotSource {
 public:
  explicit Memory(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  bool Read(uint64_t at, MutBytes to) const override {
    if (at > bytes_.size() || to.size() > bytes_.size() - at) return false;
    std::memcpy(to.data(), bytes_.data() + at, to.size());
    return true;
  }
  template <typename T>
  T* At(uint64_t at) {
    return at + sizeof(T) <= bytes_.size() ? reinterpret_cast<T*>(bytes_.data() + at) : nullptr;
  }

 private:
  std::vector<std::byte> bytes_;
};

// One KDA layer of 40 bytes, two MLA layers of three floats a position.
ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.kda_heads = 1;
  spec.kda_head_dim = 2;
  spec.conv_kernel = 2;
  spec.num_kda_layers = 1;
  spec.num_mla_layers = 2;
  spec.kv_lora_rank = 2;
  spec.qk_rope_head_dim = 1;
  return spec;
}

void MakeRight(Memory& state, Memory& latents, const SnapshotIdentity& identity, const SnapshotShape& shape,
               int which) {
  if (auto* head = state.At<SnapshotHead>(0); head != nullptr && (which & 1) != 0)
    *head = MakeSnapshotHead(kStateMagic, identity, shape);
  if (auto* body = state.At<SnapshotBody>(sizeof(SnapshotHead)); body != nullptr && (which & 2) != 0)
    body->hash = HashOf(*body);
  auto* head = latents.At<SnapshotHead>(0);
  if (head == nullptr) return;
  if ((which & 4) != 0) *head = MakeSnapshotHead(kLatentsMagic, identity, shape);
  if ((which & 8) == 0) return;
  uint64_t hash = head->hash;
  for (uint64_t at = sizeof *head; auto* record = latents.At<LatentsRecord>(at);) {
    record->hash = hash = HashOf(*record, hash);
    at += sizeof *record + shape.PayloadBytes(record->count % 256);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const size_t split = std::min<size_t>(size - 3, size_t{data[1]} + size_t{data[2]} * 256);
  Memory state({bytes + 3, bytes + 3 + split}), latents({bytes + 3 + split, bytes + size});
  static const ModelSpec spec = SmallSpec();
  static const std::vector<TokenId> wanted = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Result<SequenceState> made = SequenceState::Create(spec, 300);
  if (!made) return 0;
  Session session(std::move(*made));
  const SnapshotIdentity identity{7, "fuzz"};
  MakeRight(state, latents, identity, SnapshotShape(session.state().CurrentKdaBytes().size(), session.state().mla()),
            data[0]);
  const Status read = SnapshotFiles::Read(state, latents, identity, wanted, session);
  Require(session.length() == static_cast<int64_t>(session.tokens().size()));
  Require(read.has_value() == (session.length() > 0));
  Require(std::equal(session.tokens().begin(), session.tokens().end(), wanted.begin()));
  return 0;
}
