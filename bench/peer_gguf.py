"""Writes a checkpoint in the release's layout as GGUF, for bench/llama_peer: the same bits, only moved.

BF16 matrices stay BF16, MXFP4 experts stay MXFP4 (in ggml's order), what llama.cpp wants in float32 is widened. The
vocabulary is a stand-in: feed token ids. Standard library only; one matrix in memory at a time. Both kinds of layers must
have the same number of heads. What the file must contain: llama.cpp, conversion/kimi_k3.py and src/models/kimi-k3.cpp
(architecture `kimi-k3`, release v0.5.0).
"""

import array
import json
import math
import struct
from pathlib import Path

U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9
SCALAR = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}
TYPE_F32, TYPE_BF16, TYPE_MXFP4 = 0, 30, 39
ALIGN = 32
MODEL = "language_model.model."


class Checkpoint:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())["text_config"]
        self.tensors = {}  # name -> (file, offset, bytes, dtype, shape)
        for path in sorted(folder.glob("*.safetensors")):
            with open(path, "rb") as file:
                length, = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length))
            for name, tensor in header.items():
                if name != "__metadata__":
                    begin, end = tensor["data_offsets"]
                    self.tensors[name] = (path, 8 + length + begin, end - begin, tensor["dtype"], tensor["shape"])

    def shape(self, name):
        return self.tensors[name][4]

    def raw(self, name):
        path, offset, size, _, _ = self.tensors[name]
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def floats(self, name):
        """As float32 bytes."""
        raw = self.raw(name)
        if self.tensors[name][3] == "F32":
            return raw
        wide = bytearray(2 * len(raw))
        wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
        return bytes(wide)

    def values(self, name):
        return array.array("f", self.floats(name))


