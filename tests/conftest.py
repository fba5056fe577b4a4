"""Virtual devices, float32 that means it, and no silent broadcasting; shapes are checked."""

import itertools
import os
import platform
from pathlib import Path

# `SPECSAMPLE_TEST_PLATFORM=tpu make test` runs the suite on another kind of device.
os.environ["JAX_PLATFORMS"] = os.environ.get("SPECSAMPLE_TEST_PLATFORM", "cpu")

# Meshes are tested on eight virtual devices; everything else uses the first one. Later flags win.
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}"
)

import jax
import jaxtyping
import pytest

import tests.shapes  # noqa: F401  the hook finds it by its name

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_default_matmul_precision", "highest")

# Compiled programs are kept between runs; `SPECSAMPLE_TEST_CACHE=` (empty) compiles all anew.
# A program fits the machine it was compiled on, and a folder may be shared by several.
CACHE = Path(__file__).parents[1] / ".cache" / "xla" / platform.node()
if cache := os.environ.get("SPECSAMPLE_TEST_CACHE", str(CACHE)):
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

jaxtyping.install_import_hook("specsample", "tests.shapes.checked")


@pytest.fixture
def key() -> jax.Array:
    """A key for tests that need any one."""
    return jax.random.key(0)


MAPS = Path("/proc/self/maps")
MANY = 20_000  # memory maps; a process may have 65,530, and every compiled program takes a few
TOO_MANY = 40_000
_tests = itertools.count(1)


def _let_go(limit: int) -> None:
    """Forgets compiled programs if they are many: thousands end in a crash, not an error."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > limit:
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """Tests of a module share programs, so most are let go between modules."""
    yield
    _let_go(MANY)


@pytest.fixture(autouse=True)
def _not_too_many_programs():
    """Some modules make too many by themselves; looking costs time, so not after every test."""
    yield
    if next(_tests) % 8 == 0:
        _let_go(TOO_MANY)
