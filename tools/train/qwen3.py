"""Qwen3 in a few lines of PyTorch: the released names and arithmetic, whole sequences, no cache. B = sequences, S =
tokens.
"""

import json
import os

import torch
import torch.nn.functional as F

from safetensors_io import read_safetensors


def shapes(config):
    """Name -> shape of every tensor of a checkpoint with tied embeddings."""
    c = config
    hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    query, shared = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    out = {"model.embed_tokens.weight": (c["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        out.update(
            {
                p + "input_layernorm.weight": (hidden,),
                p + "post_attention_layernorm.weight": (hidden,),
                p + "self_attn.q_proj.weight": (query, hidden),
                p + "self_attn.k_proj.weight": (shared, hidden),
                p + "self_attn.v_proj.weight": (shared, hidden),
                p + "self_attn.o_proj.weight": (hidden, query),
                p + "self_attn.q_norm.weight": (head,),
                p + "self_attn.k_norm.weight": (head,),
                p + "mlp.gate_proj.weight": (inner, hidden),
                p + "mlp.up_proj.weight": (inner, hidden),
                p + "mlp.down_proj.weight": (hidden, inner),
            }
        )
    return out


class Qwen3:
    def __init__(self, config, weights):
        """weights: name -> float32 tensor."""
        self.c, self.w = config, weights

    def _norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w[name + ".weight"]

    def _linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"])

    def _rotate(self, x):
        """x [B, heads, S, d]: element i and element i + d/2 form a pair."""
        width = x.shape[-1]
        frequency = self.c["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64, device=x.device) / width)
        angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64, device=x.device), frequency)
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def _attention(self, x, p):
        batch, length, head = x.shape[0], x.shape[1], self.c["head_dim"]
        q, k, v = (self._linear(x, p + f"{n}_proj").reshape(batch, length, -1, head).transpose(1, 2) for n in "qkv")
        q, k = self._rotate(self._norm(q, p + "q_norm")), self._rotate(self._norm(k, p + "k_norm"))
        group = q.shape[1] // k.shape[1]  # query head j uses key head j // group
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = q @ k.transpose(-1, -2) * head**-0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        out = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return self._linear(out.transpose(1, 2).reshape(batch, length, -1), p + "o_proj")

    def logits(self, ids):
        """ids [B, S] -> logits [B, S, vocabulary]."""
        x = F.embedding(ids, self.w["model.embed_tokens.weight"])
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, p + "input_layernorm"), p + "self_attn.")
            n = self._norm(x, p + "post_attention_layernorm")
            x = x + self._linear(
                F.silu(self._linear(n, p + "mlp.gate_proj")) * self._linear(n, p + "mlp.up_proj"), p + "mlp.down_proj"
            )
        return F.linear(self._norm(x, "model.norm"), self.w["model.embed_tokens.weight"])


def load(folder, device="cpu"):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    return Qwen3(config, {name: tensor.float().to(device) for name, tensor in tensors.items()})
