#include "train/cascade/cascade_mesh.h"

#include <string.h>

weft_mesh weft_cascade_mesh(weft_sp_method method, weft_sp_method context, int64_t clips,
                            int degree)
{
    const int shares = weft_cascade_shares(method, clips, degree), rest = degree / shares;
    const weft_sp_method by = method == WEFT_SP_NONE ? context : method;
    weft_mesh mesh = {0};
    if (shares > 1) {
        strcpy(mesh.axis[mesh.axis_count].name, "dp");
        mesh.axis[mesh.axis_count++].size = shares;
    }
    if (rest > 1) {
        strcpy(mesh.axis[mesh.axis_count].name, by == WEFT_SP_RING ? "ring" : "cp");
        mesh.axis[mesh.axis_count++].size = rest;
    }
    return mesh;
}
