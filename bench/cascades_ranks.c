#include "cascades_ranks.h"

#include "graph/builder_helpers.h"
#include "model/family.h"
#include "model/tiling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bench_ranks all;

static const char folded[] =
    "{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_layers\":2,\"num_single_layers\":4}";

/* Weights of encoders, shared by all ranks: each weight needs memory maps, and a process has a
 * limited number. */
static weft_store *frozen;

/* ---- the transformer ------------------------------------------------------------------------ */

enum { CAPTION = 256 };

static weft_status make_graph(void *user, int bucket, weft_graph **out)
{
    const weft_bucket *b = &all.size[bucket];
    weft_model_size size = {.batch = b->batch,
                            .frames = (b->frames - 1) / 4 + 1,
                            .height = (b->height + 15) / 16 * 2,
                            .width = (b->width + 15) / 16 * 2,
                            .text = CAPTION};
    const weft_family *f = all.denoiser.family;
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    (void)user;
    if (!g)
        return weft_no_memory("the benchmark");
    for (int i = 0; i < f->ports; i++)
        if (!f->port[i].output && weft_model_takes(&all.denoiser, f->port[i].port) &&
            !f->port[i].optional)
            p.at[f->port[i].port] =
                weft_model_input(g, &all.denoiser, &size, f->port[i].port, "batch.");
    weft_model_call(g, &all.denoiser, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    const weft_value y = p.at[WEFT_PORT_PREDICTION];
    const weft_value target = weft_input(g, "batch.target", WEFT_F32, weft_value_get(g, y)->shape);
    weft_output(g, "objective",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, target))));
    *out = g;
    return weft_graph_check(g);
}

/* Program of a cascade on a rank. */
static double factor_of(const simulated_rank *r, int32_t index)
{
    return (all.factor[index] > 0 ? all.factor[index] : 1) * (r->index == all.slow ? SLOW : 1);
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step,
                        const weft_received_latents handed[WEFT_CASCADE_MODULES])
{
    simulated_rank *r = user;
    (void)plan, (void)step, (void)handed;
    r->factor = factor_of(r, index);
    return WEFT_OK;
}

/* ---- encoders ------------------------------------------------------------------------------- */

/* The tiles of a clip of this bucket, by the autoencoder's own rule. */
static weft_tiling tiling_of(int bucket)
{
    const weft_bucket *b = &all.size[bucket];
    const int64_t pixels[] = {b->frames, b->height, b->width};
    const weft_tile tile = {.on = true};
    weft_tiling t;
    check(weft_tiling_of(&all.autoencoder, &tile, false, pixels, &t));
    return t;
}

static int64_t tiles_of(const weft_tiling *t)
{
    return weft_tiling_count(t, 0) * weft_tiling_count(t, 1) * weft_tiling_count(t, 2);
}

/* A unit is a tile, so that the ranks of a cascade share a clip's tiles. */
weft_cascade_row row_of(void *user, int bucket, weft_cascade_module module)
{
    const weft_bucket *b = &all.size[bucket];
    (void)user;
    if (module != WEFT_CASCADE_VAE)
        return (weft_cascade_row){1, CAPTION * 4096 / 2 / FOLD, 1, NULL};
    const weft_tiling t = tiling_of(bucket);
    const int64_t tiles = tiles_of(&t);
    const int64_t floats =
        ((b->frames - 1) / 4 + 1) * (b->height / 8) * (b->width / 8) * 16 / 2 / FOLD;
    return (weft_cascade_row){tiles, (floats + tiles - 1) / tiles, 1, NULL};
}

/* A tile's frames, rows and columns; none: a caption. */
typedef struct encoded {
    int64_t side[3];
} encoded;

static weft_status make_encoder(void *user, weft_graph **out)
{
    const encoded *e = user;
    const bool tile = e->side[0] > 0;
    const weft_model *m = tile ? &all.autoencoder : &all.reader;
    const weft_model_size size = {.batch = 1,
                                  .frames = e->side[0],
                                  .height = e->side[1],
                                  .width = e->side[2],
                                  .text = CAPTION};
    const weft_port from = tile ? WEFT_PORT_VIDEO : WEFT_PORT_TOKENS,
                    to = tile ? WEFT_PORT_MEAN : WEFT_PORT_TEXT;
    const weft_call call = {tile ? WEFT_CALL_ENCODE : WEFT_CALL_FORWARD, WEFT_STREAM_ALONE};
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    if (!g)
        return weft_no_memory("the benchmark");
    p.at[from] = weft_model_input(g, m, &size, from, "batch.");
    weft_model_call(g, m, call, true, &p);
    weft_output(g, "encoded", p.at[to]);
    *out = g;
    return weft_graph_check(g);
}

static weft_status run_encoder(simulated_rank *r, encoded e)
{
    const uint64_t key =
        1 + (uint64_t)((e.side[0] << 32) | (e.side[1] << 16) | e.side[2]); /* sides below 2^16 */
    const weft_cascade_forward f = {.key = key, .store = frozen, .make = make_encoder, .user = &e};
    const weft_step *step;
    WEFT_TRY(weft_cascade_run_forward(r->run, &f, &step));
    return weft_cascade_run_encoder(r->run, step);
}

static encoded tile_at(const weft_tiling *t, int64_t unit)
{
    encoded e;
    for (int side = 2; side >= 0; side--) {
        const int64_t count = weft_tiling_count(t, side);
        e.side[side] = weft_tiling_length(t, side, unit % count);
        unit /= count;
    }
    return e;
}

