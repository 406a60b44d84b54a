#include "train/cascade/cascade_encoders.h"

#include <string.h>

weft_item_range weft_encoder_frames(const weft_grid *grid, weft_item_range units)
{
    const int64_t first = units.first ? weft_grid_frames(grid, units.first) : 0;
    return (weft_item_range){first, weft_grid_frames(grid, units.first + units.count) - first};
}

static const char axis[] = "time";

weft_graph *weft_encoder_part(const weft_model *autoencoder, const weft_bucket *bucket,
                              const weft_cascade_share *share)
{
    const weft_grid grid = weft_model_grid(autoencoder);
    weft_graph *g = weft_graph_create();
    weft_bucket size = *bucket;
    size.batch = 1;
    if (!g)
        return NULL;
    if (share->parts > 1) {
        weft_mesh mesh = {.axis_count = 1, .axis = {{.size = share->parts}}};
        memcpy(mesh.axis[0].name, axis, sizeof axis);
        weft_graph_set_mesh(g, &mesh, share->part);
        size.frames = weft_encoder_frames(&grid, share->units).count;
    }
    weft_encoder_build(g, autoencoder, &size);
    return g;
}

void weft_encoder_part_setup(weft_exec_config *exec, int part, int parts)
{
    static const weft_recipe_list list = {axis, "frames of a clip", NULL, 0};
    static const weft_recipe_list *const lists[] = {&list};
    exec->kind = WEFT_STEP_WHOLE;
    if (parts == 1)
        return;
    exec->kind = WEFT_STEP_SHARE;
    exec->mesh = (weft_mesh){.axis_count = 1, .axis = {{.size = parts}}};
    memcpy(exec->mesh.axis[0].name, axis, sizeof axis);
    exec->rank = part;
    exec->recipes = lists;
    exec->recipe_count = 1;
}
