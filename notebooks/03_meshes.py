# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Where target and drafter live
#
# A target is cut over many chips, since its weights are many; a small draft model is faster on few
# chips than on many, since every layer waits for its all-reduces. So the two need not share a mesh.
# Here are the three placements on eight virtual devices, with what crosses between them counted.

# %%
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import matplotlib

if "ipykernel" not in sys.modules:  # a script has no window to draw in
    matplotlib.use("agg")
import matplotlib.pyplot as plt

from specsample import Engine, Sampling
from specsample.models.config import DecoderConfig
from specsample.models.model import Model
from specsample.models.target import LanguageModel
from specsample.partitioning import Disjoint, Reshaped, Shared


def model(name, seed, layers):
    """A decoder with random weights and heads that four devices can share."""
    config = DecoderConfig(
        vocab_size=64, width=32, layers=layers, heads=4, kv_heads=4, head_dim=8, mlp_dim=64,
        context=64,
    )  # fmt: skip
    network = LanguageModel(config, chunk=16)
    return Model(name, network, network.init_params(jax.random.key(seed)))


target, draft = model("target", 0, layers=1), model("draft", 1, layers=1)
prompts = [[1, 2, 3, 4, 5], [9, 8], [7, 7, 7, 7], [30, 31, 32]]
rows = [Sampling(max_new_tokens=12, temperature=t) for t in (0.0, 0.7, 1.0, 1.0)]

# %% [markdown]
# `Shared` is one mesh: rows over `data`, heads and MLP over `model`. `Reshaped` lays a second mesh
# over the same devices: the drafter is cut over two of them, in two copies. `Disjoint` gives each
# devices of its own, and the host drives two programs.

# %%
placements = {
    "shared": Shared({"data": 2, "model": 4}),
    "reshaped": Reshaped({"data": 2, "model": 4}, {"data": 2, "replica": 2, "model": 2}),
    "disjoint": Disjoint({"data": 2, "model": 2}, {"data": 2, "model": 2}),
    "ahead": Disjoint({"data": 2, "model": 2}, {"data": 2, "model": 2}, ahead=True),
}
resolved = {name: placement.resolve(jax.devices()) for name, placement in placements.items()}


def draw(axes, layout, title):
    """Devices of a mesh by row group and by part of a layer."""
    devices = layout.mesh.devices
    data, replica, parts = devices.shape
    for (row, copy, part), device in [
        ((d, r, m), devices[d, r, m])
        for d in range(data) for r in range(replica) for m in range(parts)
    ]:  # fmt: skip
        column = copy * parts + part
        axes.add_patch(plt.Rectangle((column, -row), 0.9, 0.9, color=f"C{part}", alpha=0.5))
        axes.text(column + 0.45, 0.45 - row, str(device.id), ha="center", va="center")
    axes.set_xlim(-0.1, 8)
    axes.set_ylim(-1.1, 1)
    axes.set_title(title, fontsize=9)
    axes.axis("off")


figure, grid = plt.subplots(3, 2, figsize=(8, 5))
for line, name in zip(grid, ("shared", "reshaped", "disjoint"), strict=True):
    draw(line[0], resolved[name].target, f"{name}: target (colour: part of a layer)")
    draw(line[1], resolved[name].draft, f"{name}: drafter")
figure.tight_layout()

# %% [markdown]
# The same seeds give the same tokens on one device and under every placement.

# %%
plain = Engine(target, "autoregressive", draft=draft, gamma=3)
wanted = [completion.ids for completion in plain.generate(prompts, rows).completions]
engines = {}
for name, placement in resolved.items():
    engines[name] = Engine(target, "autoregressive", draft=draft, placement=placement, gamma=3)
    found = [completion.ids for completion in engines[name].generate(prompts, rows).completions]
    assert found == wanted, name
    print(f"{name:9} {found[2]}")

# %% [markdown]
# What driving two programs takes is counted, not timed: programs started by the host, arrays and
# bytes that cross, steps whose tree had been drafted in time. One program needs none of it.

# %%
for name in ("disjoint", "ahead"):
    traffic = engines[name].programs.traffic
    print(
        f"{name:9} {traffic.steps} steps, {traffic.dispatches / traffic.steps:.1f} programs a step,"
        f" {traffic.transfers / traffic.steps:.1f} arrays and"
        f" {traffic.bytes / traffic.steps / 1024:.1f} KiB a step across, {traffic.ahead} ahead"
    )

# %% [markdown]
# In time: one program alternates between drafting and scoring. Two programs do so too, with a
# crossing in between, unless the drafter guesses ahead, which hides drafting where it is right. The
# lengths below are an example, not a measurement.

# %%
figure, axes = plt.subplots(figsize=(8, 2.6))
score, guess, cross = 4.0, 1.5, 0.3
lanes = {"shared, reshaped": 3, "disjoint: target": 2, "disjoint: drafter": 1, "ahead: target": 0}
lanes |= {"ahead: drafter": -1}
for step in range(3):
    begin = step * (guess + score)
    axes.barh(lanes["shared, reshaped"], guess, left=begin, color="C1", edgecolor="white")
    axes.barh(lanes["shared, reshaped"], score, left=begin + guess, color="C0", edgecolor="white")
    begin = step * (guess + score + 2 * cross)
    axes.barh(lanes["disjoint: drafter"], guess, left=begin, color="C1", edgecolor="white")
    axes.barh(
        lanes["disjoint: target"], score, left=begin + guess + cross, color="C0", edgecolor="white"
    )
    begin = guess + cross + step * (score + 2 * cross)
    axes.barh(lanes["ahead: target"], score, left=begin, color="C0", edgecolor="white")
    axes.barh(lanes["ahead: drafter"], 2 * guess, left=begin, color="C1", edgecolor="white")
axes.barh(lanes["ahead: drafter"], guess, left=0, color="C1", edgecolor="white")
axes.set_yticks(list(lanes.values()), list(lanes))
axes.set_xlabel("time (orange: drafting, blue: scoring)")
figure.tight_layout()
