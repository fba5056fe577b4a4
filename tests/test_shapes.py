"""The checks that every other test runs under, tested themselves."""

import jax
import jax.numpy as jnp
import pytest
from flax import struct
from jaxtyping import Array, Float, Int, TypeCheckError, jaxtyped

from tests.shapes import checked

check = jaxtyped(typechecker=checked)


@check
@struct.dataclass
class Pair:
    tokens: Int[Array, "B N"]
    count: Int[Array, "B"]
    law: Float[Array, "B N+1"] | None = None


@check
def halves(x: Int[Array, "B N"], wrong: bool = False) -> tuple[Int[Array, "B N"], Int[Array, "B"]]:
    return (x, x) if wrong else (x, x[:, 0])


def pair(*, tokens=(2, 3), count=(2,)) -> Pair:
    return Pair(jnp.zeros(tokens, jnp.int32), jnp.zeros(count, jnp.int32))


def test_fields_must_agree():
    with pytest.raises(TypeCheckError):
        pair(count=(3,))
    with pytest.raises(TypeCheckError):
        pair(count=(2, 3))
    with pytest.raises(TypeCheckError):
        pair().replace(tokens=jnp.zeros((2, 3)))


def test_transformations_may_rebuild_a_pytree():
    rows = pair()
    assert jax.tree.map(jnp.shape, rows).tokens == (2, 3)
    assert jax.eval_shape(lambda x: x, rows).count.shape == (2,)
    assert jax.vmap(lambda row: row.replace(count=row.count + 1).count)(rows).tolist() == [1, 1]
    _, stacked = jax.lax.scan(lambda carry, _: (carry, carry), rows, length=4)
    assert stacked.tokens.shape == (4, 2, 3)


def test_functions_are_held_to_the_letter():
    halves(jnp.zeros((2, 3), jnp.int32))
    with pytest.raises(TypeCheckError):
        halves(jnp.zeros(3, jnp.int32))
    with pytest.raises(TypeCheckError):
        halves(jnp.zeros((2, 3), jnp.int32), wrong=True)
