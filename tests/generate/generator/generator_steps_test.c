/* Random values of the sampler's noise: no two draws of a video share one, and a frame has the same
 * ones with and without a cache of given frames. */
#include "generate/generator/generator_steps.h"

#include "generate/generator/generator_parts.h"

#include <criterion/criterion.h>

enum { FRAME = 12, MOST = 64 };
static weft_generator p;
static uint64_t begin[MOST], end[MOST];
static int count;

static void draw_all(int64_t first, int64_t draws)
{
    for (int64_t i = first; i < first + draws; i++, count++) {
        begin[count] = weft_steps_noise_at(&p, i);
        end[count] = begin[count] + (uint64_t)p.shape.sampled_floats;
    }
}

static void expect_apart(void)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            cr_expect(end[k] <= begin[i] || end[i] <= begin[k], "draws %d and %d share values", k,
                      i);
}

/* The first steps of an edited image denoise 8 frames, the others two. */
Test(generator_steps, draws_with_and_without_reasoning_frames_share_no_values)
{
    p.shape.reasoning_steps = 3;
    p.shape.begun_floats = p.shape.sampled_floats = 8 * FRAME;
    draw_all(0, 3);
    p.shape.sampled_floats = 2 * FRAME;
    draw_all(3, 12);
    expect_apart();
}

Test(generator_steps, draws_of_stages_and_sections_share_no_values)
{
    p.shape.stages = 3;
    for (p.sampling.section = 0; p.sampling.section < 2; p.sampling.section++)
        for (p.shape.stage = 0; p.shape.stage < 3; p.shape.stage++) {
            p.shape.sampled_floats = (int64_t)FRAME << 2 * p.shape.stage;
            draw_all(0, 6);
        }
    expect_apart();
}

Test(generator_steps, frames_after_kept_ones_have_the_noise_of_all_frames)
{
    weft_generator all = {.shape = {.latent_floats = 6 * FRAME, .sampled_floats = 6 * FRAME}};
    weft_generator after = {
        .shape = {.kept = 2, .latent_floats = 6 * FRAME, .sampled_floats = 4 * FRAME}};
    for (int64_t draw = 0; draw < 4; draw++)
        cr_expect_eq(weft_steps_noise_at(&after, draw),
                     weft_steps_noise_at(&all, draw) + (uint64_t)(2 * FRAME));
}
