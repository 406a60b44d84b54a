"""ray_cluster.py FILE: a Ray cluster of a head without processors and two nodes of one processor.
Writes its address to FILE, and runs until its standard input ends."""
import sys

from ray.cluster_utils import Cluster

memory = 80 << 20
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": memory})
for _ in range(2):
    cluster.add_node(num_cpus=1, object_store_memory=memory)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(cluster.address + "\n")
sys.stdin.read()
cluster.shutdown()
