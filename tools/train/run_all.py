"""Everything in one process on a GPU machine: checks, the target's texts, both drafters, their figures and golden
values.

    python3 tools/train/run_all.py --model models/k3-nano --text text.jsonl --out DIR

Writes DIR/dspark, DIR/qwen, DIR/golden, DIR/report.json and prints a log. Every figure comes from the exported files.
"""

import argparse
import json
import os
import time

import torch

import check
import dspark
import evaluate_dspark
import generate
import golden
import qwen3
import train_dspark
import train_qwen3
from k3_target import Target
from k3_text import K3Text

SIZES = {
    "chat": (12288, 256),
    "long chat": (3072, 512),
    "raw": (4608, 512),
    "long raw": (1024, 1024),
    "short": (6144, 160),
    "text": (1536, 512),
}
SHARES = {"chat": 0.45, "long chat": 0.12, "raw": 0.15, "long raw": 0.05, "short": 0.13, "text": 0.1}
BEGIN = time.time()


def log(*parts):
    print(f"[{time.time() - BEGIN:5.0f}]", *parts, flush=True)


def steps_for(seconds, run):
    """How many steps fit: `run(steps)` is timed on a few after a warm-up."""
    run(20)
    torch.cuda.synchronize()
    begin = time.time()
    run(60)
    torch.cuda.synchronize()
    each = (time.time() - begin) / 60
    steps = int(seconds / each) // 250 * 250
    log(f"{each * 1000:.1f} ms a step: {steps} steps")
    return max(steps, 250)


def checks(folder, text, device):
    errors = check.check_target(folder, device)
    log("target against expected.golden", json.dumps({k: f"{v:.1e}" for k, v in errors.items()}))
    assert all(value < (3e-3 if name.startswith("sum") else 1e-5) for name, value in errors.items())
    fixture = check.check_fixture()
    log("fixture", json.dumps(fixture))
    assert fixture["tokens"] == fixture["tokens expected"] and fixture["h"] < 0.05 and fixture["base logits"] < 0.07
    with open(os.path.join(folder, "expected_greedy.json")) as file:
        for entry in json.load(file):
            chat = entry["kind"] == "chat"
            effort = entry.get("reasoning_effort")
            ids = text.system(effort) + text.turn(entry["user"], effort) if chat else text.encode(entry["prompt"])
            assert ids == entry["prompt_ids"], entry


def make_dspark(args, target, sets, held, config):
    def run(steps, log_=lambda *_: None, **more):
        return train_dspark.train(config, target, sets, SHARES, steps, args.seed, log=log_, **more)

    folder = os.path.join(args.out, "dspark")
    torch.backends.cuda.matmul.allow_tf32 = True
    steps = args.steps or steps_for(args.dspark_seconds, run)
    weights = run(steps, log, save=lambda now: evaluate_dspark.export(folder, config, now, target.embedding))
    torch.backends.cuda.matmul.allow_tf32 = False
    evaluate_dspark.export(folder, config, weights, target.embedding)
    return {"steps": steps, **evaluate_dspark.report(folder, target, held, log)}


def make_qwen(args, target, material, sets, held):
    folder, text = os.path.join(args.out, "qwen"), material.text
    os.makedirs(folder, exist_ok=True)
    pieces = list(train_qwen3.documents(text, sets))
    tokenizer = train_qwen3.train_tokenizer(
        [p for p, _ in pieces[:: len(pieces) // 4000 + 1]] + material.seen["prose"],
        os.path.join(folder, "tokenizer.json"),
    )
    encoded = tokenizer.encode_batch_fast([p for p, _ in pieces], add_special_tokens=False)
    end = [train_qwen3.CONFIG["eos_token_id"]]
    ids = [id_ for one, (_, stopped) in zip(encoded, pieces) for id_ in one.ids + (end if stopped else [])]
    stream = torch.tensor(ids, device=target.device)
    log("qwen tokens", stream.numel())

    def run(steps, log_=lambda *_: None):
        return train_qwen3.train(stream, steps, args.seed, target.device, log=log_)

    torch.backends.cuda.matmul.allow_tf32 = True
    steps = args.steps or steps_for(args.qwen_seconds, run)
    train_qwen3.export(folder, run(steps, log))
    torch.backends.cuda.matmul.allow_tf32 = False
    model, out = qwen3.load(folder, target.device), {"steps": steps, "tokens": stream.numel()}
    for kind in ("raw", "code"):
        out[kind] = train_qwen3.acceptance(model, tokenizer, text, held[kind], 16, 4, args.seed)
        log("qwen", kind, json.dumps(out[kind]))
    out["against transformers"] = against_transformers(folder, tokenizer)
    log("qwen against transformers", json.dumps(out["against transformers"]))
    return out


def against_transformers(folder, tokenizer):
    """Relative error of the short Qwen3's logits against transformers' own, both float32 on the CPU."""
    try:
        import transformers
    except ImportError:
        return "not installed"
    ids = torch.tensor([tokenizer.encode(golden.QWEN_PROMPTS[1] * 4, add_special_tokens=False).ids[:96]])
    theirs = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        expected, got = theirs(ids).logits, qwen3.load(folder).logits(ids)
    return {
        "version": transformers.__version__,
        "relative error": check.relative(got, expected),
        "largest difference": float((got - expected).abs().max()),
        "same argmax": bool((got.argmax(-1) == expected.argmax(-1)).all()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "text", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--dspark-seconds", type=float, default=240)
    parser.add_argument("--qwen-seconds", type=float, default=80)
    parser.add_argument("--steps", type=int, help="exactly so many for both, instead of a time")
    parser.add_argument("--shrink", type=int, default=1, help="divide the amount of text, to try the code")
    parser.add_argument("--max-new", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = K3Text(args.model)
    checks(args.model, text, device)
    with open(os.path.join(args.model, "config.json")) as file:
        config = dspark.pair_config(json.load(file)["text_config"])
    target = Target(args.model, device, config["target_layer_ids"])
    material = generate.Material(args.text, text)
    generator = torch.Generator(device=device).manual_seed(args.seed)
    asked = material.ask_target(target, max(8, 4096 // args.shrink), 6 if args.shrink == 1 else 1, generator)
    log("questions written by the target, about code:", asked)
    held = generate.held_out(target, material, max(4, 128 // args.shrink), args.max_new, args.seed + 1)
    sizes = {kind: (max(8, count // args.shrink), length) for kind, (count, length) in SIZES.items()}
    sets = generate.make_sets(target, material, sizes, 3072, args.seed + 2)
    counts = {kind: sum(int(batch.valid.sum()) for batch in batches) for kind, batches in sets.items()}
    written = {
        kind: sum(int(batch.written.sum()) for batch in batches) for kind, batches in sets.items() if kind != "text"
    }
    log("tokens", json.dumps(counts), "written by the target", json.dumps(written))
    report = {"tokens": counts, "written by the target": written, "questions by the target": asked}
    report["dspark"] = make_dspark(args, target, sets, held, config)
    golden.write_dspark(os.path.join(args.out, "golden"), args.model, os.path.join(args.out, "dspark"))
    report["qwen"] = make_qwen(args, target, material, sets, held)
    golden.write_qwen(os.path.join(args.out, "golden"), os.path.join(args.out, "qwen"))
    with open(os.path.join(args.out, "report.json"), "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    log("done")


if __name__ == "__main__":
    main()
