"""A K3 text model that decodes many sequences at once, one token of each per step, in float32.

The arithmetic is that of the engine: MXFP4 experts are dequantised, everything else is BF16 weights with float32
activations. A step also returns the rows that a DSpark drafter reads: the running sum of the residual stream as it
leaves each tapped layer, rounded to BF16. All experts are evaluated and masked: at this size that is faster than
gathering them.

B = sequences, H = hidden size, h = heads, d = head size, E = experts, F = expert width, L = expert input width.
"""

import json
import os

import torch
import torch.nn.functional as F

from safetensors_io import read_safetensors

_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def dequantise(packed, scale):
    """packed [rows, columns / 2] (low nibble first), scale [rows, columns / 32] (powers of two) -> [rows, columns]."""
    nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(packed.shape[0], -1)
    return _E2M1[nibbles.long()] * torch.exp2(scale.float() - 127).repeat_interleave(32, dim=-1)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class State:
    """What a batch of sequences carries from step to step."""

    def __init__(self, batch, capacity):
        self.batch, self.capacity, self.length = batch, capacity, 0
        self.conv, self.recurrent, self.key, self.value = {}, {}, {}, {}


class Target:
    def __init__(self, folder, device="cpu", taps=()):
        with open(os.path.join(folder, "config.json")) as file:
            self.c = json.load(file)["text_config"]
        self.device, self.taps, self.eps = device, tuple(taps), self.c["rms_norm_eps"]
        self.full = {index - 1 for index in self.c["linear_attn_config"]["full_attn_layers"]}  # the config is 1-based
        raw = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                raw.update(read_safetensors(os.path.join(folder, name)))
        self.w = {}
        for name, tensor in raw.items():
            short = name.replace("language_model.", "", 1)
            if name.startswith("language_model.") and ".experts." not in name:
                self.w[short.replace(".weight", "")] = tensor.float().to(device)
        for layer in range(self.c["num_hidden_layers"]):
            self._prepare(raw, layer)
        self.embedding, self.head = self.w["model.embed_tokens"], self.w["lm_head"]

    def _prepare(self, raw, layer):
        p = f"model.layers.{layer}."
        if layer not in self.full:
            self.w[p + "qkv"] = torch.cat([self.w[p + f"self_attn.{n}_proj"] for n in "qkv"])
            self.w[p + "conv"] = torch.cat(
                [self.w[p + f"self_attn.{n}_conv1d"].reshape(-1, self._kernel()) for n in "qkv"]
            )
        if layer < self.c["first_k_dense_replace"]:
            return
        experts = {which: [] for which in ("w1", "w2", "w3")}
        for index in range(self.c["num_experts"]):
            for which, matrices in experts.items():
                name = f"language_model.{p}block_sparse_moe.experts.{index}.{which}."
                matrices.append(dequantise(raw[name + "weight_packed"], raw[name + "weight_scale"]))
        self.w[p + "w1"] = torch.cat(experts["w1"]).to(self.device)  # [E * F, L]
        self.w[p + "w3"] = torch.cat(experts["w3"]).to(self.device)
        self.w[p + "w2"] = torch.cat(experts["w2"], dim=1).to(self.device)  # [L, E * F]

    def _kernel(self):
        return self.c["linear_attn_config"]["short_conv_kernel_size"]

    def _situ(self, gate, up):
        beta, linear = self.c["activation_situ_beta"], self.c["activation_situ_linear_beta"]
        return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * (linear * torch.tanh(up / linear))

    def _residual(self, total, blocks, name):
        """AttnRes: a softmax over the earlier blocks and the running sum. All [B, H]."""
        stack = torch.stack(blocks + [total], dim=1)
        keys = stack * torch.rsqrt(stack.pow(2).mean(-1, keepdim=True) + self.eps)
        scores = keys @ (self.w[name + "_norm"] * self.w[name + "_proj"].reshape(-1))
        return (scores.softmax(-1).unsqueeze(-1) * stack).sum(1)

    def _kda(self, x, layer, state):
        c, p = self.c["linear_attn_config"], f"model.layers.{layer}.self_attn."
        batch, heads, width = x.shape[0], c["num_heads"], c["head_dim"]
        if state.length == 0:
            state.conv[layer] = x.new_zeros(batch, self._kernel() - 1, 3 * heads * width)
            state.recurrent[layer] = x.new_zeros(batch * heads, width, width)
        row = x @ self.w[f"model.layers.{layer}.qkv"].T
        seen = torch.cat([state.conv[layer], row.unsqueeze(1)], dim=1)  # [B, kernel, 3hd]
        state.conv[layer] = seen[:, 1:]
        mixed = F.silu((seen * self.w[f"model.layers.{layer}.conv"].T).sum(1))
        q, k, v = mixed.reshape(batch, 3, heads, width).unbind(1)
        q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * width**-0.5
        k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
        rate = self.w[p + "A_log"][:heads].exp().reshape(1, heads, 1)  # one value per head
        gate = (x @ self.w[p + "f_a_proj"].T @ self.w[p + "f_b_proj"].T).reshape(batch, heads, width)
        decay = (
            c["gate_lower_bound"] * torch.sigmoid(rate * (gate + self.w[p + "dt_bias"].reshape(1, heads, -1)))
        ).exp()
        beta = torch.sigmoid(x @ self.w[p + "b_proj"].T).unsqueeze(-1)
        s = state.recurrent[layer].mul_(decay.reshape(-1, width, 1))
        old = torch.bmm(k.reshape(-1, 1, width), s)
        s.baddbmm_((beta * k).reshape(-1, width, 1), v.reshape(-1, 1, width) - old)
        o = torch.bmm(q.reshape(-1, 1, width), s).reshape(batch, heads, width)
        o = rms_norm(o, self.w[p + "o_norm"], self.eps).reshape(batch, -1) * torch.sigmoid(x @ self.w[p + "g_proj"].T)
        return o @ self.w[p + "o_proj"].T

    def _mla(self, x, layer, state):
        c, p = self.c, f"model.layers.{layer}.self_attn."
        batch, heads = x.shape[0], c["num_attention_heads"]
        nope, rope, wide, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        if state.length == 0:
            state.key[layer] = x.new_empty(batch * heads, state.capacity, nope + rope)
            state.value[layer] = x.new_empty(batch * heads, state.capacity, wide)
        q = rms_norm(x @ self.w[p + "q_a_proj"].T, self.w[p + "q_a_layernorm"], 1e-6) @ self.w[p + "q_b_proj"].T
        both = x @ self.w[p + "kv_a_proj_with_mqa"].T
        latent = rms_norm(both[:, :rank], self.w[p + "kv_a_layernorm"], 1e-6)
        kv = (latent @ self.w[p + "kv_b_proj"].T).reshape(batch, heads, nope + wide)
        shared = both[:, rank:].unsqueeze(1).expand(-1, heads, -1)
        state.key[layer][:, state.length] = torch.cat([kv[..., :nope], shared], -1).reshape(batch * heads, -1)
        state.value[layer][:, state.length] = kv[..., nope:].reshape(batch * heads, -1)
        keys, values = state.key[layer][:, : state.length + 1], state.value[layer][:, : state.length + 1]
        scores = torch.bmm(q.reshape(batch * heads, 1, -1), keys.transpose(1, 2)) * (nope + rope) ** -0.5
        o = torch.bmm(scores.softmax(-1), values).reshape(batch, -1) * torch.sigmoid(x @ self.w[p + "g_proj"].T)
        return o @ self.w[p + "o_proj"].T

    def _mlp(self, x, p):
        return self._situ(x @ self.w[p + "gate_proj"].T, x @ self.w[p + "up_proj"].T) @ self.w[p + "down_proj"].T

    def _moe(self, x, layer):
        p = f"model.layers.{layer}."
        moe = p + "block_sparse_moe."
        scores = torch.sigmoid(x @ self.w[moe + "gate"].T)
        chosen = (
            (scores + self.w[moe + "gate.e_score_correction_bias"]).topk(self.c["num_experts_per_token"], -1).indices
        )
        weight = scores.gather(1, chosen)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * self.c["routed_scaling_factor"]
        dense = torch.zeros_like(scores).scatter_(1, chosen, weight)  # [B, E]
        latent = x @ self.w[moe + "routed_expert_down_proj"].T
        a = self._situ(latent @ self.w[p + "w1"].T, latent @ self.w[p + "w3"].T)  # [B, E * F]
        a = (a.reshape(x.shape[0], dense.shape[1], -1) * dense.unsqueeze(-1)).reshape(x.shape[0], -1)
        mixed = rms_norm(a @ self.w[p + "w2"].T, self.w[moe + "routed_expert_norm"], self.eps)
        return mixed @ self.w[moe + "routed_expert_up_proj"].T + self._mlp(x, moe + "shared_experts.")

    @torch.no_grad()
    def step(self, state, ids):
        """ids [B] -> final rows [B, H] in float32 and tapped rows [B, taps * H] in BF16."""
        total, blocks, captured = self.embedding[ids], [], []
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            x = self._residual(total, blocks, p + "self_attention_res") if blocks else total
            opens = layer % self.c["attn_res_block_size"] == 0
            if opens:
                blocks.append(total)
            x = rms_norm(x, self.w[p + "input_layernorm"], self.eps)
            attention = self._mla(x, layer, state) if layer in self.full else self._kda(x, layer, state)
            total = attention if opens else total + attention
            x = rms_norm(self._residual(total, blocks, p + "mlp_res"), self.w[p + "post_attention_layernorm"], self.eps)
            dense = layer < self.c["first_k_dense_replace"]
            total = total + (self._mlp(x, p + "mlp.") if dense else self._moe(x, layer))
            if layer in self.taps:
                captured.append(total)
        x = self._residual(total, blocks, "model.output_attn_res")
        state.length += 1
        rows = torch.cat(captured, -1).bfloat16() if captured else None
        return rms_norm(x, self.w["model.norm"], self.eps), rows

    def logits(self, rows):
        return rows @ self.head.T
