"""Manifests against the structure that jobset.x-k8s.io/v1alpha2 and its webhook ask for."""

import dataclasses
import re

import pytest
import yaml

from specsample.launch import accelerators
from specsample.launch.jobset import JobSet, yaml_text
from tests.launch.subjects import CLOUDS, shipped

# What is used of the resource's schema: a key with a `?` may be missing, a list has one kind of
# entry, a text in place of a type is a pattern, and no other key may occur.
LABEL = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
LABELS = {r"([-a-z0-9.]+/)?[A-Za-z0-9][-\w.]*": r".{0,253}"}
CONTAINER = {
    "name": LABEL,
    "image": r"\S+",
    "command": [str],
    "env": [{"name": r"[A-Z_]+", "value?": str, "valueFrom?": {"fieldRef": {"fieldPath": str}}}],
    "ports": [{"containerPort": int}],
    "securityContext": {"privileged": bool},
    "resources": {"requests": {"google.com/tpu": int}, "limits": {"google.com/tpu": int}},
    "volumeMounts": [{"name": LABEL, "mountPath": r"/.+", "readOnly": bool}],
}
POD = {
    "restartPolicy": r"Never",  # a pod failure policy allows no other
    "hostNetwork": bool,
    "dnsPolicy": r"ClusterFirstWithHostNet",
    "terminationGracePeriodSeconds": int,
    "serviceAccountName?": LABEL,
    "nodeSelector": LABELS,
    "containers": [CONTAINER],
    "volumes": [{"name": LABEL, "configMap": {"name": LABEL}}],
}
EXITS = {"containerName": LABEL, "operator": r"In|NotIn", "values": [int]}
JOB = {
    "parallelism": int,
    "completions": int,
    "completionMode": r"Indexed",
    "backoffLimit": int,
    "podFailurePolicy": {
        "rules": [{"action": r"FailJob|Ignore|Count|FailIndex", "onExitCodes": EXITS}]
    },
    "template": {"metadata": {"labels": LABELS}, "spec": POD},
}
REASONS = (
    r"BackoffLimitExceeded|DeadlineExceeded|FailedIndexes|MaxFailedIndexesExceeded|PodFailurePolicy"
)
RULE = {
    "name": r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
    "action": r"FailJobSet|RestartJobSet|RestartJobSetAndIgnoreMaxRestarts",
    "onJobFailureReasons": [REASONS],
}
JOBSET = {
    "apiVersion": r"jobset\.x-k8s\.io/v1alpha2",
    "kind": r"JobSet",
    "metadata": {"name": LABEL, "namespace": LABEL, "labels": LABELS, "annotations": LABELS},
    "spec": {
        "failurePolicy": {"maxRestarts": int, "rules": [RULE]},
        "replicatedJobs": [{"name": LABEL, "replicas": int, "template": {"spec": JOB}}],
    },
}


def check(value, kind, place="") -> None:
    """Compares a value with its description, and names the place where they differ."""
    if isinstance(kind, dict):
        assert isinstance(value, dict), place
        if kind is LABELS:
            ((key, text),) = kind.items()
            for name, entry in value.items():
                check(name, key, place)
                check(entry, text, f"{place}.{name}")
            return
        known = {name.rstrip("?"): name for name in kind}
        assert set(value) <= set(known), f"{place}: {set(value) - set(known)}"
        for name, full in known.items():
            assert name in value or full.endswith("?"), f"{place}.{name}"
            if name in value:
                check(value[name], kind[full], f"{place}.{name}")
    elif isinstance(kind, list):
        assert isinstance(value, list) and value, place
        for index, entry in enumerate(value):
            check(entry, kind[0], f"{place}[{index}]")
    elif isinstance(kind, str):
        assert isinstance(value, str) and re.fullmatch(kind, value), f"{place}: {value!r}"
    else:
        assert type(value) is kind, f"{place}: {value!r}"


def manifest(place: JobSet) -> dict:
    found = yaml.safe_load(yaml_text(place.manifest(shipped())))
    assert found == place.manifest(shipped())
    return found


@pytest.mark.parametrize("name", accelerators.names())
def test_a_manifest_for_every_slice_has_the_structure(name):
    found = manifest(JobSet(accelerator=name))
    check(found, JOBSET)
    (slices,) = found["spec"]["replicatedJobs"]
    job = slices["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    where = accelerators.find(name)
    assert job["parallelism"] == job["completions"] == where.hosts
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert chips == container["resources"]["requests"]["google.com/tpu"]
    assert chips * where.hosts == where.chips
    selector = job["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/gke-tpu-topology"] == where.topology
    # Kubernetes makes names of pods from these, which may have 63 characters.
    last = f"{found['metadata']['name']}-slice-{slices['replicas']}-{where.hosts}-abcde"
    assert len(last) <= 63


@pytest.mark.parametrize("place", [p for p in CLOUDS.values() if isinstance(p, JobSet)])
def test_names_refer_to_what_is_there(place):
    found = manifest(place)
    check(found, JOBSET)
    (slices,) = found["spec"]["replicatedJobs"]
    job = slices["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert slices["replicas"] == place.slices
    assert found["spec"]["failurePolicy"]["maxRestarts"] == place.restarts
    assert job["backoffLimit"] == 0  # a failed worker fails its slice at once
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert found["metadata"]["annotations"][exclusive] == "cloud.google.com/gke-nodepool"
    assert ("cloud.google.com/gke-spot" in pod["nodeSelector"]) == place.spot


def test_a_wrong_structure_is_noticed():
    found = manifest(JobSet(accelerator="v4-8"))
    for change in ({"replicatedJobs": []}, {"more": 1}, {"failurePolicy": {"maxRestarts": "3"}}):
        with pytest.raises(AssertionError):
            check(found | {"spec": found["spec"] | change}, JOBSET)
    with pytest.raises(AssertionError):
        check(dataclasses.asdict(JobSet()), JOBSET)
