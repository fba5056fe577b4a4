import jax
import jax.numpy as jnp
import numpy as np

from specsample.compilation import CompileCounter


def test_only_new_programs_are_counted():
    cube = jax.jit(lambda x: x**3)
    one = np.float32(1.5)
    with CompileCounter() as first:
        cube(one)
    with CompileCounter() as second:
        cube(np.float32(2.5))
    with CompileCounter() as third:
        cube(np.ones(2, np.float32))
    assert first.count >= 1 and first.seconds > 0
    assert (second.count, second.seconds) == (0, 0.0)
    assert third.count >= 1


def test_counters_may_be_nested_and_used_again():
    counter = CompileCounter()
    with counter:
        with CompileCounter() as inner:
            jax.jit(lambda x: jnp.sin(x) * 3)(np.float32(1))
        jax.jit(lambda x: jnp.cos(x) * 5)(np.float32(1))
    assert counter.count > inner.count >= 1
    with counter:
        pass
    assert counter.count == 0
