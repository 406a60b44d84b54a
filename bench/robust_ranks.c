#include "robust_ranks.h"

#include "ahead_plans.h"
#include "comm/coll_algorithms.h"
#include "graph/builder_helpers.h"
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char config[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":24,"
    "\"attention_head_dim\":16,\"in_channels\":16,\"out_channels\":16,\"text_dim\":64,"
    "\"freq_dim\":64,\"ffn_dim\":768,\"num_layers\":1,\"patch_size\":[1,2,2],"
    "\"rope_max_seq_len\":64}";
/* UNITS: of a sample's latents, of which every rank of an encoder makes some. */
enum { SIDE = 32, CHANNELS = 16, CAPTION = 16, UNITS = ROBUST_RANKS };

static struct {
    int ranks, per_node;
    int64_t floats; /* of a unit of latents */
    weft_model denoiser;
    double kernels[ROBUST_CASCADES]; /* factor of a cascade's kernels */
    double seconds[ROBUST_CASCADES]; /* of an encoder */
    /* Per degree: seconds of one denoiser's kernels with factor 1, and of its messages. 0: not
     * measured. */
    double own[ROBUST_RANKS + 1], messages[ROBUST_RANKS + 1];
    weft_link_costs costs; /* of the slower links */
    ahead_chain ahead;
} all;

/* ---- callbacks of the executor --------------------------------------------------------------- */

static weft_status make_graph(void *user, int bucket, weft_graph **out)
{
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    (void)user, (void)bucket;
    if (!g)
        return weft_no_memory("the benchmark");
    p.at[WEFT_PORT_LATENTS] =
        weft_input(g, "batch.latents", WEFT_F32, WEFT_SHAPE(1, 1, SIDE, SIDE, CHANNELS));
    p.at[WEFT_PORT_TIMESTEP] = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(1));
    p.at[WEFT_PORT_TEXT] = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(1, CAPTION, 64));
    weft_model_call(g, &all.denoiser, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    weft_output(g, "objective",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, p.at[WEFT_PORT_PREDICTION])));
    *out = g;
    return weft_graph_check(g);
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step,
                        const weft_received_latents received[WEFT_CASCADE_MODULES])
{
    simulated_rank *r = user;
    (void)plan, (void)step, (void)received;
    r->factor = all.kernels[index] * simulated.slow[r->index];
    return WEFT_OK;
}

static weft_cascade_row row_of(void *user, int bucket, weft_cascade_module module)
{
    (void)user, (void)bucket;
    return module == WEFT_CASCADE_VAE ? (weft_cascade_row){UNITS, all.floats, 1, NULL}
                                      : (weft_cascade_row){1, 1, 1, NULL};
}

static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group,
                          const weft_latent_rows *rows)
{
    simulated_rank *r = user;
    (void)plan, (void)share, (void)group, (void)rows;
    r->clock += all.seconds[index] * simulated.slow[r->index];
    return WEFT_OK;
}

/* ---- an iteration ---------------------------------------------------------------------------- */

static robust_times execute(const weft_placed_iteration *plan)
{
    robust_times t = {0};
    simulated_run(plan);
    for (int r = 0; r < all.ranks; r++) {
        t.total = fmax(t.total, simulated.of[r].summed);
        for (int64_t c = 0; c < plan->cascades; c++)
            t.makespan = fmax(t.makespan, simulated.done[r][c].end);
    }
    t.total = fmax(t.total, t.makespan);
    for (int64_t c = 0; c < weft_placed_scheduled(plan); c++) {
        const weft_assigned *at = &simulated.executed->cascade[c].at, *from = &plan->cascade[c].at;
        bool stayed = false;
        for (int64_t i = 0; i < from->degree; i++)
            stayed = stayed || from->device[i] == at->device[0];
        t.moved += !stayed;
    }
    return t;
}

/* Measures a denoiser alone on the fewest nodes, with kernels of two factors. Both are large, so
 * that messages overlap with kernels as in a cascade of seconds. */
static void measure(int degree)
{
    int32_t ranks[ROBUST_RANKS];
    static const double factor[] = {4000, 8000};
    double seconds[2];
    weft_placed_sample sample = {.clips = 1, .weight = 1};
    weft_placed_cascade cascade = {
        .at = {.id = "s0.dit", .device = ranks, .degree = degree, .seconds = 1},
        .module = WEFT_CASCADE_DIT,
        .method = WEFT_SP_ULYSSES};
    const weft_placed_iteration plan = {
        .sample = &sample, .samples = 1, .cascade = &cascade, .cascades = 1, .makespan = 1};
    const int nodes = (degree + all.per_node - 1) / all.per_node;
    for (int n = 0, r = 0; n < nodes; n++)
        for (int i = 0; i < degree / nodes + (n < degree % nodes); i++)
            ranks[r++] = n * all.per_node + i;
    all.ahead.batches = 0;
    for (int r = 0; r < all.ranks; r++)
        simulated.slow[r] = 1;
    for (int k = 0; k < 2; k++) {
        all.kernels[0] = factor[k];
        seconds[k] = execute(&plan).makespan;
    }
    all.own[degree] = (seconds[1] - seconds[0]) / (factor[1] - factor[0]);
    all.messages[degree] = fmax(0, 2 * seconds[0] - seconds[1]);
}

