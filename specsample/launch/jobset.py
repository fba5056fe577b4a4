"""GKE through a JobSet (jobset.x-k8s.io/v1alpha2): one Job a slice, one pod a host."""

from __future__ import annotations

import dataclasses
from typing import Any

import yaml

from specsample.errors import UserError
from specsample.launch import options
from specsample.launch.job import INVALID, Shipped, assignments, quoted

CONTAINER = "worker"
CODE = "/specsample-code"  # where the archive is mounted
IMAGE = "python:3.11.14-slim-bookworm"
PORTS = (8471, 8080, 8431)  # of the TPU runtime, between slices, of its metrics
LIMIT = 1_000_000  # bytes of a ConfigMap

_BODY = """
say() { echo "launch: $*" >&2; }
work="$(mktemp -d)"
if [[ -n "${CLUSTER}" ]]; then
  export KUBECONFIG="${work}/kubeconfig" # the user's own is left alone
  gcloud container clusters get-credentials "${CLUSTER}" "--project=${PROJECT}" \\
    "--location=${LOCATION}" --quiet
fi
kube() { kubectl "--namespace=${NAMESPACE}" "$@"; }
field() { kube get jobset "${NAME}" "--output=jsonpath={$1}" --ignore-not-found; }

delete() {
  kube delete jobset "${NAME}" --ignore-not-found --cascade=foreground
  kube delete configmap "${NAME}-code" --ignore-not-found
}
followers=()
finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM # what is half deleted goes on costing
  if ((${#followers[@]})); then kill "${followers[@]}" 2>/dev/null || true; fi
  if [[ "${KEEP}" == yes ]]; then
    say "${NAME} is kept; delete it with: kubectl delete jobset ${NAME}"
  else
    delete || say "${NAME} could not be deleted; delete it, or it goes on costing."
  fi
  rm -rf "${work}"
  exit "${status}"
}
trap 'rm -rf "${work}"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

archive | gzip -9n >"${work}/code.tar.gz"
size="$(wc -c <"${work}/code.tar.gz")"
if ((size > LIMIT)); then
  say "the code has ${size} bytes, and a ConfigMap holds ${LIMIT}; commit no large files."
  exit 2
fi
if [[ -n "$(field .metadata.name)" && -z "$(field .status.terminalState)" ]]; then
  say "${NAME} is running; wait for it, delete it, or choose another --name."
  exit 2
fi
trap finish EXIT
delete # what an earlier job of this name left; what it had done is in the bucket
kube create configmap "${NAME}-code" "--from-file=code.tar.gz=${work}/code.tar.gz"
manifest | kube create --filename=-

# Logs are followed pod by pod; a pod of a new attempt has a new name.
declare -A followed=()
follow() {
  local pod
  mkdir -p "${RESULTS}/pods"
  for pod in $(kube get pods "--selector=jobset.sigs.k8s.io/jobset-name=${NAME}" \\
    '--field-selector=status.phase!=Pending' '--output=jsonpath={.items[*].metadata.name}'); do
    if [[ -z "${followed[${pod}]:-}" ]]; then
      followed["${pod}"]=yes
      kube logs "${pod}" --follow >"${RESULTS}/pods/${pod}.log" 2>&1 &
      followers+=("$!")
    fi
  done
}

last=
while true; do
  sleep "${POLL}"
  now="$(field .status.terminalState)"
  follow || true
  restarts="$(field .status.restarts)"
  [[ "${now} ${restarts}" == "${last}" ]] || say "${NAME}: ${now:-running}, restarts ${restarts:-0}"
  last="${now} ${restarts}"
  [[ "${now}" == Completed || "${now}" == Failed ]] && break
done
if [[ -n "${OUTPUT}" ]]; then
  say "copying results and logs to ${RESULTS}"
  mkdir -p "${RESULTS}"
  gcloud storage rsync --recursive "${OUTPUT}" "${RESULTS}" || say "no results could be copied"
fi
if [[ "${now}" == Failed ]]; then
  say "failed; logs of all workers are in ${RESULTS}/logs and ${RESULTS}/pods"
  exit 1
fi
"""


