#!/usr/bin/env bash
# specsample-humaneval: 2 x v5e-16 (4x4), 8 workers in all.
set -euo pipefail

NAME=specsample-humaneval
PROJECT=mine
ZONE=us-west4-a
WORKERS=8
RESTARTS=3
POLL=30
INVALID=2
KEEP=yes
OUTPUT='gs://bucket/some where'
RESULTS=outputs/specsample-humaneval
CREATE=(--node-count=2 --node-prefix=specsample-humaneval --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --network=net --service-account=runner@mine.iam.gserviceaccount.com --valid-until-duration=6h --scopes=https://www.googleapis.com/auth/cloud-platform)
UNPACK='mkdir -p specsample && find specsample -mindepth 1 -maxdepth 1 ! -name .venv ! -name .job -exec rm -rf {} + && tar -xzf code.tar.gz -C specsample'
START='bash specsample/scripts/tpu_worker.sh start .venv/bin/python -m specsample.launch.worker results '"'"'gs://bucket/some where/'"'"' .venv/bin/python -m specsample.cli.main run --gin_file=configs/runs/humaneval.gin '"'"'--gin_bindings=OUTPUT_DIR = '"'"'"'"'"'"'"'"'gs://bucket/some where'"'"'"'"'"'"'"'"''"'"' '"'"'--gin_bindings=PROMPT = '"'"'"'"'"'"'"'"'it\'"'"'"'"'"'"'"'"'s "a" $(touch x) `id` ; # {b} %TPU% \\ é: - !no'"'"'"'"'"'"'"'"''"'"' '"'"'--gin_bindings=OUTPUT_DIR = '"'"'"'"'"'"'"'"'results'"'"'"'"'"'"'"'"''"'"' --distributed --host_timeout 300'

archive() { git -C /repo archive 0123456789abcdef0123456789abcdef01234567 -- . ':(exclude)docs' ':(exclude)notebooks' ':(exclude)tests'; }

tpu() {
  gcloud compute tpus queued-resources "$@" "--project=${PROJECT}" "--zone=${ZONE}" --quiet
}
on_all() { tpu ssh "${NAME}" --worker=all --node=all "--command=$1"; }
state() { tpu describe "${NAME}" '--format=value(state.state)' 2>/dev/null || true; }
say() { echo "launch: $*" >&2; }

delete() {
  if [[ -n "$(state)" ]]; then
    say "deleting ${NAME}"
    tpu delete "${NAME}" --force
  fi
}
work="$(mktemp -d)"
finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM # what is half deleted goes on costing
  rm -rf "${work}"
  if [[ "${KEEP}" == yes ]]; then
    say "${NAME} is kept; delete it, or it goes on costing."
  else
    delete || say "${NAME} could not be deleted; delete it, or it goes on costing."
  fi
  exit "${status}"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# 0: ACTIVE; 1: it will not come.
await() {
  local now last=
  while true; do
    now="$(state)"
    [[ "${now}" == "${last}" ]] || say "${NAME}: ${now:-unknown}"
    last="${now}"
    case "${now}" in
      ACTIVE) return 0 ;;
      FAILED | SUSPENDING | SUSPENDED | DELETING) return 1 ;;
    esac
    sleep "${POLL}"
  done
}

# 0: all workers succeeded; 2: the input cannot be used; 3: a worker failed; 4: preempted.
attend() {
  local answers bad failures=0
  while true; do
    sleep "${POLL}"
    [[ "$(state)" == ACTIVE ]] || return 4
    if ! answers="$(on_all 'bash specsample/scripts/tpu_worker.sh status' 2>/dev/null)"; then
      failures=$((failures + 1)) # a connection may break; a worker that is gone stays gone
      if ((failures < 5)); then continue; else return 4; fi
    fi
    failures=0
    bad="$(grep -E '^worker [^ ]+ exit ([1-9]|[0-9]{2,})' <<<"${answers}" || true)"
    if [[ -n "${bad}" ]]; then
      say "failed: ${bad}"
      on_all 'bash specsample/scripts/tpu_worker.sh stop' || true
      if grep -qE " exit ${INVALID}\$" <<<"${bad}"; then return 2; else return 3; fi
    fi
    if (($(grep -cE '^worker [^ ]+ exit 0$' <<<"${answers}" || true) >= WORKERS)); then
      return 0
    fi
  done
}

attempt() {
  [[ -n "$(state)" ]] || tpu create "${NAME}" "${CREATE[@]}" || return 4
  await || return 4
  tpu scp "${work}/code.tar.gz" "${NAME}:" --worker=all --node=all || return 4
  on_all "${UNPACK}" || return 4
  on_all 'bash specsample/scripts/tpu_setup.sh' || return 4
  on_all "${START}" || return 4
  attend
}

archive | gzip -9n >"${work}/code.tar.gz"
status=4
for ((try = 0; try <= RESTARTS; try++)); do
  say "attempt $((try + 1)) of at most $((RESTARTS + 1))"
  status=0
  attempt || status=$?
  case "${status}" in
    0 | 2) break ;;
    4) delete || true ;; # preempted, or half made: what is left cannot be used again
  esac
done
if [[ -n "${OUTPUT}" ]]; then
  say "copying results and logs to ${RESULTS}"
  mkdir -p "${RESULTS}"
  gcloud storage rsync --recursive "${OUTPUT}" "${RESULTS}" || say "no results could be copied"
fi
((status == 0)) || say "failed; logs of all workers are in ${RESULTS}/logs"
exit "${status}"
