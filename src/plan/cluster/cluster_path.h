#ifndef WEFT_PLAN_CLUSTER_CLUSTER_PATH_H
#define WEFT_PLAN_CLUSTER_CLUSTER_PATH_H

#include "plan/cluster/cluster.h"

/* Returns the achieved FLOP/s of a kind of work in `dtype`. */
double weft_device_flops(const weft_device_type *device, weft_work kind, weft_dtype dtype);
/* Returns the achieved bytes per second of the device memory. */
double weft_device_bytes(const weft_device_type *device);
/* Returns the seconds of an operator of f32 on one device: the larger of FLOPs at the achieved rate
 * of its kind and bytes at the achieved memory rate. */
double weft_device_seconds(const weft_device_type *device, weft_work kind, double flops,
                           double bytes);
/* Returns the seconds of one kernel that computes in `dtype`: the launch, and its operator. Virtual
 * devices charge the same (kernel/virtual/virtual.h). */
double weft_kernel_seconds(const weft_device_type *device, weft_work kind, weft_dtype dtype,
                           double flops, double bytes);
double weft_op_forward_seconds(const weft_device_type *device, const weft_op_cost *op);
double weft_op_backward_seconds(const weft_device_type *device, const weft_op_cost *op);
int64_t weft_cluster_link_count(const weft_cluster *cluster);
double weft_cluster_link_bandwidth(const weft_cluster *cluster, int64_t link);
/* Writes a name such as "node 3 device 1 out", "node 0 nic 2 in", "switch spine up". */
void weft_cluster_link_name(const weft_cluster *cluster, int64_t link, char text[64]);
/* Sets the path from device to device. Between nodes a device uses its nearest NIC. Devices with
 * several nearest NICs are spread over these NICs by their index. from == to: no links. */
void weft_cluster_path(const weft_cluster *cluster, int64_t from, int64_t to, weft_path *path);
/* Sets the path from a device to the host memory of its node (out) or back. */
void weft_cluster_host_path(const weft_cluster *cluster, int64_t device, bool out, weft_path *path);
/* Returns the index in the node of the NIC that a device uses; -1: the node has no NIC. */
int64_t weft_cluster_device_nic(const weft_cluster *cluster, int64_t device_in_node);
/* Seconds of a collective of `bytes` per rank without other traffic: a ring; a short all-reduce in
 * log2(ranks) rounds, in which partners exchange whole sums; an all-to-all in pairs. */
double weft_cluster_collective_seconds(const weft_cluster *cluster, weft_collective kind,
                                       int64_t ranks, int64_t per_node, double bytes);

#endif