class GgufWriter:
    def __init__(self):
        self.keys, self.tensors = [], []

    def key(self, name, kind, value):
        self.keys.append(text(name) + struct.pack("<I", kind) + value_bytes(kind, value))

    def tensor(self, name, dims, kind, size, make):
        """`dims` fastest first; make() gives the bytes, as one piece or several."""
        self.tensors.append((name, dims, kind, size, make))

    def write(self, path):
        with open(path, "wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)) + b"".join(self.keys))
            offset = 0
            for name, dims, kind, size, _ in self.tensors:
                file.write(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
                offset += padded(size)
            file.write(b"\0" * (-file.tell() % ALIGN))
            for name, _, _, size, make in self.tensors:
                begin = file.tell()
                for piece in make():
                    file.write(piece)
                if file.tell() - begin != size:
                    raise ValueError(f"{name}: expected {size} bytes, got {file.tell() - begin}")
                file.write(b"\0" * (padded(size) - size))


def padded(size):
    return -(-size // ALIGN) * ALIGN


def text(string):
    raw = string.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(kind, value):
    if kind == STR:
        return text(value)
    if kind == ARRAY:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(value_bytes(of, item) for item in items)
    return struct.pack(SCALAR[kind], value)


LOW = bytes(b & 15 for b in range(256))
HIGH = bytes(b >> 4 for b in range(256))
LOW_RAISED = bytes((b & 15) << 4 for b in range(256))
HIGH_KEPT = bytes(b & 0xF0 for b in range(256))


def repack(packed, scales):
    """MXFP4 from pairs (2i, 2i + 1) a byte to pairs (j, j + 16), each block of 32 behind its scale."""
    out = bytearray(17 * len(scales))
    out[0::17] = scales
    for j in range(16):
        first, second = packed[j // 2::16], packed[8 + j // 2::16]
        low, high = (LOW, LOW_RAISED) if j % 2 == 0 else (HIGH, HIGH_KEPT)
        joined = int.from_bytes(first.translate(low), "little") | int.from_bytes(second.translate(high), "little")
        out[1 + j::17] = joined.to_bytes(len(scales), "little")
    return bytes(out)


class Converter:
    def __init__(self, folder):
        self.checkpoint = Checkpoint(Path(folder))
        self.config = self.checkpoint.config
        self.out = GgufWriter()
        linear = self.config["linear_attn_config"]
        if linear["num_heads"] != self.config["num_attention_heads"]:
            raise ValueError("both kinds of layers must have the same number of heads")

    def run(self, path):
        self.add_keys()
        self.add_vocabulary()
        self.matrix("token_embd", MODEL + "embed_tokens")
        self.floats("output_norm.weight", MODEL + "norm.weight")
        self.matrix("output", "language_model.lm_head")
        self.score("output_res_score", MODEL + "output_attn_res")
        for layer in range(self.config["num_hidden_layers"]):
            self.add_layer(layer)
        self.out.write(path)

    def add_keys(self):
        c, linear = self.config, self.config["linear_attn_config"]
        key = lambda name, kind, value: self.out.key("kimi-k3." + name, kind, value)  # noqa: E731
        self.out.key("general.architecture", STR, "kimi-k3")
        self.out.key("general.type", STR, "model")
        self.out.key("general.file_type", U32, 38)
        self.out.key("general.quantization_version", U32, 2)
        nope, rope, latent = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
        for name, value in {
                "block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
                "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
                "vocab_size": c["vocab_size"], "attention.head_count": c["num_attention_heads"],
                "attention.q_lora_rank": c["q_lora_rank"], "attention.kv_lora_rank": latent,
                "attention.key_length": latent + rope, "attention.value_length": latent,
                "attention.key_length_mla": nope + rope, "attention.value_length_mla": c["v_head_dim"],
                "rope.dimension_count": rope, "ssm.conv_kernel": linear["short_conv_kernel_size"],
                "kda.head_dim": linear["head_dim"], "expert_count": c["num_experts"],
                "expert_used_count": c["num_experts_per_token"],
                "expert_feed_forward_length": c["moe_intermediate_size"],
                "expert_shared_count": c["num_shared_experts"],
                "leading_dense_block_count": c["first_k_dense_replace"], "expert_gating_func": 2,
                "expert_latent_length": c["routed_expert_hidden_size"],
                "attn_res.block_size": c["attn_res_block_size"]}.items():
            key(name, U32, value)
        key("attention.head_count_kv", ARRAY,
            (I32, [1 if layer + 1 in linear["full_attn_layers"] else 0 for layer in range(c["num_hidden_layers"])]))
        for name, value in {"attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
                            "kda.gate_lower_bound": linear["gate_lower_bound"],
                            "expert_weights_scale": c["routed_scaling_factor"],
                            "activation.situ_beta": c["activation_situ_beta"],
                            "activation.situ_linear_beta": c["activation_situ_linear_beta"]}.items():
            key(name, F32, value)
        key("expert_weights_norm", BOOL, 1)

    def add_vocabulary(self):
        """Bytes, then names that say nothing."""
        size = self.config["vocab_size"]
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        letters, extra = {}, 256
        for byte in range(256):
            letters[byte] = chr(byte if byte in plain else extra)
            extra += byte not in plain
        names = [letters[byte] for byte in range(256)] + ["[BOS]", "[EOS]", "[PAD]"]
        names += [f"[PAD{i}]" for i in range(len(names), size)]
        self.out.key("tokenizer.ggml.model", STR, "gpt2")
        self.out.key("tokenizer.ggml.pre", STR, "kimi-k2")
        self.out.key("tokenizer.ggml.tokens", ARRAY, (STR, names))
        self.out.key("tokenizer.ggml.token_type", ARRAY, (I32, [1] * 256 + [3] * 3 + [5] * (size - 259)))
        for name, token in (("bos", 256), ("eos", 257), ("padding", 258)):
            self.out.key(f"tokenizer.ggml.{name}_token_id", U32, token)
        self.out.key("tokenizer.ggml.add_bos_token", BOOL, 0)

    def matrix(self, name, source):
        shape = self.checkpoint.shape(source + ".weight")
        self.out.tensor(name + ".weight", shape[::-1], TYPE_BF16, 2 * math.prod(shape),
                        lambda: [self.checkpoint.raw(source + ".weight")])

    def floats(self, name, source, dims=None):
        shape = self.checkpoint.shape(source)
        self.out.tensor(name, dims or shape[::-1], TYPE_F32, 4 * math.prod(shape),
                        lambda: [self.checkpoint.floats(source)])

    def score(self, name, source):
        """Norm and direction of a residual mix, multiplied."""
        def make():
            norm = self.checkpoint.values(source + "_norm.weight")
            proj = self.checkpoint.values(source + "_proj.weight")
            return [array.array("f", map(lambda a, b: a * b, norm, proj)).tobytes()]
        size = self.checkpoint.shape(source + "_norm.weight")[0]
        self.out.tensor(name + ".weight", [size], TYPE_F32, 4 * size, make)

    def add_layer(self, layer):
        source, name = f"{MODEL}layers.{layer}.", f"blk.{layer}."
        self.floats(name + "attn_norm.weight", source + "input_layernorm.weight")
        self.floats(name + "ffn_norm.weight", source + "post_attention_layernorm.weight")
        self.score(name + "attn_res_score", source + "self_attention_res")
        self.score(name + "ffn_res_score", source + "mlp_res")
        if layer + 1 in self.config["linear_attn_config"]["full_attn_layers"]:
            self.add_mla(name, source + "self_attn.")
        else:
            self.add_kda(name, source + "self_attn.")
        if layer < self.config["first_k_dense_replace"]:
            for part in ("gate", "up", "down"):
                self.matrix(f"{name}ffn_{part}", f"{source}mlp.{part}_proj")
        else:
            self.add_experts(name, source + "block_sparse_moe.")

    def add_kda(self, name, source):
        for part, of in {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "ssm_f_a": "f_a_proj",
                         "ssm_f_b": "f_b_proj", "ssm_beta": "b_proj", "ssm_g": "g_proj", "attn_output": "o_proj"}.items():
            self.matrix(name + part, source + of)
        for part in "qkv":
            width, _, taps = self.checkpoint.shape(f"{source}{part}_conv1d.weight")
            self.floats(f"{name}ssm_conv1d_{part}.weight", f"{source}{part}_conv1d.weight", [taps, 1, width, 1])
        heads = self.config["num_attention_heads"]
        self.out.tensor(name + "ssm_a", [heads], TYPE_F32, 4 * heads, lambda: [
            array.array("f", (-math.exp(a) for a in self.checkpoint.values(source + "A_log")[:heads])).tobytes()])
        self.floats(name + "ssm_dt.bias", source + "dt_bias")
        self.floats(name + "ssm_norm.weight", source + "o_norm.weight")

    def add_mla(self, name, source):
        c = self.config
        for part, of in {"attn_q_a": "q_a_proj", "attn_q_b": "q_b_proj", "attn_kv_a_mqa": "kv_a_proj_with_mqa",
                         "attn_gate": "g_proj", "attn_output": "o_proj"}.items():
            self.matrix(name + part, source + of)
        for part, of in {"attn_q_a_norm": "q_a_layernorm", "attn_kv_a_norm": "kv_a_layernorm"}.items():
            self.floats(f"{name}{part}.weight", f"{source}{of}.weight")
        heads, nope, v, latent = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        row = 2 * latent

        def heads_of_both():
            both = self.checkpoint.raw(source + "kv_b_proj.weight")
            return [both[head * (nope + v) * row:(head + 1) * (nope + v) * row] for head in range(heads)]

        def keys():
            for head in heads_of_both():
                values = array.array("H", head[:nope * row])
                yield b"".join(values[column::latent].tobytes() for column in range(latent))

        self.out.tensor(name + "attn_k_b.weight", [nope, latent, heads], TYPE_BF16, 2 * nope * latent * heads, keys)
        self.out.tensor(name + "attn_v_b.weight", [latent, v, heads], TYPE_BF16, 2 * v * latent * heads,
                        lambda: [head[nope * row:] for head in heads_of_both()])

    def add_experts(self, name, source):
        self.floats(name + "ffn_gate_inp.weight", source + "gate.weight")
        self.floats(name + "exp_probs_b.bias", source + "gate.e_score_correction_bias")
        self.matrix(name + "ffn_routed_down", source + "routed_expert_down_proj")
        self.matrix(name + "ffn_routed_up", source + "routed_expert_up_proj")
        self.floats(name + "ffn_routed_norm.weight", source + "routed_expert_norm.weight")
        for part in ("gate", "up", "down"):
            self.matrix(f"{name}ffn_{part}_shexp", f"{source}shared_experts.{part}_proj")
        experts = self.config["num_experts"]
        for part, of in {"gate": "w1", "down": "w2", "up": "w3"}.items():
            rows, half = self.checkpoint.shape(f"{source}experts.0.{of}.weight_packed")

            def make(of=of):
                for expert in range(experts):
                    matrix = f"{source}experts.{expert}.{of}.weight_"
                    yield repack(self.checkpoint.raw(matrix + "packed"), self.checkpoint.raw(matrix + "scale"))

            self.out.tensor(f"{name}ffn_{part}_exps.weight", [2 * half, rows, experts], TYPE_MXFP4,
                            experts * rows * half // 16 * 17, make)


def convert(folder, path):
    Converter(folder).run(path)
