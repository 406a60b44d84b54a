/* Shards a graph over one mesh axis. */
#ifndef WEFT_TRANSFORM_SHARDING_SHARD_AXIS_H
#define WEFT_TRANSFORM_SHARDING_SHARD_AXIS_H

#include "transform/sharding/shard_values.h"

/* Chooses the layouts of all nodes and emits `to`. Sets `plan`, one per node of
 * axis->from. `overlap`: portions of exchanges; NULL: exchanges are undivided. *changed: early
 * splits changed the plan, so the graph must be emitted again with weft_shard_axis_emit. */
weft_status weft_shard_axis_plan(const weft_axis *axis, const weft_comm_overlap *overlap,
                                 weft_graph *to, weft_node_plan *plan, bool *changed);
/* Emits `to` by a complete plan. */
weft_status weft_shard_axis_emit(const weft_axis *axis, weft_graph *to, weft_node_plan *plan);

#endif
