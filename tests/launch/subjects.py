"""A job, and each back end described once, for tests of what they write."""

from specsample.launch.code import Code
from specsample.launch.job import Job, Shipped
from specsample.launch.jobset import JobSet
from specsample.launch.queued_resource import QueuedResource
from specsample.launch.xpk import Xpk

CODE = Code("/repo", "0123456789abcdef0123456789abcdef01234567")

# Words that a shell, gin or YAML would take for something else.
NASTY = """PROMPT = 'it\\'s "a" $(touch x) `id` ; # {b} %TPU% \\\\ é: - !no'"""

ARGUMENTS = (
    "--gin_file=configs/runs/humaneval.gin",
    "--gin_bindings=OUTPUT_DIR = 'gs://bucket/some where'",
    f"--gin_bindings={NASTY}",
)


def shipped(output="gs://bucket/some where", name="specsample-humaneval", arguments=ARGUMENTS):
    return Shipped(Job(name, arguments, output), CODE)


CLOUDS = {
    "queued_v4_32": QueuedResource(
        accelerator="v4-32", project="mine", zone="us-central2-b", spot=True
    ),
    "queued_v5e_16x2": QueuedResource(
        accelerator="v5e-16",
        slices=2,
        project="mine",
        zone="us-west4-a",
        network="net",
        service_account="runner@mine.iam.gserviceaccount.com",
        valid_until="6h",
        keep=True,
    ),
    "xpk_v6e_16x2": Xpk(
        accelerator="v6e-16", slices=2, cluster="pods", project="mine", zone="us-east5-b", spot=True
    ),
    "jobset_v5e_16": JobSet(accelerator="v5e-16", service_account="runner"),
    "jobset_v5p_128x2": JobSet(
        accelerator="v5p-128",
        slices=2,
        restarts=5,
        cluster="pods",
        project="mine",
        location="us-east5",
        namespace="team",
        queue="tpus",
        spot=True,
    ),
}
