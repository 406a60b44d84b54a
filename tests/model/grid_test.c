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

static void check_nearest(const weft_grid *grid)
{
    for (int64_t frames = 1; frames < 60; frames++) {
        const int64_t nearest = weft_grid_nearest_frames(grid, frames);
        cr_assert(weft_grid_takes_frames(grid, nearest));
        for (int64_t other = 1; other < 2 * frames; other++)
            cr_assert(!weft_grid_takes_frames(grid, other) ||
                      llabs(other - frames) >= llabs(nearest - frames));
    }
}

Test(grid, nearest_frames)
{
    for (int64_t factor = 1; factor < 9; factor++)
        for (int64_t group = 0; group < 4; group++)
            for (int causal = 0; causal < 2; causal++) {
                const weft_grid grid = {
                    .factor = {factor, 8, 8}, .group = group, .causal = causal != 0};
                const weft_grid clips = {
                    .factor = {factor, 8, 8}, .clip = group, .causal = causal != 0};
                check_nearest(&grid);
                check_nearest(&clips);
            }
}

/* Open-Sora 1.2: clips of 17 frames become 5 latent frames, and a video is shorter than a clip or has
 * whole clips. */
Test(grid, clips_are_whole)
{
    weft_model model;
    char rule[32];
    cr_assert_eq(weft_model_open("opensora-1.2-vae", &model), WEFT_OK, "%s", weft_error_message());
    const weft_grid grid = weft_model_grid(&model);
    static const struct {
        int64_t frames, latents;
    } known[] = {{1, 1}, {5, 2}, {13, 4}, {17, 5}, {34, 10}, {51, 15}, {102, 30}, {408, 120}};
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
        cr_expect(weft_grid_takes_frames(&grid, known[i].frames));
        cr_expect_eq(weft_grid_latent_frames(&grid, known[i].frames), known[i].latents);
        cr_expect_eq(weft_grid_frames(&grid, known[i].latents), known[i].frames);
    }
    for (int64_t frames = 18; frames < 34; frames++)
        cr_expect(!weft_grid_takes_frames(&grid, frames));
    cr_expect_str_eq(weft_grid_rule(&grid, rule), "17 n, or 1 + 4 n below 17");
}
