/* Keys and values that a block of frames sees, compared with a list of all frames: for windows and
 * numbers of first frames that blocks divide and do not divide. */
#include "exec/execute.h"
#include "exec/program.h"
#include "model/frame_cache.h"

#include <criterion/criterion.h>
#include <string.h>

enum { BLOCK = 2, BLOCKS = 6, ROWS = 1, COLUMNS = 3, FRAME = 3, HEADS = 2, HALF = 2, ALL = 64 };

/* The value of each element of a frame's keys or values. */
static float value_of(int64_t frame, bool key)
{
    return (float)(1 + 2 * frame + key);
}

/* A graph whose outputs are the joined keys and values. */
typedef struct runner {
    weft_graph *graph;
    weft_program *program;
} runner;

static runner open(const weft_frame_cache_size *size, weft_dtype dtype, bool adds,
                   weft_store *store)
{
    runner r = {.graph = weft_graph_create()};
    weft_frame_cache cache = {.size = *size, .dtype = dtype, .adds = adds};
    const weft_shape block = WEFT_SHAPE(1, BLOCK * FRAME, HEADS, HALF);
    weft_value kv[2] = {weft_input(r.graph, "k", WEFT_F32, block),
                        weft_input(r.graph, "v", WEFT_F32, block)};
    weft_frame_cache_inputs(r.graph, &cache, 1, ROWS, COLUMNS);
    weft_frame_cache_join(r.graph, &cache, 0, kv, kv);
    weft_output(r.graph, "keys", kv[0]);
    weft_output(r.graph, "values", kv[1]);
    cr_assert_eq(weft_graph_check(r.graph), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_store_init(store, r.graph, 1), WEFT_OK);
    cr_assert_eq(weft_program_compile(r.graph, &(weft_program_options){0}, &r.program), WEFT_OK,
                 "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(r.program, store, NULL), WEFT_OK, "%s", weft_error_message());
    return r;
}

static void close_runner(runner *r)
{
    weft_program_free(r->program);
    weft_graph_free(r->graph);
}

static void run_block(const runner *r, const weft_frame_cache_size *size, int64_t at)
{
    float *k = weft_program_input(r->program, "k")->data,
          *v = weft_program_input(r->program, "v")->data;
    const weft_tensor *turn = weft_program_input(r->program, "block.turn");
    for (int64_t i = 0; i < BLOCK * FRAME * HEADS * HALF; i++) {
        k[i] = value_of(at * BLOCK + i / (FRAME * HEADS * HALF), true);
        v[i] = value_of(at * BLOCK + i / (FRAME * HEADS * HALF), false);
    }
    for (int i = 0; turn && i < 3; i++)
        ((float *)turn->data)[i] = weft_frame_cache_turn(size, at) == i;
    cr_assert_eq(weft_program_run(r->program), WEFT_OK, "%s", weft_error_message());
}

/* Frames that block `at` sees, earlier ones first, then the first of the video, then its own. */
static int list_frames(const weft_grid *grid, int64_t at, int64_t frame[ALL])
{
    const int64_t end = (at + 1) * BLOCK, own = at * BLOCK,
                  window = grid->window && grid->window < BLOCKS * BLOCK ? grid->window : 0,
                  sink = window ? grid->sink : 0, rest = window ? window - BLOCK - sink : own;
    int count = 0;
    for (int64_t f = sink > own - rest ? sink : own - rest; f < own; f++)
        frame[count++] = f;
    for (int64_t f = 0; f < sink && f < own; f++)
        frame[count++] = f;
    for (int64_t f = own; f < end; f++)
        frame[count++] = f;
    return count;
}

static void check_window(weft_dtype dtype, int64_t window, int64_t sink)
{
    const weft_grid grid = {.block = BLOCK, .window = window, .sink = sink};
    const weft_frame_cache_size size = weft_frame_cache_of(&grid, BLOCKS * BLOCK);
    const int64_t frame = FRAME * HEADS * HALF;
    weft_store *store = weft_store_create();
    runner looks = open(&size, dtype, false, store), adds = open(&size, dtype, true, store);
    for (int64_t at = 0; at < BLOCKS; at++) {
        int64_t seen[ALL];
        const int count = list_frames(&grid, at, seen);
        const int64_t begin = weft_frame_cache_begin(&size, at);
        run_block(&looks, &size, at); /* twice, as in two steps */
        run_block(&looks, &size, at);
        const float *keys = weft_program_output(looks.program, "keys")->data,
                    *values = weft_program_output(looks.program, "values")->data;
        cr_expect_eq(size.rest + size.sink + BLOCK - begin, count, "window %d, sink %d, block %d",
                     (int)window, (int)sink, (int)at);
        for (int64_t i = 0; i < count * frame; i++) {
            const int64_t k = begin * frame + i;
            cr_assert(keys[k] == value_of(seen[i / frame], true) &&
                          values[k] == value_of(seen[i / frame], false),
                      "window %d, sink %d, block %d: key %d is %g, not of frame %d", (int)window,
                      (int)sink, (int)at, (int)i, (double)keys[k], (int)seen[i / frame]);
        }
        run_block(&adds, &size, at);
    }
    close_runner(&looks);
    close_runner(&adds);
    weft_store_free(store);
}

Test(frame_cache, keeps_the_frames_of_its_window)
{
    static const int64_t cases[][2] = {{0, 0}, {2, 0}, {3, 0}, {4, 0}, {7, 0},  {3, 1},
                                       {5, 1}, {4, 2}, {6, 2}, {7, 3}, {10, 5}, {12, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_window(WEFT_F32, cases[i][0], cases[i][1]);
        check_window(WEFT_BF16, cases[i][0], cases[i][1]); /* holds these numbers exactly */
    }
}
