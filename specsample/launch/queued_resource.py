"""TPU VMs through a queued resource of gcloud: one script from creation to deletion."""

from __future__ import annotations

import dataclasses

from specsample.errors import UserError
from specsample.launch import options
from specsample.launch.job import INVALID, Shipped, assignments, quoted

# Every worker's answer to `tpu_worker.sh status` is one line: `worker HOST running` or
# `worker HOST exit STATUS`. gcloud runs a command on all of them and mixes what they say.
_BODY = """
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
      if grep -qE " exit ${INVALID}\\$" <<<"${bad}"; then return 2; else return 3; fi
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
"""

# No file of another commit stays; what took long to install does.
_UNPACK = (
    "mkdir -p specsample && find specsample -mindepth 1 -maxdepth 1 ! -name .venv ! -name .job "
    "-exec rm -rf {} + && tar -xzf code.tar.gz -C specsample"
)


@dataclasses.dataclass(frozen=True)
class QueuedResource(options.Slices):
    """TPU VMs that are asked for, waited for, used and deleted."""

    project: str = options.option("", "of Google Cloud")
    zone: str = options.option("", "such as us-central2-b")
    spot: bool = options.option(False, "cheaper, and may be preempted")
    reserved: bool = options.option(False, "use reserved capacity")
    runtime_version: str = options.option("", "software of the VMs; empty for the accelerator's")
    network: str = options.option("", "of the VMs; empty for the project's own")
    service_account: str = options.option("", "of the VMs, which must be let into the bucket")
    valid_until: str = options.option("", "give up when there is none for so long; such as 6h")
    mount: str = options.option("", "a folder where each worker has a bucket mounted already")
    keep: bool = options.option(False, "do not delete the VMs at the end")
    poll_seconds: float = options.option(30.0, "between two looks at the workers")

    def create(self, name: str) -> list[str]:
        """Arguments of gcloud's `create`, less the name."""
        where = self.slice
        nodes = [f"--node-id={name}"]
        if self.slices > 1:
            nodes = [f"--node-count={self.slices}", f"--node-prefix={name}"]
        texts = {
            "runtime-version": self.runtime_version or where.family.runtime,
            "network": self.network,
            "service-account": self.service_account,
            "valid-until-duration": self.valid_until,
        }
        switches = {"spot": self.spot, "reserved": self.reserved}
        return [
            *nodes,
            f"--accelerator-type={where.service_name}",
            *(f"--{flag}={value}" for flag, value in texts.items() if value),
            *(f"--{flag}" for flag, wanted in switches.items() if wanted),
            "--scopes=https://www.googleapis.com/auth/cloud-platform",
        ]

    def script(self, shipped: Shipped) -> str:
        """The shell script that does all of it.

        Raises:
          UserError: something is missing, or cannot be.
        """
        job, code = shipped.job, shipped.code
        options.required("queued_resource", project=self.project, zone=self.zone)
        options.check_name("name", job.name)
        options.check_least(poll_seconds_0=self.poll_seconds)
        options.check_plain(
            project=self.project,
            zone=self.zone,
            runtime_version=self.runtime_version,
            network=self.network,
            service_account=self.service_account,
            valid_until=self.valid_until,
        )
        self.check_slices()
        if self.spot and self.reserved:
            raise UserError("spot and reserved: capacity is one or the other; leave one out.")
        start = ["bash", "specsample/scripts/tpu_worker.sh", "start"]
        head = assignments(
            NAME=job.name,
            PROJECT=self.project,
            ZONE=self.zone,
            WORKERS=self.workers,
            RESTARTS=self.restarts,
            POLL=f"{self.poll_seconds:g}",
            INVALID=INVALID,
            KEEP="yes" if self.keep else "no",
            OUTPUT=job.output.rstrip("/") if job.output.startswith("gs://") else "",
            RESULTS=self.results or f"outputs/{job.name}",
            CREATE=self.create(job.name),
            UNPACK=_UNPACK,
            START=quoted(start + job.remote(self.workers, self.mount)),
        )
        return (
            "#!/usr/bin/env bash\n"
            f"# {job.name}: {self.slices} x {self.slice.name} ({self.slice.topology}), "
            f"{self.workers} workers in all.\n"
            f"set -euo pipefail\n\n{head}\n\narchive() {{ {code.archive}; }}\n{_BODY}"
        )
