"""The DSpark block drafter: context rows from the target's tapped rows, seven proposals from one bidirectional block.

One implementation serves training, evaluation and golden values. With `rounding` every operator's output is rounded
to BF16, as the checkpoint is meant to be run; without, it computes in the precision of its inputs.

B = sequences, S = context rows, A = anchors (blocks) of a sequence, K = rows of a block, H = hidden size, N = heads.
"""

import math

import torch
import torch.nn.functional as F

BLOCK = 7  # one anchor and six masks


def shapes(config):
    """Name -> shape of every tensor of a checkpoint."""
    c = config
    hidden, heads, inner = c["hidden_size"], c["num_attention_heads"], c["intermediate_size"]
    nope, rope, wide = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    q_rank, kv_rank, vocabulary, markov = c["q_lora_rank"], c["kv_lora_rank"], c["vocab_size"], c["markov_rank"]
    out = {
        "context_proj.weight": (hidden, c["num_target_layers"] * hidden),
        "context_norm.weight": (hidden,),
        "embed_tokens.weight": (vocabulary, hidden),
        "final_norm.weight": (hidden,),
        "markov_head.markov_w1.weight": (vocabulary, markov),
        "markov_head.markov_w2.weight": (vocabulary, markov),
        "confidence_head.proj.weight": (1, hidden + markov),
        "confidence_head.proj.bias": (1,),
    }
    for layer in range(c["num_hidden_layers"]):
        p = f"layers.{layer}."
        out.update(
            {
                p + "input_layernorm.weight": (hidden,),
                p + "post_attention_layernorm.weight": (hidden,),
                p + "self_attn.q_a_proj.weight": (q_rank, hidden),
                p + "self_attn.q_a_layernorm.weight": (q_rank,),
                p + "self_attn.q_b_proj.weight": (heads * (nope + rope), q_rank),
                p + "self_attn.kv_a_proj_with_mqa.weight": (kv_rank + rope, hidden),
                p + "self_attn.kv_a_layernorm.weight": (kv_rank,),
                p + "self_attn.kv_b_proj.weight": (heads * (nope + wide), kv_rank),
                p + "self_attn.o_proj.weight": (hidden, heads * wide),
                p + "mlp.gate_proj.weight": (inner, hidden),
                p + "mlp.up_proj.weight": (inner, hidden),
                p + "mlp.down_proj.weight": (hidden, inner),
            }
        )
    return out


