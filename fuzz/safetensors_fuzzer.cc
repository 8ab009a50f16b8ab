// Fuzzes what reads a checkpoint's headers: shard header, first bytes, index, cached header index. The first byte
// chooses.
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/integrity.h"
#include "checkpoint/safetensors.h"
#include "require.h"

namespace {

using namespace deltafin;
using fuzz::Require;

void Header(std::string_view json) {
  const auto header = SafetensorsHeader::Parse(json, "fuzz");
  if (!header) return;
  uint64_t end = 0;
  for (const TensorEntry& tensor : header->tensors()) {
    Require(tensor.begin == end);
    Require(tensor.bytes == static_cast<uint64_t>(tensor.shape.elements() * ByteSize(tensor.dtype)));
    Require(!tensor.name.empty());
    end = tensor.begin + tensor.bytes;
  }
  Require(header->data_bytes() == end);
}

void FirstBytes(std::string_view bytes) {
  const auto length = ReadHeaderLength(bytes.substr(0, 8), bytes.size(), "fuzz");
  if (length) Require(*length <= bytes.size() - 8);
}

void Index(std::string_view json) {
  const Status parsed = ParseIndex(json, "fuzz", [](std::string_view, std::string_view shard) -> Status {
    Require(shard.find('/') == std::string_view::npos && shard != ".." && !shard.empty());
    return {};
  });
  static_cast<void>(parsed);
}

ModelSpec TinySpec() {
  ModelSpec spec;
  spec.hidden_size = spec.vocab_size = spec.intermediate_size = 4;
  spec.attn_res_block_size = spec.kda_heads = spec.kda_head_dim = spec.conv_kernel = 1;
  spec.mla_heads = spec.q_lora_rank = spec.kv_lora_rank = spec.qk_nope_head_dim = 1;
  spec.qk_rope_head_dim = spec.v_head_dim = spec.num_experts = spec.num_shared_experts = 1;
  spec.routed_expert_hidden_size = spec.moe_intermediate_size = 32;
  spec.num_moe_layers = 1;
  spec.layers.resize(1);
  return spec;
}

// With the right checksum, so that what follows it is reached.
void CachedIndex(std::string_view body) {
  static const TensorDirectory directory(TinySpec());
  const uint64_t hash = Hash64(body);
  std::string bytes = "DFINHDR1";
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(hash >> shift & 255);
  const auto places = ParsePlaces(bytes += body, {}, directory);
  if (!places) return;
  for (const TensorPlace& place : places->dense)
    Require(place.offset + place.bytes <= places->stamps[static_cast<size_t>(place.shard)].bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] & 3) {
    case 0:
      Header(rest);
      break;
    case 1:
      FirstBytes(rest);
      break;
    case 2:
      Index(rest);
      break;
    default:
      CachedIndex(rest);
      break;
  }
  return 0;
}
