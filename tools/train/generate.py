"""Lets the target write what the drafters learn from, and keeps the rows that it computes on the way.

A sequence follows a script: ids to feed, and marks where the target writes until it stops. So a conversation of
several turns, a raw continuation and a text that is only read are the same thing here.
"""

import dataclasses
import json
import random

import torch

from k3_target import State

WRITE = -1  # in a script: the target writes until a stop id or the end
END = -2  # in a script: the sequence is over
TURNS = (1, 1, 1, 2, 2)  # turns of a short conversation, drawn from
EFFORTS = (None, None, None, "low", "high", "max")


@dataclasses.dataclass
class Sequences:
    tokens: torch.Tensor  # [B, S]
    written: torch.Tensor  # [B, S] the token was written by the target (or is text to be predicted)
    valid: torch.Tensor  # [B, S]
    rows: torch.Tensor  # [B, S, H] float32, final rows: the target's distribution after each token
    taps: torch.Tensor  # [B, S, taps * H] BF16


@torch.no_grad()
def decode(target, scripts, length, temperatures, stops, generator):
    """scripts: lists of ids, WRITE and END; temperatures: one a sequence, 0 is greedy."""
    device, batch = target.device, len(scripts)
    plan = torch.full((batch, max(map(len, scripts)) + 1), END)
    for index, script in enumerate(scripts):
        plan[index, : len(script)] = torch.tensor(script)
    plan, at = plan.to(device), torch.zeros(batch, dtype=torch.long, device=device)
    temperature = torch.tensor(temperatures, device=device, dtype=torch.float32).unsqueeze(1)
    stop = torch.tensor(stops, device=device)
    hidden, width = target.c["hidden_size"], len(target.taps) * target.c["hidden_size"]
    out = Sequences(
        torch.full((batch, length), target.c["pad_token_id"], device=device),
        torch.zeros(batch, length, dtype=torch.bool, device=device),
        torch.zeros(batch, length, dtype=torch.bool, device=device),
        torch.zeros(batch, length, hidden, device=device),
        torch.zeros(batch, length, width, dtype=torch.bfloat16, device=device),
    )
    state, sample = State(batch, length), torch.zeros(batch, dtype=torch.long, device=device)
    for position in range(length):
        order = plan.gather(1, at.unsqueeze(1)).squeeze(1)
        writes, ended = order == WRITE, order == END
        if position % 16 == 0 and bool(ended.all()):
            break
        ids = torch.where(writes, sample, order).masked_fill(ended, target.c["pad_token_id"])
        at += (order >= 0) | (writes & torch.isin(ids, stop))
        out.tokens[:, position], out.written[:, position], out.valid[:, position] = ids, writes, ~ended
        row, taps = target.step(state, ids)
        out.rows[:, position], out.taps[:, position] = row, taps
        logits = target.logits(row)
        noise = -torch.log(
            -torch.log(torch.rand(logits.shape, generator=generator, device=device).clamp(1e-20, 1 - 1e-7))
        )
        sample = torch.where(temperature > 0, logits / temperature.clamp_min(1e-6) + noise, logits).argmax(-1)
    return out


def temperatures(count, random_):
    """Half greedy, half between 0.7 and 1."""
    return [0.0 if random_.random() < 0.5 else random_.uniform(0.7, 1.0) for _ in range(count)]


