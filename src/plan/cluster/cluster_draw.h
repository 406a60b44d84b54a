#ifndef WEFT_PLAN_CLUSTER_CLUSTER_DRAW_H
#define WEFT_PLAN_CLUSTER_CLUSTER_DRAW_H

#include "plan/cluster/cluster.h"

/* Writes an SVG of the cluster to `path`, atomically. */
weft_status weft_cluster_draw(const weft_cluster *cluster, const char *path);

#endif
