import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample.training import objectives
from specsample.training.batches import Batch
from specsample.training.objectives import CrossEntropy, ForwardKL

from . import subjects

BATCH = Batch(
    np.array([[3, 4, 1, 0], [5, 1, 0, 0]], np.int32),
    np.array([[6, 7, 8, 1], [9, 1, 0, 0]], np.int32),
)
REAL = BATCH.targets > 0


def laws(params, network=subjects.NETWORK):
    logits = objectives.teacher_forced(network, params, BATCH, None)
    return np.asarray(jax.nn.softmax(logits), np.float64)


def test_cross_entropy_is_that_of_the_targets():
    params = subjects.params(0)
    loss, sums = CrossEntropy(subjects.NETWORK)(params, (), BATCH, None)
    law = laws(params)
    picked = np.take_along_axis(law, BATCH.targets[..., None], 2)[..., 0][REAL]
    sums = jax.tree.map(float, sums)
    assert sums["tokens"] == REAL.sum() == 6
    np.testing.assert_allclose(loss, -np.log(picked).mean(), rtol=1e-5)
    np.testing.assert_allclose(sums["nats"] / 6, loss, rtol=1e-6)
    assert sums["right"] == (law.argmax(-1) == BATCH.targets)[REAL].sum()


def test_smoothing_mixes_in_the_whole_vocabulary():
    params = subjects.params(0)
    loss, _ = CrossEntropy(subjects.NETWORK, smoothing=0.3)(params, (), BATCH, None)
    logs = np.log(laws(params))
    picked = np.take_along_axis(logs, BATCH.targets[..., None], 2)[..., 0]
    wanted = -(0.7 * picked + 0.3 * logs.mean(-1))[REAL].mean()
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)


@pytest.mark.parametrize("mix", [0.0, 0.25])
def test_forward_kl_is_that_of_both_laws(mix):
    student, teacher = subjects.params(0), subjects.params(1)
    objective = ForwardKL(subjects.NETWORK, subjects.NETWORK, mix=mix)
    loss, sums = objective(student, teacher, BATCH, None)
    p, q = laws(teacher), laws(student)
    kl = (p * (np.log(p) - np.log(q))).sum(-1)[REAL]
    picked = np.take_along_axis(q, BATCH.targets[..., None], 2)[..., 0][REAL]
    wanted = (1 - mix) * kl.mean() - mix * np.log(picked).mean()
    np.testing.assert_allclose(loss, wanted, rtol=1e-4)
    shared = np.minimum(p, q).sum(-1)[REAL].sum()
    np.testing.assert_allclose(float(sums["overlap"]), shared, rtol=1e-5)
    same, _ = ForwardKL(subjects.NETWORK, subjects.NETWORK)(teacher, teacher, BATCH, None)
    np.testing.assert_allclose(same, 0, atol=1e-6)


def test_no_gradient_reaches_the_teacher():
    objective = ForwardKL(subjects.NETWORK, subjects.NETWORK)
    gradient = jax.grad(lambda frozen: objective(subjects.params(0), frozen, BATCH, None)[0])
    leaves = jax.tree.leaves(gradient(subjects.params(1)))
    assert not any(jnp.any(leaf) for leaf in leaves)


def test_padding_carries_no_loss():
    params = subjects.params(0)
    wide = Batch(*(np.pad(side, ((0, 1), (0, 3))) for side in BATCH))
    one, _ = CrossEntropy(subjects.NETWORK)(params, (), BATCH, None)
    other, _ = CrossEntropy(subjects.NETWORK)(params, (), wide, None)
    np.testing.assert_allclose(one, other, rtol=1e-5)
