#!/usr/bin/env bash
# specsample-humaneval: 2 x v5p-128 (4x4x4), 32 workers in all.
set -euo pipefail

NAME=specsample-humaneval
NAMESPACE=team
CLUSTER=pods
PROJECT=mine
LOCATION=us-east5
POLL=30
LIMIT=1000000
KEEP=no
OUTPUT='gs://bucket/some where'
RESULTS=outputs/specsample-humaneval

archive() { git -C /repo archive 0123456789abcdef0123456789abcdef01234567 -- . ':(exclude)docs' ':(exclude)notebooks' ':(exclude)tests'; }
manifest() {
  cat <<'SPECSAMPLE_MANIFEST'
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: specsample-humaneval
  namespace: team
  labels:
    app.kubernetes.io/name: specsample
    kueue.x-k8s.io/queue-name: tpus
  annotations:
    specsample/commit: 0123456789abcdef0123456789abcdef01234567
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: 5
    rules:
    - name: hopeless
      action: FailJobSet
      onJobFailureReasons:
      - PodFailurePolicy
  replicatedJobs:
  - name: slice
    replicas: 2
    template:
      spec:
        parallelism: 16
        completions: 16
        completionMode: Indexed
        backoffLimit: 0
        podFailurePolicy:
          rules:
          - action: FailJob
            onExitCodes:
              containerName: worker
              operator: In
              values:
              - 2
        template:
          metadata:
            labels:
              app.kubernetes.io/name: specsample
              kueue.x-k8s.io/queue-name: tpus
          spec:
            restartPolicy: Never
            hostNetwork: true
            dnsPolicy: ClusterFirstWithHostNet
            terminationGracePeriodSeconds: 60
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: tpu-v5p-slice
              cloud.google.com/gke-tpu-topology: 4x4x4
              cloud.google.com/gke-spot: 'true'
            containers:
            - name: worker
              image: python:3.11.14-slim-bookworm
              command:
              - bash
              - -c
              - |-
                set -euo pipefail
                mkdir -p /specsample
                tar -xzf /specsample-code/code.tar.gz -C /specsample
                cd /specsample
                bash scripts/tpu_setup.sh
                export SPECSAMPLE_WORKER="slice-${SLICE}-host-${JOB_COMPLETION_INDEX}"
                exec .venv/bin/python -m specsample.launch.worker results 'gs://bucket/some where/' .venv/bin/python -m specsample.cli.main run --gin_file=configs/runs/humaneval.gin '--gin_bindings=OUTPUT_DIR = '"'"'gs://bucket/some where'"'"'' '--gin_bindings=PROMPT = '"'"'it\'"'"'s "a" $(touch x) `id` ; # {b} %TPU% \\ é: - !no'"'"'' '--gin_bindings=OUTPUT_DIR = '"'"'results'"'"'' --distributed --host_timeout 300
              env:
              - name: SLICE
                valueFrom:
                  fieldRef:
                    fieldPath: metadata.labels['jobset.sigs.k8s.io/job-index']
              - name: PYTHONUNBUFFERED
                value: '1'
              ports:
              - containerPort: 8471
              - containerPort: 8080
              - containerPort: 8431
              securityContext:
                privileged: true
              resources:
                requests:
                  google.com/tpu: 4
                limits:
                  google.com/tpu: 4
              volumeMounts:
              - name: code
                mountPath: /specsample-code
                readOnly: true
            volumes:
            - name: code
              configMap:
                name: specsample-humaneval-code
SPECSAMPLE_MANIFEST
}

say() { echo "launch: $*" >&2; }
work="$(mktemp -d)"
if [[ -n "${CLUSTER}" ]]; then
  export KUBECONFIG="${work}/kubeconfig" # the user's own is left alone
  gcloud container clusters get-credentials "${CLUSTER}" "--project=${PROJECT}" \
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
  for pod in $(kube get pods "--selector=jobset.sigs.k8s.io/jobset-name=${NAME}" \
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
