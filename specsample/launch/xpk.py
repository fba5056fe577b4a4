"""GKE through xpk, which builds the image, writes the JobSet and queues it."""

from __future__ import annotations

import dataclasses

from specsample.errors import UserError
from specsample.launch import options
from specsample.launch.job import Shipped, assignments, quoted
from specsample.launch.jobset import IMAGE

_BODY = """
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
on_cluster create "--workload=${NAME}" "${CREATE[@]}" "--script-dir=${work}/code" \\
  "--command=${COMMAND}"

# xpk's status is not zero if the workload failed.
status=0
on_cluster list "--wait-for-job-completion=${NAME}" || status=1
mkdir -p "${RESULTS}/pods"
for pod in $(kubectl get pods "--selector=jobset.sigs.k8s.io/jobset-name=${NAME}" \\
  '--output=jsonpath={.items[*].metadata.name}' || true); do
  kubectl logs "${pod}" >"${RESULTS}/pods/${pod}.log" 2>&1 || true
done
if [[ -n "${OUTPUT}" ]]; then
  say "copying results and logs to ${RESULTS}"
  gcloud storage rsync --recursive "${OUTPUT}" "${RESULTS}" || say "no results could be copied"
fi
((status == 0)) || say "failed; logs of all workers are in ${RESULTS}/logs and ${RESULTS}/pods"
exit "${status}"
"""


@dataclasses.dataclass(frozen=True)
class Xpk(options.Slices):
    """A workload on a cluster that `xpk cluster create` made."""

    cluster: str = options.option("", "that xpk made")
    project: str = options.option("", "of the cluster")
    zone: str = options.option("", "of the cluster")
    priority: str = options.option("medium", "very-low, low, medium, high or very-high")
    spot: bool = options.option(False, "where xpk provisions nodes itself, ask for spot ones")
    image: str = options.option(IMAGE, "the code is added to it; Python 3.11 or newer, and bash")
    mount: str = options.option("", "a folder where `xpk storage attach` mounts a bucket")
    keep: bool = options.option(False, "do not delete the workload at the end")

    def create(self) -> list[str]:
        """Arguments of `xpk workload create`, less names, code and command."""
        return [
            f"--tpu-type={self.slice.service_name}",
            f"--num-slices={self.slices}",
            f"--priority={self.priority}",
            f"--max-restarts={self.restarts}",
            "--restart-on-user-code-failure",  # as the others do when one worker is gone
            "--termination-grace-period-seconds=60",
            f"--base-docker-image={self.image}",
            *(("--spot",) if self.spot else ()),
        ]

    def script(self, shipped: Shipped) -> str:
        """The shell script that creates, awaits and deletes it.

        Raises:
          UserError: something is missing, or cannot be.
        """
        job = shipped.job
        options.required("xpk", cluster=self.cluster, project=self.project, zone=self.zone)
        options.check_name("name", job.name)
        options.check_plain(
            cluster=self.cluster, project=self.project, zone=self.zone, image=self.image
        )
        self.check_slices()
        levels = ("very-low", "low", "medium", "high", "very-high")
        if self.priority not in levels:
            raise UserError(f"priority={self.priority!r}; use one of {', '.join(levels)}.")
        command = quoted(job.remote(self.workers, self.mount))
        head = assignments(
            NAME=job.name,
            CLUSTER=self.cluster,
            PROJECT=self.project,
            ZONE=self.zone,
            KEEP="yes" if self.keep else "no",
            OUTPUT=job.output.rstrip("/") if job.output.startswith("gs://") else "",
            RESULTS=self.results or f"outputs/{job.name}",
            CREATE=self.create(),
            COMMAND=f"bash scripts/tpu_setup.sh && exec {command}",
        )
        return (
            "#!/usr/bin/env bash\n"
            f"# {job.name}: {self.slices} x {self.slice.name} ({self.slice.topology}), "
            f"{self.workers} workers in all.\n"
            f"set -euo pipefail\n\n{head}\n\narchive() {{ {shipped.code.archive}; }}\n{_BODY}"
        )
