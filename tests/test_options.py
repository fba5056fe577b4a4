import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from specsample.errors import UserError
from specsample.options import Sampling, to_controls


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_k", 2**31),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("max_new_tokens", -1),
        ("max_new_tokens", 2**31),
        ("min_new_tokens", 129),
        ("min_new_tokens", -1),
        ("stop", ""),
        ("stop", ("a", "")),
        ("seed", -1),
        ("seed", 2**31),
        # Infinite, or zero, once they are float32: the law would not be a number.
        ("temperature", 1e39),
        ("repetition_penalty", 1e39),
        ("repetition_penalty", 1e-50),
        ("presence_penalty", 1e39),
        ("frequency_penalty", -1e39),
        ("temperature", "0.5"),
        ("top_k", 2.5),
        ("top_p", None),
        ("max_new_tokens", 2.5),
        ("seed", 1.5),
        ("eos_ids", 5),
        ("eos_ids", (1.5,)),
        ("eos_ids", "12"),
        ("stop", None),
        ("stop", (1,)),
        ("logit_bias", [1.0]),
        ("logit_bias", {"5": 1.0}),
        ("logit_bias", {1.5: 1.0}),
        ("logit_bias", {5: "1"}),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(UserError, match=f"^{name}=.*; it must be .*[^.]\\.$"):
        Sampling(**{name: value})


@pytest.mark.parametrize("bias", [math.inf, math.nan, 1e39, -1e39])
def test_a_bias_must_be_a_number_or_a_ban(bias):
    with pytest.raises(UserError, match="logit_bias holds"):
        Sampling(logit_bias={1: 0.0, 3: bias})
    Sampling(logit_bias={3: -math.inf})


def test_a_control_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="typical_p"):
        Sampling(typical_p=0.9)


def test_one_stop_string_is_a_tuple_of_one():
    assert Sampling(stop="ab").stop == ("ab",)
    assert dataclasses.replace(Sampling(stop="ab"), seed=3).stop == ("ab",)


def test_ends_of_ranges_are_allowed():
    Sampling(top_p=1.0, min_p=1.0, top_k=2**31 - 1, max_new_tokens=0, seed=2**31 - 1)
    Sampling(temperature=0, min_new_tokens=5, max_new_tokens=5)


def test_every_field_reaches_the_device_in_its_row():
    rows = [
        Sampling(),
        Sampling(0.5, 3, 0.25, 0.125, 1.5, 2.0, -1.0, {2: 4.0, 5: -np.inf}, 9, 4, (1, 3)),
    ]
    controls = to_controls(rows, (4,), 6)
    wanted = {
        "temperature": [0, 0.5],
        "top_k": [0, 3],
        "top_p": [1, 0.25],
        "min_p": [0, 0.125],
        "repetition": [1, 1.5],
        "presence": [0, 2],
        "frequency": [0, -1],
        "min_new": [0, 4],
        "max_new": [128, 9],
        "eos": [[4, *[-1] * 7], [1, 3, *[-1] * 6]],
        "bias": [[0] * 6, [0, 0, 4, 0, 0, -np.inf]],
    }
    assert controls.confidence is None  # a schedule's, no user's
    fields = {field.name for field in dataclasses.fields(controls)}
    assert set(wanted) == fields - {"confidence"}
    for name, value in wanted.items():
        np.testing.assert_array_equal(getattr(controls, name), value, err_msg=name)
    integers = {name for name in wanted if getattr(controls, name).dtype == jnp.int32}
    assert integers == {"top_k", "min_new", "max_new", "eos"}


@pytest.mark.parametrize(
    ("rows", "own", "wanted"),
    [
        ([Sampling()], (), [[]]),
        ([Sampling()], (2, 5), [[2, 5]]),
        ([Sampling(eos_ids=())], (2, 5), [[]]),
        ([Sampling(), Sampling(eos_ids=(1,))], (2, 5), [[2, 5], [1]]),
        ([Sampling(eos_ids=tuple(range(9)))], (), [list(range(9))]),
    ],
)
def test_none_takes_the_models_ends_and_an_empty_tuple_takes_none(rows, own, wanted):
    eos = to_controls(rows, own, 10).eos
    assert [[token for token in row if token >= 0] for row in eos.tolist()] == wanted
    assert eos.shape[1] % 8 == 0


def test_without_a_bias_there_is_no_array_of_it():
    assert to_controls([Sampling(), Sampling(logit_bias={})], (), 4).bias is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Sampling(eos_ids=(6,)), "eos_ids names token 6; ids run from 0 to 5"),
        (Sampling(eos_ids=(-1,)), "eos_ids names token -1"),
        (Sampling(logit_bias={6: 1.0}), "logit_bias names token 6"),
        (Sampling(logit_bias={-2: 1.0}), "logit_bias names token -2"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        to_controls([Sampling(), options], (), 6)


def test_numbers_of_numpy_are_numbers():
    Sampling(seed=np.int64(3), temperature=np.float32(0.5), eos_ids=np.array([1, 2]))


def test_controls_that_leave_no_token_are_refused():
    bias = {token: -math.inf for token in range(3)}
    with pytest.raises(UserError, match="min_new_tokens=1 bans the end-of-sequence ids"):
        to_controls([Sampling(logit_bias=bias, min_new_tokens=1)], (3,), 4)
    with pytest.raises(UserError, match="min_new_tokens=1 bans"):
        to_controls([Sampling(eos_ids=range(4), min_new_tokens=1)], (), 4)
    to_controls([Sampling(logit_bias=bias)], (3,), 4)
