import jax
import numpy as np
import pytest

import specsample
from specsample import checkpoints, loading
from specsample.errors import UserError
from specsample.models.target import LanguageModel
from tests.drafters import toys


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "tiny"
    checkpoints.save(path, toys.CONFIG, toys.language().params)
    return str(path)


def test_a_folder_of_our_own_comes_back_as_a_model(folder):
    model = loading.load(folder)
    assert model.name == folder
    assert model.network == LanguageModel(toys.CONFIG)
    assert model.tokenizer is None and model.chat is None
    jax.tree.map(np.testing.assert_array_equal, model.params, toys.language().params)
    assert model.bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))


def test_layout_and_type_can_be_chosen(folder):
    model = loading.load(folder, dtype="bfloat16", scanned=True)
    assert model.network.config.scanned and model.network.config.dtype == "bfloat16"
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(model.params)} == {"bfloat16"}
    assert model.bytes * 2 == loading.load(folder).bytes


def test_a_name_that_means_nothing_is_refused():
    with pytest.raises(UserError, match="model 'smollm3' is neither a known name"):
        loading.load("smollm3")


def test_public_names_are_imported_when_used():
    assert specsample.load is loading.load
    assert {name: getattr(specsample, name).__name__ for name in specsample.__all__}
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = specsample.lode