def frequencies(config):
    """YaRN: rotation per position of each pair, in float64."""
    width, theta, p = config["qk_rope_head_dim"], config["rope_theta"], config["rope_parameters"]

    def correction(turns):
        return width * math.log(p["original_max_position_embeddings"] / (2 * math.pi * turns)) / (2 * math.log(theta))

    low, high = max(math.floor(correction(p["beta_fast"])), 0), min(math.ceil(correction(p["beta_slow"])), width - 1)
    index = torch.arange(width // 2, dtype=torch.float64)
    plain = theta ** (-2 * index / width)
    ramp = ((index - low) / ((high - low) or 0.001)).clamp(0, 1)
    return plain / p["factor"] * ramp + plain * (1 - ramp)


def _magnitude(config, key):
    p = config["rope_parameters"]
    return 0.1 * p[key] * math.log(p["factor"]) + 1 if p["factor"] > 1 else 1.0


class DSpark:
    def __init__(self, config, weights, embedding, head, rounding=False, block=BLOCK):
        """weights: name -> float32 tensor; embedding, head [vocabulary, H]: the target's."""
        self.c, self.w, self.embedding, self.head, self.block = config, weights, embedding, head, block
        self.r = (lambda x: x.bfloat16().float()) if rounding else (lambda x: x)
        self.heads, self.nope, self.rope = (
            config["num_attention_heads"],
            config["qk_nope_head_dim"],
            config["qk_rope_head_dim"],
        )
        self.scale = (self.nope + self.rope) ** -0.5 * _magnitude(config, "mscale_all_dim") ** 2
        self.table_scale = _magnitude(config, "mscale") / _magnitude(config, "mscale_all_dim")
        self.frequency = frequencies(config).to(embedding.device)

    def _norm(self, x, name):
        return self.r(self.r(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])) * self.w[name])

    def _linear(self, x, name):
        return self.r(F.linear(x, self.w[name + ".weight"]))

    def _rotate(self, x, positions):
        """x [..., rope], positions: broadcast over the leading dimensions. Adjacent elements form a pair."""
        angle = positions.double().unsqueeze(-1) * self.frequency
        cos, sin = (angle.cos() * self.table_scale).float(), (angle.sin() * self.table_scale).float()
        a, b = x[..., 0::2], x[..., 1::2]
        return self.r(torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2))

    def _latent(self, x, positions, layer):
        """What a row leaves in the cache: latent [..., kv_lora_rank] and rotated key [..., rope]."""
        p, rank = f"layers.{layer}.self_attn.", self.c["kv_lora_rank"]
        z = self._linear(x, p + "kv_a_proj_with_mqa")
        return self._norm(z[..., :rank], p + "kv_a_layernorm.weight"), self._rotate(z[..., rank:], positions)

    def context(self, taps, first=0):
        """Tapped rows [B, S, taps * H] of positions first.. -> per layer (latent [B, S, rank], rope key [B, S,
        rope]).
        """
        h = self._norm(self._linear(taps.float(), "context_proj"), "context_norm.weight")
        positions = first + torch.arange(taps.shape[1], device=taps.device)
        return [self._latent(h, positions, layer) for layer in range(self.c["num_hidden_layers"])]

    def _attend(self, u, positions, starts, context, layer):
        """u [B, A, K, H]; block a sees the context rows before starts[b, a] and all rows of its own block.

        Keys and values stay latent: the key half of kv_b_proj is applied to the query, the value half to the mixture.
        """
        p, batch, anchors, rows = f"layers.{layer}.self_attn.", *u.shape[:3]
        q = self._linear(self._norm(self._linear(u, p + "q_a_proj"), p + "q_a_layernorm.weight"), p + "q_b_proj")
        q = q.reshape(batch, anchors, rows, self.heads, -1)
        to_key, to_value = (
            self.w[p + "kv_b_proj.weight"]
            .unflatten(0, (self.heads, -1))
            .split([self.nope, self.c["v_head_dim"]], dim=1)
        )  # [N, *, rank]
        turned = self._rotate(q[..., self.nope :], positions.unsqueeze(-1))
        query = torch.cat([self.r(torch.einsum("baknd,ndr->baknr", q[..., : self.nope], to_key)), turned], -1)
        seen, own = context[layer], self._latent(u, positions, layer)
        past = torch.einsum("baknc,bsc->bnaks", query, torch.cat(seen, -1))
        hidden = torch.arange(past.shape[-1], device=u.device) >= starts.unsqueeze(-1)  # [B, A, S]
        past = past.masked_fill(hidden[:, None, :, None], -math.inf)
        block = torch.einsum("baknc,bajc->bnakj", query, torch.cat(own, -1))
        share = self.r((torch.cat([past, block], -1) * self.scale).softmax(-1)).split([past.shape[-1], rows], -1)
        mixed = torch.einsum("bnaks,bsr->baknr", share[0], seen[0]) + torch.einsum(
            "bnakj,bajr->baknr", share[1], own[0]
        )
        out = self.r(torch.einsum("baknr,ndr->baknd", self.r(mixed), to_value))
        return self._linear(out.flatten(-2), p + "o_proj")

    def hidden(self, tokens, starts, context):
        """Anchor tokens and their positions, both [B, A] -> rows h [B, A, K, H]."""
        offsets = torch.arange(self.block, device=tokens.device)
        ids = torch.where(
            offsets == 0, tokens.unsqueeze(-1), torch.tensor(self.c["mask_token_id"], device=tokens.device)
        )
        positions, x = starts.unsqueeze(-1) + offsets, self.embedding[ids]
        total = torch.zeros_like(x)
        for layer in range(self.c["num_hidden_layers"]):
            p = f"layers.{layer}."
            total = self.r(total + x)
            y = self._attend(self._norm(total, p + "input_layernorm.weight"), positions, starts, context, layer)
            total = self.r(total + y)
            v = self._norm(total, p + "post_attention_layernorm.weight")
            gated = self.r(self.r(F.silu(self._linear(v, p + "mlp.gate_proj"))) * self._linear(v, p + "mlp.up_proj"))
            x = self._linear(gated, p + "mlp.down_proj")
        return self._norm(self.r(total + x), "final_norm.weight")

    def scores(self, h, previous):
        """Rows h [..., H] and the tokens before each proposal [...] -> logits [..., vocabulary], confidence logits
        [...].
        """
        e = self.w["markov_head.markov_w1.weight"][previous]
        logits = F.linear(h, self.head) + self.r(F.linear(e, self.w["markov_head.markov_w2.weight"]))
        both = torch.cat([h, e], -1)
        confidence = F.linear(both, self.w["confidence_head.proj.weight"], self.w["confidence_head.proj.bias"])
        return logits, self.r(confidence.squeeze(-1))

    def propose(self, tokens, h):
        """Greedy proposals [B, A, K], their logits [B, A, K, vocabulary] and confidence logits [B, A, K]."""
        drafts, all_logits, all_confidence, previous = [], [], [], tokens
        for row in range(self.block):
            logits, confidence = self.scores(h[:, :, row], previous)
            previous = logits.argmax(-1)
            drafts.append(previous)
            all_logits.append(logits)
            all_confidence.append(confidence)
        return torch.stack(drafts, 2), torch.stack(all_logits, 2), torch.stack(all_confidence, 2)


