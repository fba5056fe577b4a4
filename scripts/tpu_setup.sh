#!/usr/bin/env bash
# Makes .venv beside this folder, with the locked versions and JAX for TPUs. Run on every worker by
# what `specsample launch` writes; does nothing where it was done for the same versions already.
#
#   SPECSAMPLE_LOCKS   names of requirements/*.lock (core)
#   SPECSAMPLE_DEVICE  tpu or cpu (tpu)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
read -r -a locks <<<"${SPECSAMPLE_LOCKS:-core}"
device="${SPECSAMPLE_DEVICE:-tpu}"
uv_version=0.13.9

wanted=()
for lock in "${locks[@]}"; do
  wanted+=(--requirement "requirements/${lock}.lock")
done
if [[ "${device}" == tpu ]]; then
  if [[ -f requirements/tpu.lock ]]; then
    wanted+=(--requirement requirements/tpu.lock)
  else
    # JAX pins the libtpu that it was built with.
    jax="$(grep -E '^jax==' requirements/core.lock)"
    wanted+=("jax[tpu]${jax#jax}")
  fi
fi

stamp=.venv/.made
mark="$(cat requirements/*.lock setup.py | sha256sum) ${wanted[*]}"
if [[ -f "${stamp}" && "$(<"${stamp}")" == "${mark}" ]]; then
  echo "setup: .venv is as it should be"
  exit 0
fi

rm -rf .venv
for python in python3.11 python3.12 python3; do
  if "${python}" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
  then
    "${python}" -m venv .venv
    break
  fi
done
if [[ ! -x .venv/bin/python ]]; then
  # TPU VMs have Python 3.10.
  python3 -m pip install --quiet --user "uv==${uv_version}"
  python3 -m uv venv --quiet --seed --python 3.11 .venv
fi

install=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input)
"${install[@]}" "${wanted[@]}"
"${install[@]}" --no-deps --no-build-isolation --editable .
echo "${mark}" >"${stamp}"
echo "setup: $(.venv/bin/python --version), jax $(.venv/bin/python -c \
  'from importlib.metadata import version; print(version("jax"))')"
