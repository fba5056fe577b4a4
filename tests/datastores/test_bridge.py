"""One question to the host a step, under any layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specsample import layout as layouts
from specsample.datastores import bridge
from specsample.partitioning import Shared

ROWS, STEPS = 4, 5


class Host:
    """Counts its calls; fails at one of them, if told to."""

    def __init__(self, fails=None, answer=np.int32):
        self.calls, self.fails, self.answer = 0, fails, answer

    def __call__(self, tokens, ticket):
        self.calls += 1
        if self.calls == self.fails:
            raise OSError("the disk is gone")
        assert isinstance(tokens, np.ndarray)
        return tokens.sum(1).astype(self.answer), np.array(ticket + 1, np.int32)


def run(host, layout=None):
    @jax.jit
    def program(x):
        def body(carry):
            step, ticket, x = carry
            shapes = (
                jax.ShapeDtypeStruct((ROWS,), jnp.int32),
                jax.ShapeDtypeStruct((), jnp.int32),
            )
            x = layouts.constrain(x, ("batch", None))
            sums, ticket = bridge.call(host, shapes, x, ticket)
            x = layouts.constrain((x + sums[:, None]) % 7, ("batch", None))
            # Something that waits for all devices.
            total = (x.astype(jnp.float32) @ jnp.ones((x.shape[1], 8), jnp.float32)).sum()
            return step + 1, ticket, x + total.astype(jnp.int32) % 2

        with layouts.using(layout):
            return jax.lax.while_loop(lambda c: c[0] < STEPS, body, (0, 0, x))

    return jax.device_get(program(jnp.arange(2 * ROWS, dtype=jnp.int32).reshape(ROWS, 2)))


LAYOUTS = {
    "one": lambda: None,
    "mesh": lambda: Shared({"data": 2, "model": 2}).resolve(jax.devices()[:4]).target,
}


@pytest.mark.parametrize("where", LAYOUTS)
def test_one_call_a_step(where, capfd):
    host = Host()
    _, ticket, x = run(host, LAYOUTS[where]())
    assert host.calls == ticket == STEPS
    np.testing.assert_array_equal(x, run(Host())[2])
    bridge.raise_faults()
    assert "rematerialization" not in capfd.readouterr().err


@pytest.mark.parametrize("where", LAYOUTS)
def test_an_error_on_the_host_is_raised_and_nothing_hangs(where):
    _, ticket, _ = run(Host(fails=3), LAYOUTS[where]())
    assert ticket == STEPS - 3
    with pytest.raises(OSError, match="the disk is gone"):
        bridge.raise_faults()
    bridge.raise_faults()


def test_a_wrong_answer_is_an_error():
    run(Host(answer=np.int64))
    with pytest.raises(TypeError, match="int64"):
        bridge.raise_faults()
