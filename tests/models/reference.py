"""A decoder without cache, tree or fusion, in numpy, to compare the library with.

Written from the model descriptions: separate projections per head, a full causal mask, one row.
"""

import math

import numpy as np


def _norm(config, params, x):
    if config.norm == "layer":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_epsilon)
    return x * params["scale"] + params.get("bias", 0.0)


def _rotate(config, x):
    """Pairs (i, i + D/2), the angle of position p and pair i being p / base^(2i/D)."""
    half = config.head_dim // 2
    out = np.empty_like(x)
    for position in range(x.shape[0]):
        for i in range(half):
            angle = position * config.rope_base ** (-2 * i / config.head_dim)
            low, high = x[position, i], x[position, i + half]
            out[position, i] = low * math.cos(angle) - high * math.sin(angle)
            out[position, i + half] = high * math.cos(angle) + low * math.sin(angle)
    return out


def _attention(config, params, x):
    group, out = config.heads // config.kv_heads, 0.0
    bias = params.get("qkv_bias", np.zeros(params["qkv"].shape[:-1]))
    causal = np.tril(np.ones((len(x), len(x)), bool))
    turn = (lambda y: _rotate(config, y)) if config.positions == "rope" else (lambda y: y)
    for head in range(config.heads):
        pair, member = divmod(head, group)
        weight, shift = params["qkv"][pair], bias[pair]
        query = turn(x @ weight[member].T + shift[member])
        key = turn(x @ weight[group].T + shift[group])
        value = x @ weight[group + 1].T + shift[group + 1]
        scores = np.where(causal, query @ key.T / math.sqrt(config.head_dim), -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mean = scores / scores.sum(-1, keepdims=True) @ value
        columns = slice(head * config.head_dim, (head + 1) * config.head_dim)
        out = out + mean @ params["out"][:, columns].T
    return out + params.get("out_bias", 0.0)


def _activate(name, x):
    if name == "relu":
        return np.maximum(x, 0)
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "gelu":
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def _mlp(config, params, x):
    bias = params.get("up_bias", np.zeros(params["up"].shape[:-1]))
    hidden = [x @ weight.T + shift for weight, shift in zip(params["up"], bias, strict=True)]
    mixed = _activate(config.activation, hidden[0])
    if config.gated:
        mixed = mixed * hidden[1]
    return mixed @ params["down"].T + params.get("down_bias", 0.0)


def logits(config, params, tokens):
    """Returns float64[L, V] for int[L] tokens."""
    x = params["embedder"]["embedding"][tokens]
    if config.positions == "learned":
        offset = config.position_offset
        x = x + params["embedder"]["positions"][offset : offset + len(tokens)]
    for i in range(config.layers):
        layer = params[f"layers_{i}"]
        x = x + _attention(config, layer["attention"], _norm(config, layer["attention_norm"], x))
        x = x + _mlp(config, layer["mlp"], _norm(config, layer["mlp_norm"], x))
    x = _norm(config, params["final_norm"], x)
    head = params["embedder"]["embedding"] if config.tied else params["head"]["weight"]
    return x @ head.T
