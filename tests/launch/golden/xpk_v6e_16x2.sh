#!/usr/bin/env bash
# specsample-humaneval: 2 x v6e-16 (4x4), 8 workers in all.
set -euo pipefail

NAME=specsample-humaneval
CLUSTER=pods
PROJECT=mine
ZONE=us-east5-b
KEEP=no
OUTPUT='gs://bucket/some where'
RESULTS=outputs/specsample-humaneval
CREATE=(--tpu-type=v6e-16 --num-slices=2 --priority=medium --max-restarts=3 --restart-on-user-code-failure --termination-grace-period-seconds=60 --base-docker-image=python:3.11.14-slim-bookworm --spot)
COMMAND='bash scripts/tpu_setup.sh && exec .venv/bin/python -m specsample.launch.worker results '"'"'gs://bucket/some where/'"'"' .venv/bin/python -m specsample.cli.main run --gin_file=configs/runs/humaneval.gin '"'"'--gin_bindings=OUTPUT_DIR = '"'"'"'"'"'"'"'"'gs://bucket/some where'"'"'"'"'"'"'"'"''"'"' '"'"'--gin_bindings=PROMPT = '"'"'"'"'"'"'"'"'it\'"'"'"'"'"'"'"'"'s "a" $(touch x) `id` ; # {b} %TPU% \\ é: - !no'"'"'"'"'"'"'"'"''"'"' '"'"'--gin_bindings=OUTPUT_DIR = '"'"'"'"'"'"'"'"'results'"'"'"'"'"'"'"'"''"'"' --distributed --host_timeout 300'

archive() { git -C /repo archive 0123456789abcdef0123456789abcdef01234567 -- . ':(exclude)docs' ':(exclude)notebooks' ':(exclude)tests'; }

say() { echo "launch: $*" >&2; }
on_cluster() {
  xpk workload "$@" "--cluster=${CLUSTER}" "--project=${PROJECT}" "--zone=${ZONE}"
}
work="$(mktemp -d)"
finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM # what is half deleted goes on costing
  rm -rf "${work}"
  if [[ "${KEEP}" == yes ]]; then
    say "${NAME} is kept; delete it with: xpk workload delete --workload=${NAME}"
  else
    on_cluster delete "--workload=${NAME}" --force ||
      say "${NAME} could not be deleted; delete it, or it goes on costing."
  fi
  exit "${status}"
}
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "${work}/code"
archive | tar -xf - -C "${work}/code"
trap finish EXIT
on_cluster create "--workload=${NAME}" "${CREATE[@]}" "--script-dir=${work}/code" \
  "--command=${COMMAND}"

# xpk's status is not zero if the workload failed.
status=0
on_cluster list "--wait-for-job-completion=${NAME}" || status=1
mkdir -p "${RESULTS}/pods"
for pod in $(kubectl get pods "--selector=jobset.sigs.k8s.io/jobset-name=${NAME}" \
  '--output=jsonpath={.items[*].metadata.name}' || true); do
  kubectl logs "${pod}" >"${RESULTS}/pods/${pod}.log" 2>&1 || true
done
if [[ -n "${OUTPUT}" ]]; then
  say "copying results and logs to ${RESULTS}"
  gcloud storage rsync --recursive "${OUTPUT}" "${RESULTS}" || say "no results could be copied"
fi
((status == 0)) || say "failed; logs of all workers are in ${RESULTS}/logs and ${RESULTS}/pods"
exit "${status}"
