#!/usr/bin/env python3
"""Expected logits far behind in a long sequence, computed by the PyTorch reference from a state that is made up.

    /usr/bin/python3 tools/reference/far_golden.py --reference DIR_OF_k3_reference.py --model DIR --position 1048570 --out FILE

Reading a million tokens would take days, so the sequence begins in the middle: every number of its state comes from made_up(),
which tests/model/far_position_test.cc computes too. Written: position, prompt_ids (drawn with a fixed seed), logits [ids, vocabulary].
"""

import argparse
import sys
from pathlib import Path

import torch

from long_golden import write_safetensors

IDS = 6
MASK = 0xFFFFFFFF


def made_up(rows, columns, salt):
    """[rows, columns] in [-1, 1): a 32-bit mix of row, column and salt."""
    row = torch.arange(rows, dtype=torch.int64).unsqueeze(1)
    column = torch.arange(columns, dtype=torch.int64).unsqueeze(0)
    h = (row * 0x9E3779B1 + column * 0x85EBCA6B + salt * 0xC2B2AE35) & MASK
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & MASK
    h = ((h ^ (h >> 15)) * 0x846CA68B) & MASK
    h ^= h >> 16
    return (h >> 8).to(torch.float32) * 2.0 ** -23 - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--position", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sys.path.insert(0, str(args.reference))
    import k3_reference

    config, tensors = k3_reference.load_checkpoint(str(args.model))
    model = k3_reference.K3(config, tensors)
    c, linear = config["text_config"], config["text_config"]["linear_attn_config"]
    heads, width = linear["num_heads"], linear["head_dim"]
    rank, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
    seq = k3_reference.Sequence()
    seq.position = args.position
    full = {i - 1 for i in linear["full_attn_layers"]}
    for layer in range(c["num_hidden_layers"]):
        if layer in full:
            latents = made_up(args.position, rank + rope, 100 + layer)
            seq.latent[layer], seq.rope_key[layer] = latents[:, :rank].contiguous(), latents[:, rank:].contiguous()
        else:
            seq.recurrent[layer] = made_up(heads * width, width, 200 + layer).reshape(heads, width, width)
            for i, which in enumerate("qkv"):
                seq.conv[(layer, which)] = made_up(linear["short_conv_kernel_size"] - 1, heads * width, 300 + 3 * layer + i)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, c["vocab_size"], (IDS,), generator=generator)
    logits = model.logits(ids.tolist(), seq)
    write_safetensors(args.out, {"position": torch.tensor([args.position]), "prompt_ids": ids, "logits": logits.float()})


if __name__ == "__main__":
    main()
