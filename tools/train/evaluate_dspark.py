"""Measures a drafter from its exported file: held-out prompts, greedy text of the target, the anchor moving as a
decoder would.

A verify pass takes n drafts after the pending token and emits the accepted ones and one token of the target's own.

    python3 tools/train/evaluate_dspark.py --model models/k3-nano --dspark models/k3-nano-dspark --text text.jsonl

uses only held-out texts of text.jsonl, which are the same everywhere; run_all.py adds questions that the target wrote.
"""

import argparse
import json
import os

import torch

import dspark
import generate
from k3_target import Target
from k3_text import K3Text
from safetensors_io import read_safetensors, write_safetensors


def export(folder, config, weights, embedding):
    os.makedirs(folder, exist_ok=True)
    tensors = {name: tensor.detach().bfloat16() for name, tensor in weights.items()}
    tensors["embed_tokens.weight"] = embedding.bfloat16()
    expected = dspark.shapes(config)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == expected, "tensors differ from the config"
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors, {"torchspec_version": "0.1.0"})
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")


def load_config(folder):
    with open(os.path.join(folder, "config.json")) as file:
        return json.load(file)


def load(folder, target, rounding=True):
    config = load_config(folder)
    tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    weights = {name: tensor.float().to(target.device) for name, tensor in tensors.items()}
    return dspark.DSpark(config, weights, target.embedding, target.head, rounding=rounding)


@torch.no_grad()
def proposals(model, sequences, group=16):
    """Greedy proposals [B, S, K] with every token as the anchor, and confidences [B, S, K]."""
    drafts, sure = [], []
    batch, length = sequences.tokens.shape
    for begin in range(0, batch, group):
        tokens = sequences.tokens[begin : begin + group]
        context = model.context(sequences.taps[begin : begin + group])
        rows = [[], []]
        for start in range(0, length, 64):
            anchors = torch.arange(start, min(start + 64, length), device=tokens.device).expand(tokens.shape[0], -1)
            own = tokens[:, start : start + 64]
            draft, _, confidence = model.propose(own, model.hidden(own, anchors, context))
            rows[0].append(draft)
            rows[1].append(confidence.sigmoid())
        drafts.append(torch.cat(rows[0], 1))
        sure.append(torch.cat(rows[1], 1))
    return torch.cat(drafts).cpu(), torch.cat(sure).cpu()


def walk(tokens, written, drafts, width):
    """One sequence: (verify passes, emitted tokens, right[k], offered[k]) with `width` drafts a pass."""
    passes, emitted, right, offered = 0, 0, [0] * width, [0] * width
    places = [index for index, flag in enumerate(written) if flag]
    if not places:
        return passes, emitted, right, offered
    at, last = places[0], places[-1]
    while at < last:
        accepted = 0
        for k in range(min(width, last - at)):
            offered[k] += 1
            if accepted == k and drafts[at][k] == tokens[at + 1 + k]:
                accepted += 1
                right[k] += 1
        step = min(accepted + 1, last - at)
        passes, emitted, at = passes + 1, emitted + step, at + step
    return passes, emitted, right, offered


def acceptance(model, sequences, widths=(1, 2, 3, 4, 5, 6, 7)):
    """{"tokens per verify": {width: figure}, "first k right": [...] at full width, "passes", "tokens",
    "confidence"}.
    """
    drafts, sure = proposals(model, sequences)
    tokens, written, drafted = sequences.tokens.tolist(), sequences.written.tolist(), drafts.tolist()
    out = {"tokens per verify": {}}
    for width in widths:
        total = [walk(*row, width) for row in zip(tokens, written, drafted)]
        passes, emitted = sum(row[0] for row in total), sum(row[1] for row in total)
        out["tokens per verify"][width] = round(emitted / max(1, passes), 3)
        if width == widths[-1]:
            right = [sum(row[2][k] for row in total) for k in range(width)]
            offered = [sum(row[3][k] for row in total) for k in range(width)]
            out.update(
                {
                    "first k right": [round(a / max(1, b), 3) for a, b in zip(right, offered)],
                    "passes": passes,
                    "tokens": emitted,
                }
            )
    hit = drafts[:, :-1, 0].eq(sequences.tokens[:, 1:].cpu()).float()
    here = (sequences.written[:, :-1] & sequences.written[:, 1:]).cpu()
    out["confidence of position 1"] = {
        "mean": round(float(sure[:, :-1, 0][here].mean()), 3),
        "right": round(float(hit[here].mean()), 3),
    }
    return out


def report(folder, target, held_out, log=print):
    """The table of the README, with two checks that must be clearly worse."""
    model, table = load(folder, target), {}
    for kind, sequences in held_out.items():
        table[kind] = acceptance(model, sequences)
        log(kind, json.dumps(table[kind]))
    model.w = {**model.w, "markov_head.markov_w2.weight": torch.zeros_like(model.w["markov_head.markov_w2.weight"])}
    table["chat, no Markov bias"] = acceptance(model, held_out["chat"], (7,))
    model = load(folder, target)
    parts = model.w["context_proj.weight"].chunk(len(target.taps), 1)
    model.w = {**model.w, "context_proj.weight": torch.cat(parts[::-1], 1)}
    table["chat, taps reversed"] = acceptance(model, held_out["chat"], (7,))
    for kind in ("chat, no Markov bias", "chat, taps reversed"):
        log(kind, json.dumps(table[kind]))
    return table


def by_position(model, sequences, edges):
    """Tokens per verify with 7 drafts, and the share of first drafts that are right, for pending tokens in [edge,
    next edge).
    """
    drafts, tokens, out = proposals(model, sequences)[0].tolist(), sequences.tokens.tolist(), {}
    for low, high in zip(edges, edges[1:]):
        inside = sequences.written.clone()
        inside[:, :low], inside[:, high:] = False, False
        total = [walk(*row, 7) for row in zip(tokens, inside.tolist(), drafts)]
        passes = sum(row[0] for row in total)
        if passes:
            right = sum(row[2][0] for row in total) / sum(row[3][0] for row in total)
            out[f"{low}..{high}"] = {
                "tokens per verify": round(sum(row[1] for row in total) / passes, 3),
                "first right": round(right, 3),
                "passes": passes,
            }
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "dspark", "text"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--max-new", type=int, default=256)
    parser.add_argument(
        "--long", type=int, default=0, help="also continue raw prompts for so many tokens and report by position"
    )
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = K3Text(args.model)
    target = Target(args.model, device, load_config(args.dspark)["target_layer_ids"])
    material = generate.Material(args.text, text)
    report(args.dspark, target, generate.held_out(target, material, args.prompts, args.max_new, 2))
    if args.long:
        sequences = generate.held_out(target, material, args.prompts // 2, args.long, 3, kinds=("raw",))["raw"]
        print(
            "raw by position",
            json.dumps(by_position(load(args.dspark, target), sequences, (0, 256, 512, 1024, 1536, 2048, 4096))),
        )


if __name__ == "__main__":
    main()
