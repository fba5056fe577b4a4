"""Jobs on many hosts: TPU pods through three services, and processes of this machine.

`local` really runs; `queued_resource`, `xpk` and `jobset` write a shell script that does everything
from creation to deletion. Nothing in here imports JAX, so that a dry run is quick.
"""