class Material:
    """The texts of text.jsonl and what the target itself asks, as ids, split into seen and held out."""

    def __init__(self, path, text):
        self.text, self.seen, self.held = text, {}, {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                side = self.held if entry["held"] else self.seen
                side.setdefault(entry["kind"], []).append(entry["text"])
        self.prose = [text.encode(document) for document in self.seen["prose"]]
        self.held_prose = [text.encode(document) for document in self.held["prose"]]

    def ask_target(self, target, batch, rounds, generator):
        """Adds the questions that the target writes when it is given an empty user's message; one in ten is held
        out.
        """
        mine, questions = {q for side in (self.seen, self.held) for q in side["question"] + side["code_question"]}, {}
        for _ in range(rounds):
            out = decode(
                target, [self.text.user_open() + [WRITE]] * batch, 56, [1.0] * batch, [self.text.close], generator
            )
            for tokens, written in zip(out.tokens.tolist(), out.written.tolist()):
                ids = [token for token, flag in zip(tokens, written) if flag]
                if (
                    self.text.close in ids
                    and max(ids[: ids.index(self.text.close)], default=self.text.bos) < self.text.bos
                ):
                    questions[self.text.decode(ids[: ids.index(self.text.close)])] = None
        fresh = [q for q in questions if q not in mine and q.strip() and q.isascii()]
        is_code = [("function" in q or "Python" in q or "code" in q.split()) for q in fresh]
        for index, (question, code) in enumerate(zip(fresh, is_code)):
            side = self.held if index % 10 == 0 else self.seen
            side["code_question" if code else "question"].append(question)
        return len(fresh), sum(is_code)

    # -- scripts ----------------------------------------------------------------------------------

    def chat(self, random_, turns, side=None):
        side = side or self.seen
        effort = random_.choice(EFFORTS)
        script = self.text.system(effort)
        for _ in range(turns):
            kind = "code_question" if random_.random() < 0.2 else "question"
            script = script + self.text.turn(random_.choice(side[kind]), effort) + [WRITE]
        return script + [END]

    def raw(self, random_, documents):
        """32 to 64 tokens from a document, then the target writes; after a stop the next piece follows."""
        script = []
        for _ in range(4):
            ids, size = random_.choice(documents), random_.randint(32, 64)
            start = random_.randint(0, max(0, len(ids) - size))
            script += ids[start : start + size] + [WRITE]
        return script + [END]

    def short(self, random_, side=None):
        """The first tokens of a statement, a paragraph or a function."""
        side, kind = side or self.seen, random_.choice(("statement", "statement", "prose", "code"))
        ids = self.text.encode(random_.choice(side[kind])[:120])
        return ids[: random_.randint(2, 12 if kind != "code" else 24)] + [WRITE, END]

    def reading(self, random_, documents, length):
        """Text that is only read: documents one after the other."""
        script = []
        while len(script) < length:
            ids = random_.choice(documents)
            script += ids[random_.randint(0, len(ids) // 2) :]
        return script[:length] + [END]


def make_sets(target, material, sizes, batch, seed):
    """kind -> list of Sequences. sizes: kind -> (sequences, length)."""
    random_ = random.Random(seed)
    generator = torch.Generator(device=target.device).manual_seed(seed)
    makers = {
        "chat": lambda length: material.chat(random_, random_.choice(TURNS)),
        "long chat": lambda length: material.chat(random_, random_.randint(3, 8)),
        "raw": lambda length: material.raw(random_, material.prose),
        "long raw": lambda length: material.raw(random_, material.prose),
        "short": lambda length: material.short(random_),
        "text": lambda length: material.reading(random_, material.prose, length),
    }
    sets = {}
    for kind, (count, length) in sizes.items():
        for begin in range(0, count, batch):
            scripts = [makers[kind](length) for _ in range(min(batch, count - begin))]
            out = decode(target, scripts, length, temperatures(len(scripts), random_), material.text.stops, generator)
            if kind == "text":
                out.written = out.valid.clone()
            sets.setdefault(kind, []).append(out)
    return sets


def held_out(target, material, count, max_new, seed, kinds=("chat", "raw", "code")):
    """kind -> Sequences: greedy continuations of prompts that training never saw."""
    random_ = random.Random(seed)
    generator = torch.Generator(device=target.device).manual_seed(seed)

    def one_turn(kind):
        effort = random_.choice(EFFORTS)
        return (
            material.text.system(effort)
            + material.text.turn(random_.choice(material.held[kind]), effort)
            + [WRITE, END]
        )

    def code():
        if random_.random() < 0.5:
            return one_turn("code_question")
        ids = material.text.encode(random_.choice(material.held["code"]))
        return ids[: random_.randint(8, 24)] + [WRITE, END]

    def raw():
        return material.raw(random_, material.held_prose)[: random_.randint(32, 64)] + [WRITE, END]

    out = {}
    makers = {"chat": lambda: one_turn("question"), "raw": raw, "code": code}
    for kind in kinds:
        scripts = [makers[kind]() for _ in range(count)]
        scripts = [[i for i in script if i >= 0] + [WRITE, END] for script in scripts]
        length = max(map(len, scripts)) - 2 + max_new
        out[kind] = decode(target, scripts, length, [0.0] * count, material.text.stops, generator)
        start = torch.tensor([len(script) - 2 for script in scripts], device=target.device).unsqueeze(1)
        late = torch.arange(length, device=target.device) >= start + max_new
        out[kind].written &= ~late
    return out
