/* Frame counts of an autoencoder's grid: its graph can be built for each, and the nearest count to any
 * number is a legal one. */
#include "graph/graph.h"
#include "model/family.h"
#include "model/model.h"
#include "model/registry.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { MOST = 42 };

static bool builds(const weft_model *model, int64_t frames)
{
    weft_model_size size = weft_model_smallest(model);
    size.frames = frames;
    weft_graph *g = weft_graph_create();
    weft_model_build(g, model, &size, false);
    const bool built = weft_graph_check(g) == WEFT_OK;
    weft_graph_free(g);
    return built;
}

Test(grid, frames_of_every_autoencoder)
{
    for (int i = 0; weft_families[i]; i++) {
        weft_model model;
        if (weft_families[i]->role != WEFT_ROLE_AUTOENCODER)
            continue;
        cr_assert_eq(weft_model_default(weft_families[i]->class_name, &model), WEFT_OK, "%s",
                     weft_error_message());
        const weft_grid grid = weft_model_grid(&model);
        for (int64_t frames = 1; frames < MOST; frames++) {
            if (weft_grid_takes_frames(&grid, frames))
                cr_expect(builds(&model, frames), "%s: %" PRId64 " frames: %s",
                          weft_families[i]->class_name, frames, weft_error_message());
        }
    }
}

Test(grid, nearest_frames)
{
    for (int64_t factor = 1; factor < 9; factor++)
        for (int64_t group = 0; group < 4; group++)
            for (int causal = 0; causal < 2; causal++) {
                const weft_grid grid = {
                    .factor = {factor, 8, 8}, .group = group, .causal = causal != 0};
                for (int64_t frames = 1; frames < 60; frames++) {
                    const int64_t nearest = weft_grid_nearest_frames(&grid, frames);
                    cr_assert(weft_grid_takes_frames(&grid, nearest));
                    for (int64_t other = 1; other < 2 * frames; other++)
                        cr_assert(!weft_grid_takes_frames(&grid, other) ||
                                  llabs(other - frames) >= llabs(nearest - frames));
                }
            }
}
