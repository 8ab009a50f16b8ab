#!/usr/bin/env python3
"""Tests of the bundled drafters' files: what a release holds, nothing more, in the layout that loaders demand."""

import json
import struct
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DSPARK, QWEN, TARGET = ROOT / "models/k3-nano-dspark", ROOT / "models/qwen3-nano", ROOT / "models/k3-nano"


def read(path):
    """(entries, payload, metadata) of a safetensors file; the payload must have no gap and no tail."""
    raw = path.read_bytes()
    length, = struct.unpack_from("<Q", raw)
    pairs = json.loads(raw[8:8 + length], object_pairs_hook=list)
    entries = {name: dict(entry) for name, entry in pairs if name != "__metadata__"}
    metadata = dict(dict(pairs).get("__metadata__", []))
    assert len(pairs) == len({name for name, _ in pairs}), "a name stands twice"
    end = 0
    for entry in entries.values():
        begin, stop = entry["data_offsets"]
        size = 2
        for extent in entry["shape"]:
            size *= extent
        assert entry["dtype"] == "BF16" and begin == end and stop == begin + size
        end = stop
    assert len(raw) == 8 + length + end and length % 8 == 0
    return entries, raw[8 + length:], metadata


def parameters(entries):
    return sum((entry["data_offsets"][1] - entry["data_offsets"][0]) // 2 for entry in entries.values())


class DSparkFiles(unittest.TestCase):
    def test_has_the_tensors_and_the_parameters_of_the_specified_size(self):
        entries, _, metadata = read(DSPARK / "model.safetensors")
        self.assertEqual((len(entries), parameters(entries)), (68, 5_482_561))
        self.assertEqual(metadata, {"torchspec_version": "0.1.0"})
        self.assertEqual(list(entries), sorted(entries, key=lambda name: name.encode()))
        shapes = {name: entry["shape"] for name, entry in entries.items()}
        self.assertEqual(shapes["context_proj.weight"], [256, 5 * 256])
        self.assertEqual(shapes["confidence_head.proj.weight"], [1, 256 + 32])
        for layer in range(5):
            p = f"layers.{layer}.self_attn."
            self.assertEqual(shapes[p + "q_b_proj.weight"], [4 * (32 + 16), 96])
            self.assertEqual(shapes[p + "kv_a_proj_with_mqa.weight"], [64 + 16, 256])
            self.assertEqual(shapes[p + "kv_b_proj.weight"], [4 * (32 + 32), 64])

    def test_holds_the_embedding_of_the_target(self):
        entries, payload, _ = read(DSPARK / "model.safetensors")
        begin, end = entries["embed_tokens.weight"]["data_offsets"]
        index = json.loads((TARGET / "model.safetensors.index.json").read_text())["weight_map"]
        name = "language_model.model.embed_tokens.weight"
        raw = (TARGET / index[name]).read_bytes()
        length, = struct.unpack_from("<Q", raw)
        first, last = json.loads(raw[8:8 + length])[name]["data_offsets"]
        self.assertEqual(payload[begin:end], raw[8 + length + first:8 + length + last])

    def test_fits_the_config_of_the_target(self):
        config = json.loads((DSPARK / "config.json").read_text())
        target = json.loads((TARGET / "config.json").read_text())["text_config"]
        for mine, theirs in (("target_hidden_size", "hidden_size"), ("target_num_hidden_layers", "num_hidden_layers"),
                             ("vocab_size", "vocab_size"), ("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")):
            self.assertEqual(config[mine], target[theirs])
        taps = config["target_layer_ids"]
        self.assertTrue(all(a < b for a, b in zip(taps, taps[1:])) and taps[-1] < target["num_hidden_layers"])


class QwenFiles(unittest.TestCase):
    def test_has_eleven_tensors_a_layer_and_no_head(self):
        entries, _, _ = read(QWEN / "model.safetensors")
        config = json.loads((QWEN / "config.json").read_text())
        self.assertEqual(len(entries), 2 + 11 * config["num_hidden_layers"])
        self.assertTrue(config["tie_word_embeddings"])
        self.assertNotIn("lm_head.weight", entries)
        self.assertNotEqual(config["head_dim"] * config["num_attention_heads"], config["hidden_size"])

    def test_every_merge_of_the_tokenizer_makes_a_token(self):
        model = json.loads((QWEN / "tokenizer.json").read_text())["model"]
        made = [merge.split(" ") for merge in model["merges"]]
        self.assertTrue(all(len(pair) == 2 and all(part in model["vocab"] for part in pair) for pair in made))
        self.assertEqual(sorted(model["vocab"].values()), list(range(len(model["vocab"]))))
        self.assertEqual(256 + len(made), len(model["vocab"]))
        self.assertTrue(all("".join(pair) in model["vocab"] for pair in made))

    def test_a_thousand_different_strings_have_known_ids(self):
        cases = json.loads((ROOT / "tests/data/qwen3-nano/encode.json").read_text())
        size = len(json.loads((QWEN / "tokenizer.json").read_text())["model"]["vocab"])
        self.assertEqual(len({case["text"] for case in cases}), 1000)
        self.assertTrue(all(0 <= id_ < size for case in cases for id_ in case["ids"]))


if __name__ == "__main__":
    unittest.main()
