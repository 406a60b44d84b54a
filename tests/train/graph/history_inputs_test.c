/* The history that training gives a section is the one that generation gives the same section of a
 * video of the same frames: all inputs are bitwise equal. Sections are drawn evenly. */
#include "../../model_of.h"
#include "exec/execute.h"
#include "generate/generator/generator_rows.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "train/graph/history_inputs.h"
#include "train/step/train_step.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 4, SIDE = 4, FRAME = SIDE * SIDE * CHANNELS, MOST_FRAMES = 32 };
static const char framepack[] =
    "{\"_class_name\":\"HunyuanVideoFramepackTransformer3DModel\",\"in_channels\":4,"
    "\"out_channels\":4,\"num_attention_heads\":2,\"attention_head_dim\":8,\"num_layers\":1,"
    "\"num_single_layers\":1,\"num_refiner_layers\":1,\"rope_axes_dim\":[4,2,2],"
    "\"has_image_proj\":true,\"has_clean_x_embedder\":true}",
                  helios[] =
                      "{\"_class_name\":\"HeliosTransformer3DModel\",\"in_channels\":4,"
                      "\"out_channels\":4,\"num_attention_heads\":2,\"attention_head_dim\":8,"
                      "\"num_layers\":1,\"rope_dim\":[4,2,2]}";

static const char *const names[] = {
    "batch.latents",    "batch.index",         "batch.history",          "batch.history_2x",
    "batch.history_4x", "batch.history_index", "batch.history_2x_index", "batch.history_4x_index"};

/* A program with the inputs of a section. */
static weft_step inputs_of(const weft_run_models *m, weft_store *store)
{
    const weft_model_size size = {
        .batch = 1, .frames = m->sections.frames, .height = SIDE, .width = SIDE};
    const weft_exec_config place = {.backend = &weft_backend_cpu};
    weft_graph *g = weft_graph_create();
    weft_ports ports = weft_ports_none();
    weft_step step = {0};
    ports.at[WEFT_PORT_LATENTS] =
        weft_model_input(g, &m->denoiser, &size, WEFT_PORT_LATENTS, "batch.");
    weft_history_inputs_build(g, m, &size, &ports);
    for (int i = 0; i < WEFT_COUNT(names); i++)
        weft_output(g, names[i] + 6, weft_mean_all(g, weft_graph_find(g, names[i])));
    cr_assert_eq(weft_step_plan(g, NULL, &place, &step), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_store_init(store, step.graph, 0), WEFT_OK);
    cr_assert_eq(weft_program_bind(step.program, store, NULL), WEFT_OK, "%s", weft_error_message());
    return step;
}

static weft_tensor *find_input(void *user, const char *name)
{
    return weft_program_input(user, name);
}

static void expect_same(const char *config, weft_video_sections kind, int64_t count)
{
    weft_run_models m = {.denoiser = model_of(config), .sections = kind};
    const int64_t frames = !kind.precedes + count * kind.frames;
    const weft_video_sections s = weft_history_inputs_sections(&m, frames);
    float x[MOST_FRAMES * FRAME];
    weft_store *store = weft_store_create();
    weft_step trained = inputs_of(&m, store), generated = inputs_of(&m, store);
    cr_assert(s.count == count && frames <= MOST_FRAMES);
    for (int64_t i = 0; i < frames * FRAME; i++)
        x[i] = (float)(i + 1);
    m.grid = (weft_grid){.channels = CHANNELS};
    for (int c = 0; c < CHANNELS; c++)
        m.grid.deviation[c] = 1;
    weft_generator generator;
    memset(&generator, 0, sizeof generator);
    generator.model.denoiser[0] = m.denoiser;
    generator.model.grid = m.grid;
    generator.shape.sections = s;
    generator.shape.latent[0] = frames;
    generator.shape.latent[1] = generator.shape.latent[2] = SIDE;
    generator.shape.latent_floats = frames * FRAME;
    generator.shape.windows.window = s.frames;
    generator.model.patch.factor[0] = 1;
    generator.memory.x = x;
    const weft_noise_level level = {.in = 1};
    const weft_denoiser_query query = {generated.program, &level, 0, NULL};
    for (int64_t at = 0; at < count; at++) {
        const weft_history_clip clip = {&m.grid, x, FRAME, 1};
        generator.sampling.section = at;
        weft_history_inputs_fill(&s, at, &clip, 0, find_input, trained.program);
        weft_generator_fill_row(&generator, &query, 0, true,
                                x + weft_video_section_first(&s, at) * FRAME);
        for (int i = 0; i < WEFT_COUNT(names); i++) {
            const weft_tensor *a = weft_program_input(trained.program, names[i]),
                              *b = weft_program_input(generated.program, names[i]);
            cr_expect(!memcmp(a->data, b->data, (size_t)weft_shape_count(&a->shape) * 4),
                      "section %d of %d: %s differs", (int)at, (int)count, names[i]);
        }
    }
    weft_program_unbind(trained.program);
    weft_program_unbind(generated.program);
    weft_step_free(&trained);
    weft_step_free(&generated);
    weft_store_free(store);
}

Test(history_inputs, equal_those_of_generation)
{
    const weft_video_sections reverse = {.frames = 3}, forward = {.frames = 4, .forward = true},
                              before = {.frames = 2, .forward = true, .precedes = true};
    for (int64_t count = 1; count <= 7; count += 2) {
        expect_same(framepack, reverse, count);
        expect_same(framepack, forward, count);
        expect_same(helios, before, count);
    }
}

/* A draw depends on the key only. */
Test(history_inputs, sections_are_drawn_evenly)
{
    enum { COUNT = 4, KEYS = 4000 };
    const weft_video_sections s = {.frames = 2, .count = COUNT};
    int64_t drawn[COUNT] = {0};
    for (int64_t key = 0; key < KEYS; key++) {
        const int64_t at = weft_history_inputs_draw(&s, key);
        cr_assert(at >= 0 && at < COUNT && at == weft_history_inputs_draw(&s, key));
        drawn[at]++;
    }
    for (int i = 0; i < COUNT; i++) /* five deviations of a binomial draw */
        cr_expect(llabs(drawn[i] - KEYS / COUNT) < 140, "section %d: %d of %d", i, (int)drawn[i],
                  KEYS);
}
