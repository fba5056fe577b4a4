#!/usr/bin/env bash
# A command on a TPU VM that outlives the connection that started it.
#
#   tpu_worker.sh start COMMAND ARGUMENT ...   ends what an earlier start left, then starts anew
#   tpu_worker.sh status                       prints `worker HOST running` or `worker HOST exit N`
#   tpu_worker.sh stop                         ends it, after it put its results in the bucket
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
job=.job
leader="${job}/leader" # process id, and process group, of the command
ended="${job}/exit"
host="$(hostname)"

running() { [[ -f "${leader}" ]] && kill -0 -- "-$(<"${leader}")" 2>/dev/null; }

stop() {
  local left
  if running; then
    kill -TERM -- "-$(<"${leader}")" 2>/dev/null || true
    for ((left = 300; left > 0; left--)); do
      running || return 0
      sleep 0.1
    done
    kill -KILL -- "-$(<"${leader}")" 2>/dev/null || true
  fi
}

case "${1:-}" in
  start)
    shift
    stop
    rm -rf "${job}"
    mkdir -p "${job}"
    # The status is written last, and whole; without a file the command has not ended.
    # shellcheck disable=SC2016  # the inner shell expands what it says
    setsid bash -c '
      echo "$$" >"$1/leader"
      cd "$2"
      status=0
      trap : TERM # it has its own handler, and this shell has to write down how it ended
      "${@:3}" >"$1/output.log" 2>&1 &
      child=$!
      while true; do
        status=0
        wait "${child}" || status=$?
        kill -0 "${child}" 2>/dev/null || break
      done
      echo "${status}" >"$1/exit.part"
      mv "$1/exit.part" "$1/exit"
    ' tpu_worker "${PWD}/${job}" "${PWD}" "$@" </dev/null >/dev/null 2>&1 &
    for _ in {1..100}; do
      [[ -f "${leader}" ]] && break
      sleep 0.1
    done
    echo "worker ${host} started"
    ;;
  status)
    if [[ -f "${ended}" ]]; then
      echo "worker ${host} exit $(<"${ended}")"
    elif running; then
      echo "worker ${host} running"
    else
      echo "worker ${host} exit 137" # gone without a word: killed, or the machine started anew
    fi
    ;;
  stop)
    stop
    ;;
  *)
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
