"""Heads are copied and vocabularies padded so that a mesh can cut them; logits stay."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import checkpoints
from specsample.models import refit
from specsample.models.model import Model
from specsample.models.target import LanguageModel
from specsample.partitioning import Shared, states

from ..models import flavours
from . import subjects


def fitted(config, params, parts):
    new = refit.refit(config, parts)
    return LanguageModel(new, chunk=4), refit.refit_params(config, new, params)


@pytest.mark.parametrize("name", ["llama-tied", "llama-untied", "qwen2"])
@pytest.mark.parametrize("scanned", [False, True])
def test_a_refitted_model_has_the_same_logits(name, scanned):
    config = flavours.CONFIGS[name]
    model, params = flavours.build(config)
    tokens = flavours.tokens(5, 2, 6)
    tree = flavours.tree(tokens, tuple(range(-1, 5)))
    cache = model.init(params, flavours.prompt(2), 8)
    wanted = flavours.score(model, params, cache, tree).logits
    if scanned:
        config = dataclasses.replace(config, scanned=True)
        params = checkpoints.stack_layers(params)
    other, changed = fitted(config, params, 4)  # two heads become four; 29 ids become 32 rows
    assert other.config.kv_heads == 4 and other.config.vocab_rows == 32
    assert jax.tree.map(jnp.shape, changed) == jax.tree.map(
        lambda leaf: leaf.shape, other.abstract_params()
    )
    cache = other.init(changed, flavours.prompt(2), 8)
    found = flavours.score(other, changed, cache, tree).logits
    assert found.shape[-1] == 29
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_an_mlp_is_padded_to_whole_tiles_where_that_costs_little():
    wide = dataclasses.replace(subjects.CONFIG, heads=16, mlp_dim=22016)
    assert refit.refit(wide, 16).mlp_dim == 16 * 1408
    assert refit.refit(dataclasses.replace(wide, mlp_dim=11008), 16).mlp_dim == 11008
    assert refit.refit(wide, 1) == wide


@pytest.mark.parametrize("name", flavours.CONFIGS)
def test_padding_of_every_kind_of_mlp_changes_no_logit(name):
    config = flavours.CONFIGS[name]
    model, params = flavours.build(config)
    new = dataclasses.replace(config, mlp_dim=24)
    other = LanguageModel(new, chunk=4)
    tree = flavours.tree(flavours.tokens(5, 2, 6), tuple(range(-1, 5)))
    cache = model.init(params, flavours.prompt(2), 8)
    wanted = flavours.score(model, params, cache, tree).logits
    changed = refit.refit_params(config, new, params)
    np.testing.assert_allclose(
        flavours.score(other, changed, cache, tree).logits, wanted, atol=1e-5
    )


def test_what_fits_already_stays():
    config = subjects.CONFIG
    assert refit.refit(config, 1) == config
    assert refit.refit(config, 4).kv_heads == 4


@pytest.mark.parametrize("parts", [3, 5, 16])
def test_heads_that_cannot_be_cut_are_an_error_with_numbers_that_can(parts):
    with pytest.raises(ValueError, match=rf"{parts} parts do not divide 8 heads .* 1, 2, 4, 8"):
        refit.refit(subjects.CONFIG, parts)


def test_parameters_are_cut_and_not_copied():
    layout = Shared(subjects.mesh(1, 4)).resolve(subjects.devices(4)).target
    placed = states.place(subjects.model(), layout)
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(placed.params))
    share = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(placed.params))
    norms = sum(leaf.nbytes for leaf in jax.tree.leaves(placed.params) if leaf.ndim == 1)
    assert share == (whole - norms) / 4 + norms


def test_a_checkpoint_is_restored_onto_another_mesh(tmp_path):
    model = subjects.model()
    one = states.place(model, Shared(subjects.mesh(1, 4)).resolve(subjects.devices(4)).target)
    checkpoints.save(tmp_path / "saved", one.network.config, one.params)
    layout = Shared(subjects.mesh(1, 2)).resolve(subjects.devices(2)).target
    config = checkpoints.load_config(tmp_path / "saved")
    network = LanguageModel(config, chunk=8)
    places = layout.shardings(network.param_axes(), network.abstract_params())
    config, params = checkpoints.load(tmp_path / "saved", shardings=places)
    assert config == one.network.config
    for leaf, place in zip(jax.tree.leaves(params), jax.tree.leaves(places), strict=True):
        assert leaf.sharding == place
    assert Model("again", network, params).bytes == one.bytes
    jax.tree.map(np.testing.assert_array_equal, params, one.params)
