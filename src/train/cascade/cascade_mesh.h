/* Mesh of the ranks that execute one cascade together. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_MESH_H
#define WEFT_TRAIN_CASCADE_CASCADE_MESH_H

#include "graph/mesh.h"
#include "plan/cascade/transfer_plan.h"

/* Returns the mesh of a cascade of `clips` clips on `degree` ranks (weft_cascade_shares). `context`
 * splits the tokens if `method` is NONE. */
weft_mesh weft_cascade_mesh(weft_sp_method method, weft_sp_method context, int64_t clips,
                            int degree);

#endif