def initial_weights(config, generator, device):
    """Linear weights 1/sqrt(inputs), smaller where a branch joins the stream; norms 1; no Markov bias at first."""
    weights = {}
    for name, shape in shapes(config).items():
        if name.startswith("embed_tokens"):
            continue
        if "norm" in name:
            value = torch.ones(shape)
        elif name.endswith("bias") or "markov_w2" in name or "confidence" in name:
            value = torch.zeros(shape)
        else:
            value = torch.randn(shape, generator=generator) / (1 if "markov_w1" in name else shape[-1] ** 0.5)
            if "o_proj" in name or "down_proj" in name:
                value /= (2 * config["num_hidden_layers"]) ** 0.5
        weights[name] = value.to(device).requires_grad_()
    return weights


def pair_config(target):
    """The drafter's config for a target of k3-nano's size; every size that depends on the target is the target's."""
    hidden, vocabulary, layers = target["hidden_size"], target["vocab_size"], target["num_hidden_layers"]
    return {
        "architectures": ["K3DSparkModel"],
        "model_type": "k3_dspark",
        "hidden_size": hidden,
        "intermediate_size": 512,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "mla_use_nope": False,
        "mla_use_output_gate": False,
        "vocab_size": vocabulary,
        "draft_vocab_size": vocabulary,
        "rms_norm_eps": 1e-05,
        "max_position_embeddings": 4096,
        "rope_theta": 50000.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "rope_theta": 50000.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        "num_target_layers": 5,
        "target_hidden_size": hidden,
        "target_num_hidden_layers": layers,
        "target_layer_ids": [0, 2, 3, 5, 7],
        "mask_token_id": vocabulary - 3,
        "bos_token_id": target["bos_token_id"],
        "eos_token_id": target["eos_token_id"],
        "pad_token_id": target["pad_token_id"],
        "markov_rank": 32,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "_torchspec_version": "0.1.0",
    }
