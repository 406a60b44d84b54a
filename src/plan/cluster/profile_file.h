/* Profile: one machine's figures and the measured seconds of weft's own kernels, in one file. plan,
 * simulate and inspect accept it in place of a cluster.
 *
 *   {"format": "weft.profile/1", "weft": VERSION, "machine": "CPU x 2", "threads": 1, "ranks": 2,
 *    "drag": 0..1, "memory": B, "host_bandwidth": B/s,
 *    "flops": F/s, "gemm": 0..1, "attention": 0..1, "conv": 0..1, "memory_bandwidth": B/s,
 *    "bf16": {"flops": F/s, "gemm": 0..1, "attention": 0..1, "conv": 0..1},
 *    "rates": [{"node": key, "flops": F, "bytes": B, "seconds": s}, ...],
 *    "exchanges": [{"op": "all_reduce", "ranks": 2, "bytes": B, "seconds": s}, ...],
 *    "touch": s, "programs": [{"program": id, "what": "cfg=2, denoiser", "seconds": s}, ...], ...}
 *
 * flops, gemm, attention and conv are of f32. Without "bf16" (profiles of older versions) they are
 * also of bf16. "memory" is of the device; "host_bandwidth" is of its copies to the host, and
 * only profiles of devices with memory of their own have it. Measured by one process, or by several
 * at the same time, as ranks of a run. */
#ifndef WEFT_PLAN_PROFILE_FILE_H
#define WEFT_PLAN_PROFILE_FILE_H

#include "base/json.h"
#include "plan/cluster/cluster.h"
#include "plan/ops/rates.h"

#define WEFT_PROFILE_FORMAT "weft.profile/1"

/* Adds the keys above to `json`. */
weft_status weft_profile_to_json(const weft_device_type *device, const weft_rates *rates,
                                 json_t *json);
/* Loads a profile as a cluster of one node with one device, allocated in `arena`. */
weft_status weft_profile_load(weft_arena *arena, const char *path, weft_cluster *out);

#endif
