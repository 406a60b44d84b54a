#include "train/cascade_encode.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceiling(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

static int64_t pieces_of(const weft_cascade_row *row)
{
    return row->piece && row->units > row->piece ? row->units / row->piece : 1;
}

/* Units before piece `index`. */
static int64_t units_before(const weft_cascade_row *row, int64_t index)
{
    return index ? row->units - (pieces_of(row) - index) * row->piece : 0;
}

weft_cascade_share weft_cascade_share_of(const weft_cascade_row *row, int64_t clips, int64_t degree,
                                         int64_t member)
{
    const int64_t pieces = pieces_of(row);
    int64_t groups = 1, parts = 1, least = INT64_MAX, first, count;
    for (int64_t t = 1; t <= smaller(pieces, degree); t++) {
        const int64_t g = smaller(degree / t, clips), work = ceiling(clips, g) * ceiling(pieces, t);
        if (work < least) { /* with fewer parts it was more: none of them is empty */
            least = work;
            groups = g;
            parts = t;
        }
    }
    weft_cascade_share s = {.part = (int)(member % parts), .parts = (int)parts};
    if (member >= groups * parts)
        return s;
    weft_part(clips, (int)groups, (int)(member / parts), &s.clips.first, &s.clips.count);
    weft_part(pieces, s.parts, s.part, &first, &count);
    s.units.first = units_before(row, first);
    s.units.count =
        (first + count < pieces ? units_before(row, first + count) : row->units) - s.units.first;
    return s;
}

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

void weft_encoder_part_place(weft_place_of_run *place, int part, int parts)
{
    static const weft_recipe_list list = {axis, "frames of a clip", NULL, 0};
    static const weft_recipe_list *const lists[] = {&list};
    place->kind = WEFT_STEP_WHOLE;
    if (parts == 1)
        return;
    place->kind = WEFT_STEP_SHARE;
    place->mesh = (weft_mesh){.axis_count = 1, .axis = {{.size = parts}}};
    memcpy(place->mesh.axis[0].name, axis, sizeof axis);
    place->rank = part;
    place->recipes = lists;
    place->recipe_count = 1;
}