double tile_pixels(int bucket, int degree)
{
    const weft_tiling t = tiling_of(bucket);
    const weft_cascade_row row = row_of(NULL, bucket, WEFT_CASCADE_VAE);
    double most = 0;
    for (int i = 0; i < degree; i++) {
        const weft_cascade_share s = weft_cascade_share_of(&row, all.size[bucket].batch, degree, i);
        double pixels = 0;
        for (int64_t u = 0; u < s.units.count; u++) {
            const encoded e = tile_at(&t, s.units.first + u);
            pixels += (double)(e.side[0] * e.side[1] * e.side[2]);
        }
        most = fmax(most, pixels * (double)s.clips.count);
    }
    return most;
}

/* Kernels take a tenth of their seconds, as the transformer has a tenth of its blocks. */
static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group,
                          const weft_latent_rows *rows)
{
    simulated_rank *r = user;
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_tiling t = tiling_of(plan->sample[c->sample].bucket);
    (void)group, (void)rows;
    r->factor = factor_of(r, index) / FOLD;
    for (int64_t clip = 0; clip < share->clips.count; clip++) {
        if (c->module == WEFT_CASCADE_TEXT)
            WEFT_TRY(run_encoder(r, (encoded){{0}}));
        for (int64_t u = 0; c->module == WEFT_CASCADE_VAE && u < share->units.count; u++)
            WEFT_TRY(run_encoder(r, tile_at(&t, share->units.first + u)));
    }
    r->factor = factor_of(r, index);
    return WEFT_OK;
}

/* ---- one iteration by all ------------------------------------------------------------------- */

double seconds_of(const weft_placed_iteration *plan, int64_t index)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    double start = 0, end = 0, most = 0;
    for (int64_t i = 0; i < c->at.degree; i++) {
        const weft_cascade_timing *d = &simulated.done[c->at.device[i]][index];
        start = fmax(start, d->start);
        end = fmax(end, d->end);
        most = fmax(most, d->end - d->start);
    }
    return c->module == WEFT_CASCADE_DIT ? end - start : most;
}

double end_of(const weft_placed_iteration *plan, int64_t index)
{
    const weft_assigned *at = &plan->cascade[index].at;
    double end = 0;
    for (int64_t i = 0; i < at->degree; i++)
        end = fmax(end, simulated.done[at->device[i]][index].end);
    return end;
}

executed execute(const weft_placed_iteration *plan)
{
    executed e = {0};
    double busy = 0;
    simulated_run(plan);
    plan = simulated.executed;
    for (int64_t c = 0; c < plan->cascades; c++) {
        busy += seconds_of(plan, c) * (double)plan->cascade[c].at.degree;
        e.makespan = fmax(e.makespan, end_of(plan, c));
    }
    for (int r = 0; r < all.ranks; r++) {
        const weft_iteration_done *d = &simulated.of[r];
        if (d->own > e.own) {
            e.own = d->own;
            e.running = d->running;
            e.taking = d->taking;
        }
        e.exposed = fmax(e.exposed, d->summed - e.makespan);
        e.made += simulated.made[r];
    }
    e.idle = 1 - busy / (e.makespan * all.ranks);
    return e;
}

/* ---- begin and end -------------------------------------------------------------------------- */

static void read_models(void)
{
    json_t *json;
    check(weft_json_parse(folded, (int64_t)strlen(folded), "bench", &json));
    check(weft_model_read(json, "bench", &all.denoiser));
    json_decref(json);
    check(weft_model_open("hunyuan-video-vae", &all.autoencoder));
    check(weft_model_open("llama3-8b", &all.reader));
}

/* All that encoders keep, so that ranks only read the store. */
static void fill_frozen(void)
{
    const weft_tiling t = tiling_of(0);
    encoded of[] = {tile_at(&t, 0), {{0}}};
    frozen = weft_store_create_on(&weft_device_virtual);
    for (size_t i = 0; i < WEFT_COUNT(of); i++) {
        weft_graph *g;
        check(make_encoder(&of[i], &g));
        check(weft_store_init(frozen, g, 0));
        weft_graph_free(g);
    }
}

void ranks_begin(weft_arena *arena, int nodes, bool slow_links, const weft_workload *stage)
{
    char spec[32];
    const weft_link_model links = {.between = {slow_links ? 1.25e9 : 50e9, 5e-6},
                                   .inside = {450e9, 2e-6},
                                   .per_node = 8,
                                   .clocked = true};
    snprintf(spec, sizeof spec, "h100:%d", nodes);
    all.between = links.between.bytes_per_second;
    all.slow = -1;
    check(weft_cluster_load(arena, spec, &all.cluster));
    all.ranks = (int)weft_cluster_devices(&all.cluster);
    all.buckets = (int)stage->count;
    const weft_device_type *d = &all.cluster.device;
    simulated_setup setup = {.ranks = all.ranks,
                             .per_node = (int)all.cluster.devices,
                             .links = links,
                             .flops = d->flops * d->gemm,
                             .bytes = d->memory_bandwidth * d->memory_fraction,
                             .denoiser = &all.denoiser,
                             .clip_norm = 1,
                             .buckets = all.buckets,
                             .calls = {NULL, make_graph, fill, row_of, encode, NULL}};
    for (int64_t i = 0; i < stage->count; i++) {
        all.size[i] = (weft_bucket){stage->bucket[i].batch, stage->bucket[i].frames,
                                    stage->bucket[i].height, stage->bucket[i].width};
        setup.clips[i] = all.size[i].batch;
    }
    read_models();
    fill_frozen();
    simulated_begin(&setup);
}

void ranks_end(void)
{
    simulated_end();
    weft_store_free(frozen);
}
