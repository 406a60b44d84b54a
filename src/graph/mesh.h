/* A mesh of ranks with named axes. Ranks are row major over the axes: the last varies fastest. */
#ifndef WEFT_GRAPH_MESH_H
#define WEFT_GRAPH_MESH_H

#include "graph/op.h"

typedef struct weft_mesh {
    int axis_count; /* 0: one rank */
    struct {
        char name[8];
        int size;
    } axis[WEFT_MAX_AXES];
} weft_mesh;

/* The axis of pipeline stages: its ranks have different parameters and nodes. */
#define WEFT_PP_STAGES_AXIS "pp"

/* Parses "dp=2,tp=3" (empty: one rank). */
weft_status weft_mesh_parse(const char *text, weft_mesh *mesh);
int weft_mesh_ranks(const weft_mesh *mesh);
int weft_mesh_axis(const weft_mesh *mesh, const char *name); /* -1: none */
void weft_mesh_coordinates(const weft_mesh *mesh, int rank, int coordinate[WEFT_MAX_AXES]);
/* Sets start and length of part `index` of `n` elements over `parts`: chunks of ceil(n / parts).
 * The last chunks are shorter, possibly empty:
 *
 *   n = 10, parts = 4     0 1 2 | 3 4 5 | 6 7 8 | 9 */
void weft_part(int64_t n, int parts, int index, int64_t *start, int64_t *len);
/* A contiguous range: items of a batch, units of a clip. */
typedef struct weft_item_range {
    int64_t first, count;
} weft_item_range;

/* The dim along which a tensor is best split into `parts`: the first divisible one, else the
 * longest. -1 for a scalar. */
int weft_part_dim(const weft_shape *shape, int parts);

#endif
