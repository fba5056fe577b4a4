"""Transformers without cache, tree or fusion, in numpy, to compare the library with.

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


def _bucket(config, back, both_ways):
    """T5's buckets, from the paper's words: half of them exact, the others logarithmic."""
    count, first = config.relative_buckets, 0
    if both_ways:
        count //= 2
        first, back = (count, -back) if back < 0 else (0, back)
    back = max(back, 0)
    if back < count // 2:
        return first + back
    share = math.log(back / (count // 2)) / math.log(config.relative_distance / (count // 2))
    return first + min(count - 1, count // 2 + int(share * (count - count // 2) + 1e-7))


def _table(config, params, size, both_ways):
    """[H, size, size] of biases, zero for models without them."""
    if config.positions != "relative":
        return np.zeros((config.heads, size, size))
    index = [[_bucket(config, i - j, both_ways) for j in range(size)] for i in range(size)]
    return params["relative"]["bias"][:, np.array(index)]


def _attention(config, params, x, seen, table):
    group, out = config.heads // config.kv_heads, 0.0
    bias = params.get("qkv_bias", np.zeros(params["qkv"].shape[:-1]))
    scale = math.sqrt(config.head_dim) if config.scaled_queries else 1.0
    turn = (lambda y: _rotate(config, y)) if config.positions == "rope" else (lambda y: y)
    for head in range(config.heads):
        pair, member = divmod(head, group)
        weight, shift = params["qkv"][pair], bias[pair]
        query = turn(x @ weight[member].T + shift[member])
        key = turn(x @ weight[group].T + shift[group])
        value = x @ weight[group + 1].T + shift[group + 1]
        mean = _mean(query @ key.T / scale + table[head], seen, value)
        columns = slice(head * config.head_dim, (head + 1) * config.head_dim)
        out = out + mean @ params["out"][:, columns].T
    return out + params.get("out_bias", 0.0)


def _mean(scores, seen, value):
    scores = np.where(seen, scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True) @ value


def _cross(config, params, x, encoded):
    means = []
    for query, (key, value) in zip(params["query"], params["key_value"], strict=True):
        scores = (x @ query.T) @ (encoded @ key.T).T
        means.append(_mean(scores, True, encoded @ value.T))
    return np.concatenate(means, -1) @ params["out"].T


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


def _layers(config, params, count, x, seen, both_ways, encoded=None):
    for i in range(count):
        layer = params[f"layers_{i}"]
        owner = layer if config.relative_per_layer else params
        table = _table(config, owner, len(x), both_ways)
        normed = _norm(config, layer["attention_norm"], x)
        x = x + _attention(config, layer["attention"], normed, seen, table)
        if encoded is not None:
            normed = _norm(config, layer["cross_norm"], x)
            x = x + _cross(config, layer["cross"], normed, encoded)
        x = x + _mlp(config, layer["mlp"], _norm(config, layer["mlp_norm"], x))
    return _norm(config, params["final_norm"], x)


def logits(config, params, tokens, inputs=None):
    """Returns float64[L, V] for int[L] tokens, and int[I] inputs of an encoder."""
    embedding, encoded = params["embedder"]["embedding"], None
    if inputs is not None:
        seen, encoder = np.ones((len(inputs),) * 2, bool), params["encoder"]
        encoded = _layers(
            config, encoder, config.encoder_layers, embedding[inputs], seen, both_ways=True
        )
    x = embedding[tokens]
    if config.positions == "learned":
        offset = config.position_offset
        x = x + params["embedder"]["positions"][offset : offset + len(tokens)]
    causal = np.tril(np.ones((len(x), len(x)), bool))
    x = _layers(config, params, config.layers, x, causal, False, encoded)
    if config.scaled_head:
        x = x / math.sqrt(config.width)
    head = embedding if config.tied else params["head"]["weight"]
    return x @ head.T
