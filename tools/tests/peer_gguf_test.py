#!/usr/bin/env python3
"""Tests of bench/peer_gguf.py: bits are moved, none is changed."""

import random
import struct
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import peer_gguf  # noqa: E402

SCALARS = {4: "<I", 5: "<i", 6: "<f", 7: "<B"}


class Reader:
    """A second reading of the format, from its description."""

    def __init__(self, path):
        self.raw, self.at = path.read_bytes(), 4
        assert self.raw[:4] == b"GGUF" and self.take("<I") == 3
        tensors, keys = self.take("<Q"), self.take("<Q")
        self.keys = dict((self.text(), self.value(self.take("<I"))) for _ in range(keys))
        headers = [(self.text(), [self.take("<Q") for _ in range(self.take("<I"))], self.take("<I"), self.take("<Q"))
                   for _ in range(tensors)]
        begin = -(-self.at // 32) * 32
        self.tensors = {name: (dims, kind, begin + offset) for name, dims, kind, offset in headers}

    def take(self, form):
        value, = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.take("<Q")
        self.at += length
        return self.raw[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, count = self.take("<I"), self.take("<Q")
            return [self.value(of) for _ in range(count)]
        return self.take(SCALARS[kind])


def codes_of_release(packed):
    return [code for byte in packed for code in (byte & 15, byte >> 4)]


def codes_of_ggml(blocks):
    codes = []
    for at in range(0, len(blocks), 17):
        pairs = blocks[at + 1:at + 17]
        codes += [byte & 15 for byte in pairs] + [byte >> 4 for byte in pairs]
    return codes


class Repack(unittest.TestCase):
    def test_keeps_every_code_and_scale_in_order(self):
        draw = random.Random(1)
        packed, scales = draw.randbytes(16 * 50), draw.randbytes(50)
        blocks = peer_gguf.repack(packed, scales)
        self.assertEqual(blocks[0::17], scales)
        self.assertEqual(codes_of_ggml(blocks), codes_of_release(packed))


class Convert(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = Path(cls.folder.name) / "nano.gguf"
        model = ROOT / "models/k3-nano"
        peer_gguf.convert(model, path)
        cls.out, cls.checkpoint = Reader(path), peer_gguf.Checkpoint(model)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def bytes_at(self, name, offset, size):
        begin = self.out.tensors[name][2] + offset
        return self.out.raw[begin:begin + size]

    def test_marks_the_attention_of_every_layer(self):
        self.assertEqual(self.out.keys["kimi-k3.attention.head_count_kv"], [0, 0, 0, 1, 0, 0, 0, 1, 1])

    def test_has_a_name_for_every_id(self):
        self.assertEqual(len(self.out.keys["tokenizer.ggml.tokens"]), self.checkpoint.config["vocab_size"])
        self.assertEqual(len(set(self.out.keys["tokenizer.ggml.tokens"])), self.checkpoint.config["vocab_size"])

    def test_leaves_matrices_as_they_are(self):
        dims, kind, _ = self.out.tensors["blk.0.attn_q.weight"]
        raw = self.checkpoint.raw("language_model.model.layers.0.self_attn.q_proj.weight")
        self.assertEqual((dims, kind), ([256, 256], peer_gguf.TYPE_BF16))
        self.assertEqual(self.bytes_at("blk.0.attn_q.weight", 0, len(raw)), raw)

    def test_widens_norms(self):
        raw = self.checkpoint.raw("language_model.model.norm.weight")
        wide = self.bytes_at("output_norm.weight", 0, 2 * len(raw))
        for i in range(len(raw) // 2):
            self.assertEqual(wide[4 * i:4 * i + 4], b"\0\0" + raw[2 * i:2 * i + 2])

    def test_turns_the_keys_of_each_head(self):
        c = self.checkpoint.config
        nope, v, latent = c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        raw = self.checkpoint.raw("language_model.model.layers.3.self_attn.kv_b_proj.weight")
        for head, channel, column in ((0, 0, 0), (1, 5, 7), (3, nope - 1, latent - 1)):
            source = 2 * ((head * (nope + v) + channel) * latent + column)
            target = 2 * ((head * latent + column) * nope + channel)
            self.assertEqual(self.bytes_at("blk.3.attn_k_b.weight", target, 2), raw[source:source + 2])
            source = 2 * ((head * (nope + v) + nope + channel) * latent + column)
            target = 2 * ((head * v + channel) * latent + column)
            self.assertEqual(self.bytes_at("blk.3.attn_v_b.weight", target, 2), raw[source:source + 2])

    def test_stacks_the_experts(self):
        name = "language_model.model.layers.2.block_sparse_moe.experts.41.w2.weight_"
        packed, scales = self.checkpoint.raw(name + "packed"), self.checkpoint.raw(name + "scale")
        size = 17 * len(scales)
        blocks = self.bytes_at("blk.2.ffn_down_exps.weight", 41 * size, size)
        self.assertEqual(blocks[0::17], scales)
        self.assertEqual(codes_of_ggml(blocks), codes_of_release(packed))


if __name__ == "__main__":
    unittest.main()
