"""`python -m tests.loadgen.ray_cluster FOLDER`: a Ray cluster of two nodes in this machine.

It binds loopback alone and reports to nobody. The first line on stdout is its address; at the end
of stdin it is gone. A process of its own, so that pytest never imports Ray.
"""

from __future__ import annotations

import os
import sys

# Else Ray takes the machine's outer address even where it is told 127.0.0.1, and listens on all.
LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
NODE = {
    "num_cpus": 2,
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}


def main(folder: str) -> None:
    os.environ.update(LOOPBACK, RAY_TMPDIR=folder)
    os.makedirs(os.path.join(folder, "ray"), exist_ok=True)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        cluster.add_node(**NODE)
        print(cluster.address, flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
