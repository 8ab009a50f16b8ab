"""Trains a DSpark drafter on sequences that the target wrote, against the target's own distributions.

Per step: some sequences, 32 anchors in each, a block of seven rows at every anchor. Row k is scored against the
target's distribution at position p + k; the token before it is the true one. The target, its embedding and its head
stay as they are.
"""

import math
import time

import torch
import torch.nn.functional as F

import dspark

ANCHORS = 32
DECAY = 4.0  # weight of row k: exp(-k / DECAY)


class Sampler:
    """Draws sequences of one set (equal length) and anchors in them."""

    def __init__(self, sets, shares, count, generator):
        """sets: kind -> list of Sequences; shares: kind -> probability; count: sequences a step."""
        self.generator, self.count, self.batches, weight = generator, count, [], []
        for kind, batches in sets.items():
            for batch in batches:
                start = candidates(batch)
                usable = start.any(1).nonzero().squeeze(1)
                if usable.numel():
                    self.batches.append((batch, start, usable))
                    weight.append(shares[kind] / len(batches))
        self.weight = torch.tensor(weight)

    def draw(self):
        batch, start, usable = self.batches[int(torch.multinomial(self.weight, 1, generator=self.generator))]
        pick = usable[torch.randint(usable.numel(), (self.count,), generator=self.generator).to(usable.device)]
        return batch, pick, torch.multinomial(start[pick].float(), ANCHORS, replacement=True)


def candidates(batch):
    """[B, S]: a token that was written and is followed by another one, with some context before it."""
    start = batch.written & F.pad(batch.written[:, 1:], (0, 1))
    start[:, :4] = False
    return start


def gather(batch, pick, anchors, rows):
    """Of the drawn sequences: taps, anchor tokens, labels, tokens before the labels, validity [b, A, K], final rows."""
    tokens, written = batch.tokens[pick], batch.written[pick]
    position = anchors.unsqueeze(-1) + torch.arange(rows + 1, device=tokens.device)  # [b, A, K + 1]
    inside = position < tokens.shape[1]
    position = position.clamp(max=tokens.shape[1] - 1)
    flat = position.flatten(1)
    taken = tokens.gather(1, flat).reshape(position.shape)
    valid = (written.gather(1, flat).reshape(position.shape) & inside)[..., 1:].long().cumprod(-1).bool()
    index = position[..., :-1].flatten(1).unsqueeze(-1).expand(-1, -1, batch.rows.shape[-1])
    final = batch.rows[pick].gather(1, index).reshape(*position[..., :-1].shape, -1)
    return batch.taps[pick], taken[..., 0], taken[..., 1:], taken[..., :-1], valid, final


def loss_of(model, target, drawn, anchors):
    taps, tokens, labels, previous, valid, final = drawn
    h = model.hidden(tokens, anchors, model.context(taps))
    logits, confidence = model.scores(h, previous)
    log_draft = logits.log_softmax(-1)
    with torch.no_grad():
        wanted = target.logits(final).softmax(-1)
    distance = (log_draft.exp() - wanted).abs().sum(-1)  # 0 .. 2
    entropy = -log_draft.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    agreement = (1 - distance / 2).detach()  # how often sampled drafting would accept
    sure = F.binary_cross_entropy_with_logits(confidence, agreement.clamp(0, 1), reduction="none")
    weight = torch.exp(-torch.arange(model.block, device=h.device) / DECAY) * valid
    loss = ((0.1 * entropy + 0.9 * distance + sure) * weight).sum() / weight.sum()
    return loss, (agreement * valid).sum((0, 1)) / valid.sum((0, 1)).clamp_min(1)


def train(config, target, sets, shares, steps, seed, peak=2e-3, batch=128, log=print, weights=None, save=None):
    """-> weights by name (float32). `save(weights)` is called now and then."""
    torch.manual_seed(seed)
    sampler = Sampler(sets, shares, batch, torch.Generator().manual_seed(seed))
    weights = weights or dspark.initial_weights(config, torch.Generator().manual_seed(seed), target.device)
    model = dspark.DSpark(config, weights, target.embedding, target.head)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=peak, betas=(0.9, 0.95), weight_decay=0.0)
    begin, agreement, seen = time.time(), 0, 0
    for step in range(steps):
        rate = min(1, (step + 1) / (0.04 * steps + 1)) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = peak * rate
        source, pick, anchors = sampler.draw()
        loss, by_row = loss_of(model, target, gather(source, pick, anchors, model.block), anchors)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        agreement, seen = agreement + by_row.detach(), seen + 1
        if (step + 1) % 250 == 0 or step + 1 == steps:
            rows = " ".join(f"{value:.3f}" for value in (agreement / seen).tolist())
            log(f"step {step + 1} loss {loss.item():.3f} agreement by row {rows} seconds {time.time() - begin:.0f}")
            agreement, seen = 0, 0
        if save and (step + 1) % 5000 == 0:
            save(weights)
    return {name: tensor.detach() for name, tensor in weights.items()}