static weft_cascade_module module_of(const char *id)
{
    return strstr(id, ".dit")   ? WEFT_CASCADE_DIT
           : strstr(id, ".vae") ? WEFT_CASCADE_VAE
                                : WEFT_CASCADE_TEXT;
}

/* Executes an iteration whose encoders are one iteration ahead. Without rows of an execution
 * before, the planned iteration is executed first. */
static robust_times execute_ahead(const weft_placed_iteration *of)
{
    static ahead_plan to;
    weft_placed_iteration plan = *of;
    if (!all.ahead.batches) {
        plan.late = false;
        ahead_put(&all.ahead, of->sample, &plan, &to);
        (void)execute(&plan);
        ahead_keep(&all.ahead, of->samples);
        plan = *of;
    }
    ahead_put(&all.ahead, of->sample, &plan, &to);
    check(weft_placed_check(&plan, all.ranks, "bench"));
    const robust_times times = execute(&plan);
    ahead_keep(&all.ahead, of->samples);
    return times;
}

robust_times robust_ranks_execute(const robust_job *job)
{
    weft_placed_sample sample[ROBUST_CASCADES];
    weft_placed_cascade cascade[ROBUST_CASCADES];
    const int64_t n = job->list->count, samples = n / 3;
    weft_placed_iteration plan = {.sample = sample,
                                  .samples = samples,
                                  .cascade = cascade,
                                  .cascades = n,
                                  .makespan = job->plan->makespan,
                                  .late = job->late};
    for (int64_t s = 0; s < samples; s++)
        sample[s] = (weft_placed_sample){.batch = s, .clips = 1, .weight = 1.0 / (double)samples};
    for (int64_t c = 0; c < n; c++) {
        const weft_cascade *item = &job->list->item[c];
        const int degree = job->plan->first[c + 1] - job->plan->first[c];
        const weft_cascade_module module = module_of(item->id);
        if (module == WEFT_CASCADE_DIT && all.own[degree] <= 0)
            measure(degree);
        cascade[c] = (weft_placed_cascade){
            .at = {.id = item->id,
                   .device = job->plan->devices + job->plan->first[c],
                   .degree = degree,
                   .start = job->plan->start[c],
                   .seconds = item->option[job->plan->option[c]].seconds,
                   .after = item->after,
                   .after_count = item->after_count},
            .sample = (int32_t)(c / 3),
            .module = module,
            .method = module == WEFT_CASCADE_DIT ? WEFT_SP_ULYSSES : WEFT_SP_NONE};
    }
    memcpy(simulated.slow, job->slow, (size_t)all.ranks * sizeof *simulated.slow);
    simulated.replan = job->replan;
    for (int64_t c = 0; c < n; c++) {
        const int64_t degree = cascade[c].at.degree;
        all.seconds[c] = cascade[c].at.seconds * job->factor[c];
        if (cascade[c].module == WEFT_CASCADE_DIT)
            all.kernels[c] = fmax(1, (all.seconds[c] - all.messages[degree]) / all.own[degree]);
    }
    if (job->ahead)
        return execute_ahead(&plan);
    all.ahead.batches = 0;
    check(weft_placed_check(&plan, all.ranks, "bench"));
    return execute(&plan);
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Returns the bytes of the denoiser's gradients. */
static double gradient_bytes(void)
{
    weft_graph *g;
    check(make_graph(NULL, 0, &g));
    const double bytes = sizeof(float) * (double)weft_graph_param_count(g);
    weft_graph_free(g);
    return bytes;
}

void robust_ranks_begin(const weft_cluster *cluster, double gradients, double latents)
{
    json_t *json;
    check(weft_json_parse(config, (int64_t)strlen(config), "bench", &json));
    check(weft_model_read(json, "bench", &all.denoiser));
    json_decref(json);
    const double smaller = gradient_bytes() / gradients;
    all.ranks = (int)weft_cluster_devices(cluster);
    all.per_node = (int)cluster->devices;
    all.floats = (int64_t)fmax(1, latents * smaller / sizeof(float) / UNITS);
    all.costs = weft_link_costs_of(cluster);
    all.costs.add = 0; /* kernels need no time in reductions */
    for (int far = 0; far < 2; far++)
        all.costs.byte[far] /= smaller;
    const simulated_setup setup = {.ranks = all.ranks,
                                   .per_node = all.per_node,
                                   .links = {.between = {50e9 * smaller, 5e-6},
                                             .inside = {450e9 * smaller, 2e-6},
                                             .per_node = all.per_node,
                                             .clocked = true},
                                   .flops = 1e18,
                                   .bytes = 1e18,
                                   .denoiser = &all.denoiser,
                                   .buckets = 1,
                                   .clips = {1},
                                   .calls = {NULL, make_graph, fill, row_of, encode, NULL}};
    simulated_begin(&setup);
}

void robust_ranks_reduce(double *seconds, double *last)
{
    measure(1); /* the ranks have started */
    check(weft_grad_reduce_predict(weft_cascade_run_reduce(simulated_first_run()), &all.costs,
                                   seconds, last));
}

void robust_ranks_end(void)
{
    simulated_end();
}
