"""A real Slurm cluster of a controller and two nodes, in namespaces that end with their first process.

Each node has its own address, host name, processes and /tmp, so two nodes fit on one machine. Needs root and Debian's
packages slurmctld, slurmd, slurm-client and munge.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NEEDS = ("slurmctld", "slurmd", "sbatch", "munged", "unshare", "nsenter", "ip")
NODES = {"n1": "10.77.0.11", "n2": "10.77.0.12"}
CONTROLLER = "10.77.0.1"
START = """#!/bin/bash
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/netns  # so that `ip netns` leaves nothing on the host
mount --bind "$W/hosts" /etc/hosts
hostname ctl
ip link set lo up
ip link add br0 type bridge
ip addr add {controller}/24 dev br0
ip link set br0 up
munged --force --key-file="$W/munge.key" --socket="$W/munge.sock" --pid-file=/run/munged.pid \\
    --log-file="$W/log/munged.log" --seed-file="$W/munge.seed" 2>/dev/null
slurmctld -D -c >"$W/log/ctld.out" 2>&1 &
for node in n1 n2; do
    at=$((10 + ${{node#n}}))
    ip netns add $node
    ip link add v$node type veth peer name eth0 netns $node
    ip link set v$node master br0 up
    ip -n $node addr add 10.77.0.$at/24 dev eth0
    ip -n $node link set eth0 up
    ip -n $node link set lo up
    nsenter --net=/run/netns/$node unshare --mount --pid --uts --fork --kill-child --mount-proc bash -c "
        hostname $node
        mkdir -p /run/w /run/root
        mount --bind $W /run/w
        mount --bind {root} /run/root
        mount -t tmpfs tmpfs /tmp
        chmod 1777 /tmp
        mkdir -p $W {root}
        mount --bind /run/w $W
        mount --bind /run/root {root}
        mount -t tmpfs -o size=2g tmpfs /dev/shm
        mount -t tmpfs tmpfs /sys/fs/cgroup
        mkdir /tmp/slurmd
        exec slurmd -D" >"$W/log/$node.out" 2>&1 &
done
for _ in $(seq 60); do [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break; sleep 0.5; done
"$@"
"""
CONFIG = """
ClusterName=engram
SlurmctldHost=ctl({controller})
AuthType=auth/munge
AuthInfo=socket={work}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={work}/state
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile={work}/log/ctld.log
SlurmdLogFile={work}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=20
SlurmdTimeout=20
SlurmctldTimeout=20
InactiveLimit=0
MinJobAge=3600
SchedulerParameters=sched_interval=2,bf_interval=2,requeue_delay=2
GresTypes=gpu
{nodes}
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=60 State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs=4 RealMemory=8000 Gres=gpu:2 State=UNKNOWN\n"


def missing_parts() -> list[str]:
    """The missing requirements of a Slurm cluster on this machine."""
    absent = []
    for name in NEEDS:
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            absent.append(name)
    return absent if os.geteuid() == 0 else [*absent, "root"]


def run_on_cluster(work: Path, root: Path, script: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a shell script on the controller of a new cluster, which ends with it. Nodes can read `work` and `root`."""
    for folder in ("state", "log"):
        (work / folder).mkdir()
    names = {"ctl": CONTROLLER, **NODES}
    (work / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{names[name]} {name}\n" for name in names))
    (work / "munge.key").write_bytes(os.urandom(1024))
    (work / "munge.key").chmod(0o400)
    (work / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (work / "gres.conf").write_text("NodeName=n[1-2] Name=gpu File=/dev/tty[0-1]\n")
    nodes = "".join(NODE.format(name=name, address=address) for name, address in NODES.items())
    (work / "slurm.conf").write_text(CONFIG.format(controller=CONTROLLER, work=work, nodes=nodes))
    (work / "start.sh").write_text(START.format(controller=CONTROLLER, root=root))
    (work / "script.sh").write_text(script)
    env = os.environ | {"W": str(work), "SLURM_CONF": f"{work}/slurm.conf"}
    env["PATH"] += ":/usr/sbin:/sbin"
    alone = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    command = [*alone, "bash", str(work / "start.sh"), "bash", str(work / "script.sh")]
    return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=timeout)
