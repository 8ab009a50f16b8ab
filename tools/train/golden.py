"""Writes the golden values of the two drafters, computed in float32 on the CPU from their exported files.

    python3 tools/train/golden.py --model models/k3-nano --dspark models/k3-nano-dspark --qwen models/qwen3-nano \\
        --out tests/data

OUT/dspark-nano/expected.golden: per prompt P (0..3) `P.prompt_ids`, `P.anchor` (what the target says next), `P.taps`
[positions, taps * H] BF16; and from these taps, with BF16 rounding (`bf16`) and without (`f32`): `P.MODE.latent.L`
and `P.MODE.rope_key.L` (context rows of layer L), `P.MODE.hidden` [7, H], `P.MODE.tokens`, `P.MODE.margins` (logit of
the proposal minus the next best), `P.MODE.confidence` (before the sigmoid), and for prompt 0 `0.MODE.logits` [7,
vocabulary] with the Markov bias. OUT/qwen3-nano/expected.golden: per prompt `P.prompt_ids`, `P.logits`, `P.greedy`,
`P.margins` of the greedy ids. OUT/qwen3-nano/encode.json: [{"text", "ids"}] of the drafter's own tokenizer (needs the
`tokenizers` package).
"""

import argparse
import json
import os

import torch

import evaluate_dspark
import qwen3
import scripts_text
from k3_target import State, Target
from k3_text import K3Text
from safetensors_io import write_safetensors

DSPARK_PROMPTS = (
    "A baby dog is called a puppy. A baby cat is called a kitten. A baby cow is called a calf.",
    "The Constitution of the United States of America shall be the supreme law of the land.",
    "```python\ndef is_even(n):\n    \"\"\"Return True if n is even.\"\"\"\n    return n % 2 == 0\n```",
)
QWEN_PROMPTS = (
    "The capital of Japan is Tokyo. The capital of France is Paris. The capital of Italy is Rome.",
    "It is not down in any map; true places never are. The ship sailed on with the wind behind her.",
    "```python\ndef is_even(n):\n    \"\"\"Return True if n is even.\"\"\"\n    return n % 2 == 0\n```",
)
CHAT = "What is 12 + 30?"


@torch.no_grad()
def dspark_golden(model_folder, draft_folder, device="cpu", rows=16):
    text, out = K3Text(model_folder), {}
    target = Target(model_folder, device, evaluate_dspark.load_config(draft_folder)["target_layer_ids"])
    prompts = [text.encode(prompt)[:rows] for prompt in DSPARK_PROMPTS] + [text.turn(CHAT, None)]
    for number, ids in enumerate(prompts):
        state, taps = State(1, len(ids)), []
        for token in ids:
            row, tapped = target.step(state, torch.tensor([token], device=device))
            taps.append(tapped[0])
        taps, anchor = torch.stack(taps), int(target.logits(row)[0].argmax())
        out.update(
            {
                f"{number}.prompt_ids": torch.tensor(ids),
                f"{number}.anchor": torch.tensor([anchor]),
                f"{number}.taps": taps,
            }
        )
        for mode in ("bf16", "f32"):
            model = evaluate_dspark.load(draft_folder, target, rounding=mode == "bf16")
            context = model.context(taps.unsqueeze(0))
            at, token = torch.tensor([[len(ids)]], device=device), torch.tensor([[anchor]], device=device)
            hidden = model.hidden(token, at, context)
            tokens, logits, confidence = model.propose(token, hidden)
            best = logits[0, 0].topk(2, -1).values
            p = f"{number}.{mode}."
            for layer, (latent, rope_key) in enumerate(context):
                out[p + f"latent.{layer}"], out[p + f"rope_key.{layer}"] = latent[0], rope_key[0]
            out.update(
                {
                    p + "hidden": hidden[0, 0],
                    p + "tokens": tokens[0, 0],
                    p + "margins": best[:, 0] - best[:, 1],
                    p + "confidence": confidence[0, 0],
                }
            )
            if number == 0:
                out[p + "logits"] = logits[0, 0]
    return out


@torch.no_grad()
def qwen_golden(folder, encode, rows=16, new=24):
    """encode: text -> ids of the drafter's own tokenizer."""
    model, out = qwen3.load(folder), {}
    for number, prompt in enumerate(QWEN_PROMPTS):
        ids = encode(prompt)[:rows]
        seen, margins = list(ids), []
        for _ in range(new):
            best = model.logits(torch.tensor([seen]))[0, -1].topk(2)
            seen.append(int(best.indices[0]))
            margins.append(best.values[0] - best.values[1])
        out.update(
            {
                f"{number}.prompt_ids": torch.tensor(ids),
                f"{number}.logits": model.logits(torch.tensor([ids]))[0],
                f"{number}.greedy": torch.tensor(seen[len(ids) :]),
                f"{number}.margins": torch.stack(margins),
            }
        )
    return out


def encode_golden(tokenizer, count=1000, seed=11):
    strings = scripts_text.strings(count, seed)
    lines = [
        json.dumps({"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}) for text in strings
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def write_dspark(out, model_folder, draft_folder):
    folder = os.path.join(out, "dspark-nano")
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "expected.golden"), dspark_golden(model_folder, draft_folder))


def write_qwen(out, qwen_folder):
    from tokenizers import Tokenizer

    tokenizer, folder = Tokenizer.from_file(os.path.join(qwen_folder, "tokenizer.json")), os.path.join(
        out, "qwen3-nano"
    )
    os.makedirs(folder, exist_ok=True)
    write_safetensors(
        os.path.join(folder, "expected.golden"),
        qwen_golden(qwen_folder, lambda text: tokenizer.encode(text, add_special_tokens=False).ids),
    )
    with open(os.path.join(folder, "encode.json"), "w", encoding="utf-8") as file:
        file.write(encode_golden(tokenizer))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dspark")
    parser.add_argument("--qwen")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if args.dspark:
        write_dspark(args.out, args.model, args.dspark)
    if args.qwen:
        write_qwen(args.out, args.qwen)


if __name__ == "__main__":
    main()
