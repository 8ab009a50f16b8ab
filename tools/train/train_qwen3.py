"""Makes the small Qwen3-format drafter: its tokenizer.json, training on what the target wrote, export, acceptance.

The tokenizer needs the `tokenizers` package. The model learns text, not K3 tokens: K3 ids are decoded and encoded anew.
"""

import json
import math
import os
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import qwen3
from safetensors_io import write_safetensors
from scripts_text import SAMPLES

PIECES = 4064  # tokens before the special ones
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": PIECES,
    "eos_token_id": PIECES,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 576,
    "max_position_embeddings": 4096,
    "max_window_layers": 5,
    "model_type": "qwen3",
    "num_attention_heads": 6,
    "num_hidden_layers": 5,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 4096,
}


def train_tokenizer(texts, path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated", False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(list(texts) + SAMPLES * 12, trainer)
    assert tokenizer.get_vocab_size() == PIECES, "too little text for the vocabulary"
    tokenizer.add_special_tokens(list(SPECIALS))
    data = json.loads(tokenizer.to_str())  # from here on spelt as in the release
    data["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    data["model"].update(continuing_subword_prefix="", end_of_word_suffix="")
    data["decoder"].update(add_prefix_space=False, trim_offsets=False, use_regex=False)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, indent=0)
        file.write("\n")
    return Tokenizer.from_file(path)


def documents(text, sets):
    """Texts that the target wrote or read, cut where a special token stands; and whether one ended them.

    Of chats only what the target wrote, without the words of the frame.
    """
    for kind, batches in sets.items():
        for batch in batches:
            chosen = batch.written if "chat" in kind else batch.valid
            for tokens, valid in zip(batch.tokens.tolist(), chosen.tolist()):
                piece = []
                for token, flag in zip(tokens, valid):
                    if flag and token < text.bos:
                        piece.append(token)
                    elif piece:
                        yield from useful(text.decode(piece), flag)
                        piece = []
                if piece:
                    yield from useful(text.decode(piece), False)


def useful(string, stopped):
    if string not in ("message", "response", "think"):
        yield string, stopped


def initial_weights(generator, device):
    weights = {}
    for name, shape in qwen3.shapes(CONFIG).items():
        value = torch.ones(shape) if "norm" in name else torch.randn(shape, generator=generator) * 0.04
        if "o_proj" in name or "down_proj" in name:
            value /= (2 * CONFIG["num_hidden_layers"]) ** 0.5
        weights[name] = value.to(device).requires_grad_()
    return weights


def train(stream, steps, seed, device, batch=128, length=256, peak=2e-3, log=print):
    """stream: one long tensor of ids on the device -> weights by name."""
    generator = torch.Generator().manual_seed(seed)
    weights = initial_weights(generator, device)
    model, begin, mean = qwen3.Qwen3(CONFIG, weights), time.time(), 0.0
    matrices = [w for n, w in weights.items() if "norm" not in n]
    optimiser = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": 0.05},
            {"params": [w for n, w in weights.items() if "norm" in n], "weight_decay": 0.0},
        ],
        lr=peak,
        betas=(0.9, 0.95),
    )
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = peak * min(1, (step + 1) / (0.04 * steps + 1)) * 0.5 * (1 + math.cos(math.pi * step / steps))
        start = torch.randint(stream.numel() - length - 1, (batch, 1), generator=generator).to(device)
        ids = stream[start + torch.arange(length + 1, device=device)]
        logits = model.logits(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        mean += loss.detach()
        if (step + 1) % 500 == 0 or step + 1 == steps:
            log(f"qwen step {step + 1} loss {float(mean) / (step % 500 + 1):.3f} seconds {time.time() - begin:.0f}")
            mean = 0.0
    return {name: tensor.detach() for name, tensor in weights.items()}


def export(folder, weights):
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == qwen3.shapes(CONFIG)
    write_safetensors(
        os.path.join(folder, "model.safetensors"), {n: t.bfloat16() for n, t in weights.items()}, {"format": "pt"}
    )
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(CONFIG, file, indent=1)
        file.write("\n")


@torch.no_grad()
def acceptance(model, tokenizer, text, sequences, places, width, seed):
    """Cross-tokenizer drafts at `places` random places of every sequence: share of first k K3 ids right, k = 1..width.

    As decoding would do it: history to text, text to Qwen ids, greedy continuation, back to text and to K3 ids; a draft
    whose ids do not begin with the history is none, and the last id is dropped, as more text could change it. Raw
    completion only: sequences with a special token in the prompt are left out.
    """
    random_, jobs = random.Random(seed), []
    for tokens, written in zip(sequences.tokens.tolist(), sequences.written.tolist()):
        ids = [index for index, flag in enumerate(written) if flag]
        if not ids or max(tokens[: ids[0]]) >= text.bos:
            continue
        for at in random_.sample(ids[:-1], min(places, max(0, len(ids) - 1))):
            history = tokens[: at + 1]
            string = text.decode(history)
            if max(history) < text.bos and "\ufffd" not in string and text.encode(string) == history:
                jobs.append(
                    (tokenizer.encode(string, add_special_tokens=False).ids, history, tokens[at + 1 : ids[-1] + 1])
                )
            else:
                jobs.append((None, history, tokens[at + 1 : ids[-1] + 1]))
    drafts = greedy(model, [job[0] for job in jobs if job[0]], min(20, width + 2))
    right, offered, drafted, made = [0] * width, [0] * width, 0, iter(drafts)
    for own, history, truth in jobs:
        new = []
        if own:
            again = text.encode(tokenizer.decode(own + next(made), skip_special_tokens=True).rstrip("\ufffd"))
            if again[: len(history)] == history:
                new = again[len(history) :][:-1][:width]
        drafted += len(new)
        for k in range(min(width, len(truth))):
            offered[k] += 1
            if len(new) <= k or new[k] != truth[k]:
                offered[k + 1 :] = [value + (len(truth) > j) for j, value in enumerate(offered[k + 1 :], k + 1)]
                break
            right[k] += 1
    share = [round(a / max(1, b), 3) for a, b in zip(right, offered)]
    return {
        "first k right": share,
        "tokens per verify": round(1 + sum(share), 3),
        "places": len(jobs),
        "no draft": sum(job[0] is None for job in jobs),
        "mean drafted": round(drafted / max(1, len(jobs)), 2),
    }


def greedy(model, prompts, count):
    """Greedy continuations, `count` tokens each; prompts are grouped by length and computed anew for every token."""
    out, order = [None] * len(prompts), {}
    for index, prompt in enumerate(prompts):
        order.setdefault(len(prompt), []).append(index)
    device = model.w["model.norm.weight"].device
    for indices in order.values():
        ids = torch.tensor([prompts[i] for i in indices], device=device)
        for _ in range(count):
            ids = torch.cat([ids, model.logits(ids)[:, -1:].argmax(-1)], 1)
        for index, row in zip(indices, ids[:, -count:].tolist()):
            out[index] = row[: row.index(CONFIG["eos_token_id"])] if CONFIG["eos_token_id"] in row else row
    return out
