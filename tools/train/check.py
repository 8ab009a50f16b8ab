"""Checks of the training code against values it did not make: the target's golden file and the drafter's micro fixture.

    python3 tools/train/check.py --model models/k3-nano
"""

import argparse
import os

import torch

import dspark
from k3_target import State, Target
from safetensors_io import read_safetensors


def check_target(folder, device="cpu"):
    """The stepwise target against expected.golden: worst relative error of final rows, tapped sums and logits."""
    golden = read_safetensors(os.path.join(folder, "expected.golden"))
    layers = range(len([name for name in golden if name.endswith(".prefix_sum")]))
    target = Target(folder, device, taps=layers)
    ids = golden["prompt_ids"].tolist() + golden["next_ids"].tolist()
    state, rows, sums = State(1, len(ids)), [], []
    for token in ids:
        row, taps = target.step(state, torch.tensor([token], device=device))
        rows.append(row[0])
        sums.append(taps[0].float().cpu().reshape(len(layers), -1))
    rows = torch.stack(rows)
    logits, prompt = target.logits(rows).cpu(), golden["prompt_ids"].numel()
    worst = {
        "final_norm": relative(rows[:prompt].cpu(), golden["final_norm"]),
        "logits": relative(logits[:prompt], golden["logits"]),
        "next_logits": relative(logits[prompt:], golden["next_logits"]),
    }
    for layer in layers:
        got = torch.stack([row[layer] for row in sums[:prompt]])
        worst[f"sum {layer}"] = relative(got, golden[f"layers.{layer}.prefix_sum"])  # BF16: 2^-8 at worst
    return worst


def relative(got, expected):
    return float((got - expected).norm() / expected.norm())


# -- the micro fixture: a generated model whose expected values are published in the drafting specification ----------

_MASK = (1 << 64) - 1


def _mix(x):
    z = (x + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _uniform(number, shape):
    count = 1
    for extent in shape:
        count *= extent
    values = [(_mix((number << 32) + element) >> 40) / 2**24 - 0.5 for element in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


FIXTURE_CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 4,
    "vocab_size": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "num_target_layers": 2,
    "markov_rank": 4,
    "mask_token_id": 30,
    "rope_parameters": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}


def fixture():
    """(weights, head [32, 16], context rows [1, 3, 32]) of the fixture, all rounded to BF16."""
    shapes, weights = dspark.shapes(FIXTURE_CONFIG), {}
    for number, name in enumerate(sorted(shapes, key=lambda text: text.encode())):
        u = _uniform(number, shapes[name])
        if "norm" in name:
            value = 1 + u / 4
        elif name.startswith("embed_tokens"):
            value = 2 * u
        elif name.endswith("bias"):
            value = u
        else:
            value = 4 * u / shapes[name][-1] ** 0.5
        weights[name] = value.bfloat16().float()
    head = (4 * _uniform(1000, (32, 16)) / 4).bfloat16().float()
    return weights, head, (2 * _uniform(2011, (1, 3, 32))).bfloat16().float()


def check_fixture():
    """Worst differences from the published values: rows of h, base logits; the tokens must be equal."""
    weights, head, taps = fixture()
    model = dspark.DSpark(FIXTURE_CONFIG, weights, weights["embed_tokens.weight"], head, rounding=True, block=4)
    context = model.context(taps)
    hidden = model.hidden(torch.tensor([[14]]), torch.tensor([[3]]), context)
    tokens, logits, confidence = model.propose(torch.tensor([[14]]), hidden)
    expected = torch.tensor(
        [
            [
                -1.3594,
                0.14453,
                0.76562,
                1.4375,
                0.16406,
                -0.73438,
                1.3438,
                0.18652,
                -0.075684,
                2.2031,
                1.0391,
                -0.55078,
                -1.2109,
                -0.44922,
                0.71094,
                1.4375,
            ],
            [
                -0.097656,
                0.37305,
                1.1562,
                0.60938,
                1.1328,
                0.06543,
                1.4922,
                0.24805,
                1.125,
                1.9844,
                -0.33984,
                -0.53906,
                -2.0312,
                -0.75391,
                -0.42773,
                -0.26758,
            ],
        ]
    )
    base = torch.tensor([0.44902, -0.62313, -1.0447, 0.1735, 2.2579, 2.1043])
    latent = torch.tensor([0.46875, -0.85938, 0.21582, 1.9609, 0.65625, 1.2578, -0.75391, -0.4082])
    rope_key = torch.tensor([-0.83984, 1.3984, -1.1719, 1.5312])
    conf = torch.tensor([-0.37695, -0.38086, -0.83203, -0.78906])
    return {
        "tokens": tokens[0, 0].tolist(),
        "tokens expected": [5, 20, 0, 20],
        "h": float((hidden[0, 0][[0, 3]] - expected).abs().max()),
        "base logits": float(((hidden[0, 0, 0] @ head.T)[:6] - base).abs().max()),
        "latent": float((context[0][0][0, 2] - latent).abs().max()),
        "rope key": float((context[1][1][0, 1] - rope_key).abs().max()),
        "confidence": float((confidence[0, 0] - conf).abs().max()),
        "frequencies": dspark.frequencies(FIXTURE_CONFIG).tolist(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    for what, value in {**check_target(args.model), **check_fixture()}.items():
        print(f"{what}: {value}")