@dataclasses.dataclass(frozen=True)
class JobSet(options.Slices):
    """Pods of a GKE cluster whose node pools have the slices, or are made with them."""

    cluster: str = options.option("", "of GKE; empty for that of kubectl's current context")
    project: str = options.option("", "of the cluster")
    location: str = options.option("", "of the cluster: its region or zone")
    namespace: str = options.option("default", "of Kubernetes")
    service_account: str = options.option("", "of Kubernetes, which must be let into the bucket")
    queue: str = options.option("", "Kueue's local queue; empty for none")
    spot: bool = options.option(False, "on nodes that may be preempted")
    image: str = options.option(IMAGE, "has Python 3.11 or newer, and bash")
    keep: bool = options.option(False, "do not delete the JobSet at the end")
    poll_seconds: float = options.option(30.0, "between two looks at the JobSet")

    def manifest(self, shipped: Shipped) -> dict[str, Any]:
        """The JobSet.

        Raises:
          UserError: something is missing, or cannot be.
        """
        self.check(shipped)
        job, where = shipped.job, self.slice
        labels = {"app.kubernetes.io/name": "specsample"}
        annotations = {"specsample/commit": shipped.code.commit}
        if self.queue:
            labels["kueue.x-k8s.io/queue-name"] = self.queue
        if where.hosts > 1 or self.slices > 1:
            # A slice is a node pool; its pods must not be spread over two.
            topology = "alpha.jobset.sigs.k8s.io/exclusive-topology"
            annotations[topology] = "cloud.google.com/gke-nodepool"
        # A run whose input cannot be used says so with a status of its own: no restart helps.
        invalid = {"containerName": CONTAINER, "operator": "In", "values": [INVALID]}
        slices = {
            "parallelism": where.hosts,
            "completions": where.hosts,
            "completionMode": "Indexed",
            "backoffLimit": 0,  # one failed pod fails its slice, and the JobSet starts all anew
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": invalid}]},
            "template": {"metadata": {"labels": labels}, "spec": self._pod(shipped)},
        }
        hopeless = {
            "name": "hopeless",
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {
                "name": job.name,
                "namespace": self.namespace,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "failurePolicy": {"maxRestarts": self.restarts, "rules": [hopeless]},
                "replicatedJobs": [
                    {"name": "slice", "replicas": self.slices, "template": {"spec": slices}}
                ],
            },
        }

    def _pod(self, shipped: Shipped) -> dict[str, Any]:
        where = self.slice
        selector = {
            "cloud.google.com/gke-tpu-accelerator": where.family.node,
            "cloud.google.com/gke-tpu-topology": where.topology,
        }
        if self.spot:
            selector["cloud.google.com/gke-spot"] = "true"
        chips = {"google.com/tpu": where.host_chips}
        command = quoted(shipped.job.remote(self.workers))
        lines = [
            "set -euo pipefail",
            "mkdir -p /specsample",
            f"tar -xzf {CODE}/code.tar.gz -C /specsample",
            "cd /specsample",
            "bash scripts/tpu_setup.sh",
            # Kubernetes numbers slices, and hosts in a slice.
            'export SPECSAMPLE_WORKER="slice-${SLICE}-host-${JOB_COMPLETION_INDEX}"',
            f"exec {command}",
        ]
        index = "metadata.labels['jobset.sigs.k8s.io/job-index']"
        container = {
            "name": CONTAINER,
            "image": self.image,
            "command": ["bash", "-c", "\n".join(lines)],
            "env": [
                {"name": "SLICE", "valueFrom": {"fieldRef": {"fieldPath": index}}},
                {"name": "PYTHONUNBUFFERED", "value": "1"},
            ],
            "ports": [{"containerPort": port} for port in PORTS],
            "securityContext": {"privileged": True},  # the chips are devices of the host
            "resources": {"requests": chips, "limits": chips},
            "volumeMounts": [{"name": "code", "mountPath": CODE, "readOnly": True}],
        }
        account = {"serviceAccountName": self.service_account} if self.service_account else {}
        return {
            "restartPolicy": "Never",
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "terminationGracePeriodSeconds": 60,  # more than a worker takes to save its results
            **account,
            "nodeSelector": selector,
            "containers": [container],
            "volumes": [{"name": "code", "configMap": {"name": f"{shipped.job.name}-code"}}],
        }

    def check(self, shipped: Shipped) -> None:
        """Refuses what cannot be.

        Raises:
          UserError: as said.
        """
        options.check_name("name", shipped.job.name)
        options.check_name("namespace", self.namespace)
        options.check_least(poll_seconds_0=self.poll_seconds)
        options.check_plain(
            cluster=self.cluster,
            project=self.project,
            location=self.location,
            service_account=self.service_account,
            queue=self.queue,
            image=self.image,
        )
        self.check_slices()
        if bool(self.cluster) != bool(self.project and self.location):
            raise UserError(
                f"cluster={self.cluster!r}, project={self.project!r}, location={self.location!r}: "
                "give all of them, or none for kubectl's current context."
            )

    def script(self, shipped: Shipped) -> str:
        """The shell script that creates, follows and deletes it, the manifest in it.

        Raises:
          UserError: something is missing, or cannot be.
        """
        job = shipped.job
        head = assignments(
            NAME=job.name,
            NAMESPACE=self.namespace,
            CLUSTER=self.cluster,
            PROJECT=self.project,
            LOCATION=self.location,
            POLL=f"{self.poll_seconds:g}",
            LIMIT=LIMIT,
            KEEP="yes" if self.keep else "no",
            OUTPUT=job.output.rstrip("/"),
            RESULTS=self.results or f"outputs/{job.name}",
        )
        text = yaml_text(self.manifest(shipped))
        end = "SPECSAMPLE_MANIFEST"  # no line of the manifest is this, as none begins with an S
        return (
            "#!/usr/bin/env bash\n"
            f"# {job.name}: {self.slices} x {self.slice.name} ({self.slice.topology}), "
            f"{self.workers} workers in all.\n"
            f"set -euo pipefail\n\n{head}\n\narchive() {{ {shipped.code.archive}; }}\n"
            f"manifest() {{\n  cat <<'{end}'\n{text}{end}\n}}\n{_BODY}"
        )


class _Plain(yaml.SafeDumper):
    """Writes a script as a block, and what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


def yaml_text(value: dict[str, Any]) -> str:
    """A manifest as YAML."""
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, width=100_000, allow_unicode=True)
