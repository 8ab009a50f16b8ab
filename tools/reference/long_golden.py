#!/usr/bin/env python3
"""Expected values over a long sequence, computed by the PyTorch reference (k3_reference.py, which is not in this repository).

    python3 tools/reference/long_golden.py --reference DIR_OF_k3_reference.py --model DIR --tokens 400 --out FILE.golden

The sequence: the prompts and answers of expected_greedy.json one after the other where the model folder has enough of them,
else ids drawn with a fixed seed. Written: prompt_ids; rows, some row numbers, and logits of those rows; for each layer N with
experts layers.N.route_ids [tokens, k], ascending inside a row, and layers.N.route_gap [tokens]: by how much the biased score of
the last chosen expert exceeds that of the first one left out. Where that is tiny, another order of summing may choose otherwise.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import torch

EVERY = 16  # rows whose logits are kept, the last one besides


def sequence(folder, config, tokens):
    ids = []
    greedy = folder / "expected_greedy.json"
    if greedy.exists():
        found = json.loads(greedy.read_text())
        for case in found if isinstance(found, list) else [found]:
            ids += case["prompt_ids"] + case["new_ids"]
    if len(ids) < tokens:
        generator = torch.Generator().manual_seed(400)
        ids = torch.randint(0, config["text_config"]["vocab_size"], (tokens,), generator=generator).tolist()
    return ids[:tokens]


def write_safetensors(path, tensors):
    names = {torch.float32: "F32", torch.int64: "I64"}
    header, at = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sys.path.insert(0, str(args.reference))
    import k3_reference

    class WithGaps(k3_reference.K3):
        """Also notes how close each choice of experts was."""

        def route(self, x, layer):
            p = f"model.layers.{layer}.block_sparse_moe.gate."
            biased = torch.sigmoid(x @ self.w(p + "weight").T) + self.w(p + "e_score_correction_bias")
            k = self.c["num_experts_per_token"]
            top = biased.topk(k + 1, -1).values
            self.gaps[layer] = top[:, k - 1] - top[:, k]
            return super().route(x, layer)

    config, tensors = k3_reference.load_checkpoint(str(args.model))
    model = WithGaps(config, tensors)
    model.gaps = {}
    ids = sequence(args.model, config, args.tokens)
    logits = model.logits(ids, k3_reference.Sequence())
    rows = sorted({*range(0, args.tokens, EVERY), args.tokens - 1})
    out = {"prompt_ids": torch.tensor(ids), "rows": torch.tensor(rows), "logits": logits[rows].float()}
    for layer, chosen, _ in model.routes:
        out[f"layers.{layer}.route_ids"] = chosen.sort(-1).values
        out[f"layers.{layer}.route_gap"] = model.gaps[layer].float()
    close = sum(int((gap < 1e-5).sum()) for gap in model.gaps.values())
    print(f"{args.model}: {args.tokens} tokens, {close} choices closer than 1e-5")
    write_safetensors(args.out, out)


if __name__ == "__main__":
    main()
