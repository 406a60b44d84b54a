/* bench/fusion: STDiT3's layers over ranks, whole and in slices, as tables
 * (docs/explanation/parallelism.md). A denoising step is 28 times a pair of layers, from the
 * difference between a model of three pairs and one of one pair.
 *   paper [VIDEO, 0 to 10, -1: all [BATCH]]
 *          STDiT3-XL in bf16 at the sizes of ScaleFusion's section 5.2 on 8, 16, 32 simulated A100
 *   sweep [BATCH]
 *          step times by number of slices and of lifted parts (Fig. 10 and 11)
 *   memory peak bytes of the whole model (28 pairs of layers) at the same sizes
 *   others other ways to split tokens
 *   replay the same step on 8 and 16 ranks, recorded and replayed by the event simulator
 *   links  a small model on 2 and 4 simulated cores, over links of 100 Mbit/s to 4 Gbit/s
 *   real [GBIT/S [SAMPLES [PAIRS]]]
 *          the same on two threads of this machine, in real time, over such links
 *   parts  a layer of Wan on such cores and links: head groups (cp), token chunks (tp)
 *   layer [VIDEO [RANKS [OFF|INTRA|ON [BATCH]]]]
 *          one pair of layers of the paper's model on a clock: its kernels, when rank 0 computes,
 *          sends and waits, and the bytes that are live at the peak */
#include "../tests/model_of.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "comm/link_model.h"
#include "exec/execute.h"
#include "exec/trace/run_trace.h"
#include "exec/trace/timeline_merge.h"
#include "kernel/cpu/table.h"
#include "kernel/virtual/virtual.h"
#include "plan/simulate/simulator.h"
#include "transform/passes.h"
#include "transform/sharding/mesh_config.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 28, RANKS = 32 };

typedef struct setting {
    int ranks;
    int64_t batch, frames, rows, columns; /* latents */
    int64_t width, heads;
    const char *axis;
    weft_comm_overlap slices;
    bool no_overlap, narrow;
    const weft_virtual_rates *rates; /* its clock is not looked at */
    const weft_link_model *links;    /* clocked: simulated time */
    bool real;                       /* kernels of cpu, one thread each */
    bool traced;
    bool wan;           /* attention over all tokens */
    bool told;          /* rank 0 prints a pair of layers */
    bool compiles_only; /* memory is planned; nothing runs */
} setting;

typedef struct result {
    double seconds, kernels, wire, exposed; /* bytes of one pair of layers */
    int64_t arena, bytes;
    bool refused;
} result;

typedef struct player {
    const setting *of;
    int64_t depth;
    int rank;
    weft_comm *comm;
    double now, seconds, busy, exposed, kernels;
    int64_t arena, bytes;
    weft_timeline timeline; /* timeline of the last run, if it is traced */
    char error[400];
} player;

static weft_graph *build(const setting *s, const weft_model *model)
{
    weft_graph *g = weft_graph_create();
    const weft_model_size size = {s->batch, s->frames, s->rows, s->columns, 300};
    weft_ports p = weft_ports_none();
    static const weft_port in[] = {WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP, WEFT_PORT_TEXT};
    for (int i = 0; i < WEFT_COUNT(in); i++)
        p.at[in[i]] = weft_model_input(g, model, &size, in[i], "batch.");
    weft_graph_push(g, "transformer");
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    weft_graph_pop(g);
    weft_output(g, "sample", p.at[WEFT_PORT_PREDICTION]);
    return g;
}

/* Seconds of its kernels: simulated, or all measured ones. */
static double kernels_of(const player *p, const weft_program *program,
                         const weft_virtual_rates *rates, const weft_graph *g)
{
    int64_t runs;
    const double *measured = weft_program_seconds(program, &runs);
    double sum = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_op op = weft_graph_node(g, n)->op;
        if (!weft_op_has(op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) && !weft_op_is_collective(op) &&
            !weft_program_plan(program)->view[n])
            sum += p->of->real ? measured[n]
                               : weft_virtual_seconds(rates, op, WEFT_F32, weft_node_cost(g, n));
    }
    return sum;
}

static weft_status times(player *p, weft_program *program, const weft_virtual_rates *rates,
                         const weft_graph *g)
{
    double start = 0;
    p->seconds = INFINITY;
    for (int turn = 0; turn < (rates->clock ? 2 : 4); turn++) { /* the first compares exchanges */
        double *all = weft_alloc(RANKS * (int64_t)sizeof *all);
        WEFT_TRY(weft_comm_all_gather(p->comm, &p->now, sizeof p->now, all));
        for (int r = 0; r < p->of->ranks; r++)
            p->now = fmax(p->now, all[r]);
        weft_free(all);
        const double before = p->of->real ? kernels_of(p, program, rates, g) : 0;
        start = rates->clock ? p->now : weft_now();
        WEFT_TRY(weft_program_run(program));
        const double took = (rates->clock ? p->now : weft_now()) - start;
        if (!turn || took >= p->seconds)
            continue;
        const weft_comm_times comm = weft_program_comm_times(program);
        p->seconds = took;
        p->busy = comm.busy;
        p->exposed = comm.exposed;
        p->kernels = kernels_of(p, program, rates, g) - before;
    }
    if (!p->of->traced)
        return WEFT_OK;
    p->timeline = weft_timeline_open(p->rank, p->of->ranks);
    p->timeline.origin = start;
    return weft_timeline_add_program(&p->timeline, program);
}

/* ---- a pair of layers ----------------------------------------------------------------------- */

/* Counts the second pair only, because exchanges before the first layer differ. */
static bool is_told(const char *scope)
{
    return strstr(scope, "_blocks.1.") || strstr(scope, "_blocks.1:") ||
           (strstr(scope, "_blocks.1") && !strchr(strstr(scope, "_blocks.1") + 9, '.'));
}

static void tell_kernels(const weft_program *program, const weft_virtual_rates *rates,
                         const weft_graph *g)
{
    int64_t count[WEFT_OP_COUNT] = {0};
    double seconds[WEFT_OP_COUNT] = {0};
    printf("%-16s %8s %12s\n", "kernels", "count", "ms");
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (!is_told(node->scope) || weft_program_plan(program)->view[n] ||
            weft_op_has(node->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) ||
            weft_op_is_collective(node->op))
            continue;
        count[node->op]++;
        seconds[node->op] += weft_virtual_seconds(rates, node->op, WEFT_F32, weft_node_cost(g, n));
    }
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        if (count[op])
            printf("%-16s %8" PRId64 " %12.3f\n", weft_op_get((weft_op)op)->name, count[op],
                   1e3 * seconds[op]);
}

/* Kernels that follow one another in one line, up to a wait or an exchange. */
static void tell_clock(const weft_timeline *t)
{
    int64_t kernels = 0;
    double from = 0, until = 0, origin = -1;
    int64_t first = t->trace.step_count, last = -1;
    for (int64_t i = 0; i < t->trace.step_count; i++)
        if (is_told(t->trace.name[t->trace.step[i].name])) {
            first = i < first ? i : first;
            last = i;
        }
    printf("\n%9s %9s  what, ms\n", "from", "until");
    for (int64_t i = 0; i < t->trace.step_count; i++) {
        const weft_trace_step *s = &t->trace.step[i];
        const char *name = t->trace.name[s->name];
        const bool computes = s->stream == WEFT_STREAM_COMPUTE, waits = t->note[i].waits;
        if (i < first || i > last || (waits && t->end[i] - t->start[i] < 1e-6))
            continue;
        origin = origin < 0 ? t->start[i] : origin;
        const bool begins = computes && !waits && strstr(name, "layer_norm");
        if (kernels && (!computes || waits || begins)) {
            printf("%9.3f %9.3f  %" PRId64 " kernels\n", 1e3 * from, 1e3 * until, kernels);
            kernels = 0;
        }
        if (!computes || waits) {
            printf("%9.3f %9.3f  %s%s\n", 1e3 * (t->start[i] - origin), 1e3 * (t->end[i] - origin),
                   waits ? "" : "                    wire: ", name);
            continue;
        }
        from = kernels++ ? from : t->start[i] - origin;
        until = t->end[i] - origin;
    }
}

typedef struct holder {
    const char *scope;
    weft_op op;
    int64_t bytes, count;
} holder;

static int by_bytes(const void *a, const void *b)
{
    const int64_t x = ((const holder *)a)->bytes, y = ((const holder *)b)->bytes;
    return (x < y) - (x > y);
}

/* Whose storages are live where most bytes are. */
static void tell_peak(const weft_memory_plan *plan, const weft_graph *g)
{
    const int32_t nodes = weft_graph_node_count(g);
    int32_t peak = 0;
    int64_t most = 0, count = 0;
    holder *held = weft_alloc((plan->count + 1) * (int64_t)sizeof *held);
    int64_t *change = weft_alloc((nodes + 2) * (int64_t)sizeof *change);
    for (int32_t v = 0; v < plan->count; v++)
        if (plan->allocation[v].region == WEFT_REGION_ARENA && plan->allocation[v].alias_of < 0 &&
            plan->allocation[v].first >= 0) {
            change[plan->allocation[v].first] += plan->allocation[v].bytes;
            change[plan->allocation[v].last + 1] -= plan->allocation[v].bytes;
        }
    for (int64_t n = 0, live = 0; n < nodes; n++) {
        live += change[n];
        if (live > most) {
            most = live;
            peak = (int32_t)n;
        }
    }
    for (int32_t v = 0; v < plan->count; v++) {
        const weft_allocation *at = &plan->allocation[v];
        if (at->region != WEFT_REGION_ARENA || at->alias_of >= 0 || at->first < 0 ||
            at->first > peak || at->last < peak)
            continue;
        const weft_node *node = weft_graph_node(g, weft_value_get(g, (weft_value){v})->node);
        int64_t k = 0;
        while (k < count && (held[k].op != node->op || strcmp(held[k].scope, node->scope)))
            k++;
        count += k == count;
        held[k] = (holder){node->scope, node->op, held[k].bytes + at->bytes, held[k].count + 1};
    }
    qsort(held, (size_t)count, sizeof *held, by_bytes);
    const weft_node *node = weft_graph_node(g, peak);
    printf("\narena %.1f MiB, at the peak %.1f live, at %s of %s:\n",
           (double)plan->arena_bytes / 1048576, (double)most / 1048576, weft_op_get(node->op)->name,
           node->scope);
    for (int64_t k = 0; k < count && k < 24; k++)
        printf("%9.2f MiB in %3" PRId64 "  %s of %s\n", (double)held[k].bytes / 1048576,
               held[k].count, weft_op_get(held[k].op)->name, held[k].scope);
    weft_free(held);
    weft_free(change);
}

/* ---- a rank --------------------------------------------------------------------------------- */

static weft_status play(player *p)
{
    const setting *s = p->of;
    char text[600];
    if (s->wan)
        snprintf(text, sizeof text,
                 "{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":%" PRId64 ","
                 "\"num_attention_heads\":%" PRId64 ",\"attention_head_dim\":%" PRId64
                 ",\"ffn_dim\":%" PRId64 ","
                 "\"in_channels\":16,\"out_channels\":16,\"text_dim\":256,\"freq_dim\":256}",
                 p->depth, s->heads, s->width / s->heads, 4 * s->width);
    else
        snprintf(text, sizeof text,
                 "{\"_class_name\":\"STDiT3\",\"depth\":%" PRId64 ",\"hidden_size\":%" PRId64
                 ",\"num_heads\":%" PRId64 "}",
                 p->depth, s->width, s->heads);
    const weft_model model = model_of(text);
    weft_virtual_rates rates = *s->rates;
    rates.clock = s->links->clocked ? &p->now : NULL;
    weft_mesh mesh = {.axis_count = 1, .axis = {{"", s->ranks}}};
    snprintf(mesh.axis[0].name, sizeof mesh.axis[0].name, "%s", s->axis);
    weft_recipe recipe = {0};
    weft_backend *backend = NULL;
    weft_store *store = NULL;
    weft_program *program = NULL;
    weft_group *world;
    weft_graph *g = build(s, &model);
    weft_status_code status = WEFT_OK;
    if (!s->real)
        WEFT_GO(weft_backend_virtual_create(&rates, &backend));
    WEFT_GO(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe));
    recipe.overlap = &s->slices;
    const weft_pass_setup setup = {
        .mesh = &mesh, .rank = p->rank, .recipe = &recipe, .bf16_compute = s->narrow};
    const weft_program_options options = {.backend = s->real ? &weft_backend_cpu : backend,
                                          .mesh = &mesh,
                                          .profile = s->traced || s->real,
                                          .no_overlap = s->no_overlap,
                                          .threads = 1};
    WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL));
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL));
    store = s->real ? weft_store_create() : weft_store_create_on(backend->device);
    WEFT_GO(weft_store_init(store, g, 1));
    WEFT_GO(weft_program_compile(g, &options, &program));
    p->arena = weft_program_plan(program)->arena_bytes;
    p->bytes = weft_program_bytes(program) + weft_store_bytes(store);
    if (s->compiles_only)
        goto out;
    WEFT_GO(weft_comm_world(p->comm, &world));
    WEFT_GO(weft_program_bind(program, store, world));
    WEFT_GO(times(p, program, &rates, g));
    if (s->told && p->rank == 0) {
        tell_kernels(program, &rates, g);
        tell_clock(&p->timeline);
        tell_peak(weft_program_plan(program), g);
    }
out:
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    weft_backend_virtual_free(backend);
    weft_recipe_free(&recipe);
    return status;
}

static void *play_rank(void *user)
{
    player *p = user;
    if (play(p) != WEFT_OK) {
        snprintf(p->error, sizeof p->error, "%s", weft_error_message());
        weft_comm_abort(p->comm);
    }
    return NULL;
}

/* Runs all ranks of a model of `depth` pairs of layers and returns the slowest one's times. With
 * `traced` each rank has its timeline in played[]. */
static player played[RANKS];
static player run(const setting *s, int64_t depth)
{
    player *all = played;
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    player worst = {0};
    if (weft_comm_open_threads_linked(s->ranks, s->links, comm) != WEFT_OK)
        exit(1);
    for (int r = 0; r < s->ranks; r++) {
        all[r] = (player){.of = s, .depth = depth, .rank = r, .comm = comm[r]};
        weft_comm_set_deadline(comm[r], 600);
        pthread_create(&thread[r], NULL, play_rank, &all[r]);
    }
    for (int r = 0; r < s->ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < s->ranks; r++) {
        weft_comm_free(comm[r]);
        if (all[r].error[0]) {
            fprintf(stderr, "bench/fusion: rank %d: %s\n", r, all[r].error);
            exit(1);
        }
        worst.seconds = fmax(worst.seconds, all[r].seconds);
        worst.busy = fmax(worst.busy, all[r].busy);
        worst.exposed = fmax(worst.exposed, all[r].exposed);
        worst.kernels = fmax(worst.kernels, all[r].kernels);
        worst.arena = all[r].arena > worst.arena ? all[r].arena : worst.arena;
        worst.bytes = all[r].bytes > worst.bytes ? all[r].bytes : worst.bytes;
    }
    return worst;
}

/* Times of a pair of layers. */
static result measure(const setting *s)
{
    const player one = run(s, 1), three = run(s, 3);
    return (result){.seconds = (three.seconds - one.seconds) / 2,
                    .kernels = (three.kernels - one.kernels) / 2,
                    .wire = (three.busy - one.busy) / 2,
                    .exposed = (three.exposed - one.exposed) / 2,
                    .arena = three.arena,
                    .bytes = three.bytes};
}

/* ---- the paper's sizes ---------------------------------------------------------------------- */

/* p4d: A100, 312 TFLOP/s of which products reach 0.6 and attention 0.5, 1.555 TB/s of which 0.8 are
 * reached; NVSwitch; 4 x 100 Gbit/s a machine, of which each of 8 ranks has an eighth. */
static weft_virtual_rates a100(void)
{
    weft_virtual_rates r = {
        .flops = 312e12 * 0.6, .bytes = 1.555e12 * 0.8, .launch = 5e-6, .pack = 1e-7, .scale = 1};
    r.op_flops[WEFT_OP_ATTENTION] = 312e12 * 0.5;
    return r;
}
static const char p4d[] = "50 Gbit/s, 5 us, 8 per node; inside 2400 Gbit/s, 2 us";

typedef struct video {
    const char *name;
    int64_t frames, rows, columns;
} video;
/* Latents of Open-Sora 1.2: 5 for 17 frames at 25 a second, an eighth of the sides. */
static const video videos[] = {
    {"720p 4 s", 30, 90, 160},     {"720p 8 s", 60, 90, 160},     {"720p 16 s", 120, 90, 160},
    {"720p 32 s", 240, 90, 160},   {"1080p 4 s", 30, 135, 240},   {"1080p 8 s", 60, 135, 240},
    {"1080p 16 s", 120, 135, 240}, {"1080p 32 s", 240, 135, 240}, {"4K 4 s", 30, 270, 480},
    {"4K 8 s", 60, 270, 480},      {"4K 16 s", 120, 270, 480}};

/* Guidance makes two samples of a video. */
enum { GUIDED = 2 };

static setting paper_setting(const video *v, int ranks, const weft_virtual_rates *rates,
                             const weft_link_model *links)
{
    return (setting){.ranks = ranks,
                     .batch = GUIDED,
                     .frames = v->frames,
                     .rows = v->rows,
                     .columns = v->columns,
                     .width = 1152,
                     .heads = 16,
                     .axis = "cp",
                     .slices = weft_comm_overlap_default,
                     .narrow = true,
                     .rates = rates,
                     .links = links};
}

static weft_link_model p4d_links(void)
{
    weft_link_model links;
    if (weft_link_model_parse(p4d, &links) != WEFT_OK)
        exit(1);
    links.clocked = true;
    return links;
}

/* The setting of a system that waits for every exchange. */
static setting waiting(setting s)
{
    s.slices = (weft_comm_overlap){.kind = WEFT_COMM_OVERLAP_OFF};
    s.no_overlap = true;
    return s;
}

/* only: index of the video; -1: all videos. */
static void paper(int only, int64_t batch)
{
    const weft_virtual_rates rates = a100();
    const weft_link_model links = p4d_links();
    const int first = only >= 0 ? only : 0, end = only >= 0 ? only + 1 : WEFT_COUNT(videos);
    printf("machine: simulated A100 cluster\n| samples | video | ranks | kernels s | exchange s | "
           "whole layers s | slices s | lifted s | speedup | arena whole GiB | arena slices GiB |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int v = first; v < end; v++)
        for (int ranks = 8; ranks <= RANKS; ranks *= 2) {
            setting s = paper_setting(&videos[v], ranks, &rates, &links);
            s.batch = batch;
            setting intra = s;
            const setting whole = waiting(s);
            intra.slices.lift_time = intra.slices.lift_space = 0;
            const result a = measure(&whole), b = measure(&intra), c = measure(&s);
            printf("| %d | %s | %d | %.3f | %.3f | %.3f | %.3f | %.3f | %.2f | %.2f | %.2f |\n",
                   (int)batch, videos[v].name, ranks, PAIRS * a.kernels, PAIRS * a.wire,
                   PAIRS * a.seconds, PAIRS * b.seconds, PAIRS * c.seconds, a.seconds / c.seconds,
                   (double)a.arena / 1073741824.0, (double)c.arena / 1073741824.0);
            fflush(stdout);
        }
}

/* A row per number of slices N = N_T = N_S; columns are lifted parts L_S, with L_T = 1. */
static void sweep_rows(const setting *of, const char *name)
{
    enum { MOST = 16 };
    setting s = *of;
    for (int n = 1; n <= MOST; n *= 2) {
        printf("| %d | %s | %d | %d |", (int)s.batch, name, s.ranks, n);
        for (int l = 0; l <= MOST; l = l ? 2 * l : 1) {
            s.slices = (weft_comm_overlap){WEFT_COMM_OVERLAP_ON, n, n, l ? 1 : 0,
                                           l > 1 && l == n ? l - 1 : l};
            if (l <= n)
                printf(" %.3f |", PAIRS * measure(&s).seconds);
            else
                printf(" |");
            fflush(stdout);
        }
        printf("\n");
    }
}

static void sweep(int64_t batch)
{
    const weft_virtual_rates rates = a100();
    const weft_link_model links = p4d_links();
    static const int which[] = {2, 6}; /* 16 s: enough frames for 16 slices on 8 ranks */
    printf(
        "machine: simulated A100 cluster\n| samples | video | ranks | slices | L = 0 s | L = 1 s | "
        "L = 2 s | L = 4 s | L = 8 s | L = 16 s |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (int v = 0; v < WEFT_COUNT(which); v++)
        for (int ranks = 16; ranks <= RANKS; ranks *= 2) {
            setting s = paper_setting(&videos[which[v]], ranks, &rates, &links);
            s.batch = batch;
            const setting whole = waiting(s);
            printf("| %d | %s | %d | whole layers | %.3f | | | | | |\n", (int)batch,
                   videos[which[v]].name, ranks, PAIRS * measure(&whole).seconds);
            sweep_rows(&s, videos[which[v]].name);
        }
}

static player compiled(setting s)
{
    s.compiles_only = true;
    player p = {.of = &s, .depth = PAIRS};
    if (play(&p) != WEFT_OK) {
        fprintf(stderr, "bench/fusion: %s\n", weft_error_message());
        exit(1);
    }
    return p;
}

/* Bytes of rank 0, which has the most frames: weights and the program's memory. */
static void memory(void)
{
    static const char *const axis[] = {"heads", "cp", "cp"};
    const weft_virtual_rates rates = a100();
    const weft_link_model links = p4d_links();
    printf(
        "machine: simulated A100 cluster\n| video | ranks | samples | Ulysses GiB | whole layers "
        "GiB "
        "| slices GiB | Ulysses / slices | whole / slices |\n|---|---|---|---|---|---|---|---|\n");
    for (int v = 0; v < WEFT_COUNT(videos); v++)
        for (int ranks = 8; ranks <= RANKS; ranks *= 2)
            for (int64_t batch = 1; batch <= GUIDED; batch++) {
                double gib[3] = {0};
                for (int k = 0; k < 3; k++) {
                    setting s = paper_setting(&videos[v], ranks, &rates, &links);
                    s.batch = batch;
                    s.axis = axis[k];
                    s = k < 2 ? waiting(s) : s;
                    if (k || s.heads % ranks == 0)
                        gib[k] = (double)compiled(s).bytes / 1073741824.0;
                }
                printf("| %s | %d | %d | ", videos[v].name, ranks, (int)batch);
                if (gib[0] > 0)
                    printf("%.2f | %.2f | %.2f | %.2f | %.2f |\n", gib[0], gib[1], gib[2],
                           gib[0] / gib[2], gib[1] / gib[2]);
                else
                    printf("- | %.2f | %.2f | - | %.2f |\n", gib[1], gib[2], gib[1] / gib[2]);
                fflush(stdout);
            }
}

static void one_layer(int which, int ranks, const char *how, int64_t batch)
{
    const weft_virtual_rates rates = a100();
    weft_link_model links;
    if (weft_link_model_parse(p4d, &links) != WEFT_OK || which < 0 || which >= WEFT_COUNT(videos) ||
        ranks < 1 || ranks > RANKS)
        exit(1);
    links.clocked = true;
    setting s = paper_setting(&videos[which], ranks, &rates, &links);
    s.traced = s.told = true;
    s.batch = batch;
    if (!strcmp(how, "OFF")) {
        s.slices = (weft_comm_overlap){.kind = WEFT_COMM_OVERLAP_OFF};
        s.no_overlap = true;
    }
    if (!strcmp(how, "INTRA"))
        s.slices.lift_time = s.slices.lift_space = 0;
    printf("%s on %d ranks\n", videos[which].name, ranks);
    run(&s, 3);
    for (int r = 0; r < ranks; r++)
        weft_timeline_free(&played[r].timeline);
}

/* Other ways to split tokens: every rank's exchanges are waited for, but for a ring's. */
static void others(void)
{
    static const struct {
        const char *name, *axis;
        bool no_overlap;
    } way[] = {{"Ulysses", "heads", true},
               {"ring", "ring", false},
               {"whole layers", "cp", true},
               {"slices", "cp", false}};
    const weft_virtual_rates rates = a100();
    weft_link_model links;
    if (weft_link_model_parse(p4d, &links) != WEFT_OK)
        exit(1);
    links.clocked = true;
    printf("machine: simulated A100 cluster\n| video | ranks | split | step s | arena GiB "
           "|\n|---|---|---|---|---|\n");
    for (int v = 1; v < 6; v += 4)
        for (int ranks = 8; ranks <= 16; ranks *= 2)
            for (int k = 0; k < WEFT_COUNT(way); k++) {
                setting s = paper_setting(&videos[v], ranks, &rates, &links);
                s.axis = way[k].axis;
                s.no_overlap = way[k].no_overlap;
                s.slices.kind = way[k].no_overlap ? WEFT_COMM_OVERLAP_OFF : WEFT_COMM_OVERLAP_ON;
                const result r = measure(&s);
                printf("| %s | %d | %s | %.3f | %.2f |\n", videos[v].name, ranks, way[k].name,
                       PAIRS * r.seconds, (double)r.arena / 1073741824.0);
                fflush(stdout);
            }
}

/* ---- the same steps in the event simulator -------------------------------------------------- */

/* Executes three pairs of layers, and replays their trace on the cluster. */
static void replay(const setting *s, const char *name, const char *how, const char *cluster)
{
    weft_arena *arena = weft_arena_create();
    weft_timeline timeline[RANKS];
    weft_cluster c;
    weft_trace trace = {0};
    weft_simulation sim = {0};
    double executed;
    const player one = run(s, 3);
    for (int r = 0; r < s->ranks; r++)
        timeline[r] = played[r].timeline;
    if (weft_cluster_load(arena, cluster, &c) != WEFT_OK ||
        weft_timelines_join(timeline, s->ranks, &trace, &executed) != WEFT_OK ||
        weft_simulate(&trace, &c, &sim) != WEFT_OK) {
        fprintf(stderr, "bench/fusion: %s\n", weft_error_message());
        exit(1);
    }
    printf("| %s | %d | %s | %.4f | %.4f | %.4f | %+.1f |\n", name, s->ranks, how, one.kernels,
           sim.seconds, executed, 100 * (executed / sim.seconds - 1));
    fflush(stdout);
    for (int r = 0; r < s->ranks; r++)
        weft_timeline_free(&timeline[r]);
    weft_simulation_free(&sim);
    weft_trace_free(&trace);
    weft_arena_free(arena);
}

static void replays(void)
{
    const weft_virtual_rates rates = a100();
    weft_link_model links;
    if (weft_link_model_parse(p4d, &links) != WEFT_OK)
        exit(1);
    links.clocked = true;
    printf("machine: simulated A100 cluster\n| video | ranks | layers | kernels s | simulated s | "
           "executed s | deviation %% |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int v = 1; v < 6; v += 4)
        for (int ranks = 8; ranks <= 16; ranks *= 2) {
            const char *cluster = ranks == 8 ? "a100:1" : "a100:2";
            setting s = paper_setting(&videos[v], ranks, &rates, &links);
            s.traced = true;
            setting whole = s, intra = s, heads = s;
            whole.slices = heads.slices = (weft_comm_overlap){.kind = WEFT_COMM_OVERLAP_OFF};
            whole.no_overlap = heads.no_overlap = true;
            intra.slices.lift_time = intra.slices.lift_space = 0;
            heads.axis = "heads";
            replay(&whole, videos[v].name, "whole layers", cluster);
            replay(&intra, videos[v].name, "slices", cluster);
            replay(&s, videos[v].name, "lifted", cluster);
            replay(&heads, videos[v].name, "Ulysses", cluster);
        }
}

/* ---- slower links --------------------------------------------------------------------------- */

static setting small(int ranks, const weft_virtual_rates *rates, const weft_link_model *links,
                     double gbits, weft_link_model *own)
{
    char text[80];
    snprintf(text, sizeof text, "%g Gbit/s, 50 us", gbits);
    if (weft_link_model_parse(text, own) != WEFT_OK)
        exit(1);
    return (setting){.ranks = ranks,
                     .batch = 1,
                     .frames = 16,
                     .rows = 32,
                     .columns = 32,
                     .width = 256,
                     .heads = 4,
                     .axis = "cp",
                     .slices = weft_comm_overlap_default,
                     .rates = rates,
                     .links = links};
}

static const weft_virtual_rates core = {
    .flops = 60e9, .bytes = 8e9, .launch = 1e-5, .pack = 1e-6, .scale = 1};

/* Simulated cores of 60 GFLOP/s and 8 GB/s, and simulated links. */
static void over_links(void)
{
    static const double gbits[] = {0.1, 0.2, 0.5, 1, 4};
    printf("machine: simulated cores\n| Gbit/s | ranks | kernels s | exchange s | whole layers s | "
           "slices s | lifted s | ring s | Ulysses s | bound s | hidden %% "
           "|\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (int k = 0; k < WEFT_COUNT(gbits); k++) {
            weft_link_model links;
            setting s = small(ranks, &core, &links, gbits[k], &links);
            links.clocked = true;
            setting whole = s, intra = s, ring = s, heads = s;
            whole.slices = ring.slices = heads.slices =
                (weft_comm_overlap){.kind = WEFT_COMM_OVERLAP_OFF};
            whole.no_overlap = heads.no_overlap = true;
            intra.slices.lift_time = intra.slices.lift_space = 0;
            ring.axis = "ring";
            heads.axis = "heads";
            const result a = measure(&whole), b = measure(&intra), c = measure(&s),
                         d = measure(&ring), e = measure(&heads);
            printf("| %g | %d | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.0f |"
                   "\n",
                   gbits[k], ranks, a.kernels, a.wire, a.seconds, b.seconds, c.seconds, d.seconds,
                   e.seconds, fmax(a.kernels, a.wire),
                   100 * fmin(1, 1 - (c.seconds - c.kernels) / a.wire));
            fflush(stdout);
        }
}

/* Pairs of layers with kernels of this machine and messages that are late as on such links. All
 * ways alternate, and the fastest run of each counts. Exchanges are of the slower rank, because the
 * other one waits for this rank, whatever the links are. */
static void in_earnest(double only, int64_t samples, int64_t pairs)
{
    enum { WAYS = 5, SIDE = 24, ROUNDS = 3 };
    static const double gbits[] = {0.1, 0.2, 0.5, 1, 4};
    printf("| pairs of layers | Gbit/s | kernels s | exchange s | whole layers s | slices s | "
           "lifted s | ring s | Ulysses s | bound s | hidden %% |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int k = 0; k < WEFT_COUNT(gbits); k++) {
        if (only > 0 && gbits[k] != only)
            continue;
        weft_link_model links;
        setting way[WAYS];
        player is[WAYS];
        double kernels = INFINITY, wire = INFINITY;
        for (int w = 0; w < WAYS; w++) {
            way[w] = small(2, &core, &links, gbits[k], &links);
            way[w].real = true;
            way[w].batch = samples;
            way[w].rows = way[w].columns = SIDE;
            if (w == 0 || w > 2)
                way[w].slices = (weft_comm_overlap){.kind = WEFT_COMM_OVERLAP_OFF};
            way[w].no_overlap = w == 0 || w == 4;
            is[w].seconds = INFINITY;
        }
        way[1].slices.lift_time = way[1].slices.lift_space = 0;
        way[3].axis = "ring";
        way[4].axis = "heads";
        for (int i = 0; i < ROUNDS * WAYS; i++) {
            const int w = i % WAYS;
            player one = run(&way[w], pairs);
            one.busy = fmin(played[0].busy, played[1].busy);
            one.exposed = fmin(played[0].exposed, played[1].exposed);
            kernels = w < 3 ? fmin(kernels, one.kernels) : kernels;
            wire = w == 0 ? fmin(wire, one.busy) : wire;
            if (one.seconds < is[w].seconds)
                is[w] = one;
        }
        printf("| %d | %g | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.0f |\n",
               (int)pairs, gbits[k], kernels, wire, is[0].seconds, is[1].seconds, is[2].seconds,
               is[3].seconds, is[4].seconds, fmax(kernels, wire),
               100 * fmin(1, 1 - is[2].exposed / wire));
        fflush(stdout);
    }
}

/* ---- other transformers --------------------------------------------------------------------- */

/* All exchanges at once, the default, and in parts. */
static void in_parts(void)
{
    static const double gbits[] = {0.1, 0.2, 0.5, 1, 4};
    static const char *const axes[] = {"cp", "tp", "sp"};
    printf(
        "machine: simulated cores\n| split | ranks | Gbit/s | kernels s | exchange s | at once s | "
        "2 parts s | 4 parts s | bound s | hidden at once %% | hidden in 4 parts %% | "
        "arena at once MiB | arena in 4 parts MiB |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int a = 0; a < WEFT_COUNT(axes); a++)
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            for (int k = 0; k < WEFT_COUNT(gbits); k++) {
                weft_link_model links;
                setting s = small(ranks, &core, &links, gbits[k], &links);
                result r[3];
                links.clocked = true;
                s.wan = true;
                s.heads = 8;
                s.axis = axes[a];
                for (int i = 0; i < 3; i++) {
                    *(a ? &s.slices.chunks : &s.slices.heads) = 1 << i;
                    r[i] = measure(&s);
                }
                printf("| %s | %d | %g | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.0f | %.0f | "
                       "%.1f | %.1f |\n",
                       axes[a], ranks, gbits[k], r[0].kernels, r[0].wire, r[0].seconds,
                       r[1].seconds, r[2].seconds, fmax(r[0].kernels, r[0].wire),
                       100 * fmin(1, 1 - (r[0].seconds - r[0].kernels) / r[0].wire),
                       100 * fmin(1, 1 - (r[2].seconds - r[0].kernels) / r[0].wire),
                       (double)r[0].arena / 1048576.0, (double)r[2].arena / 1048576.0);
                fflush(stdout);
            }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!*what || !strcmp(what, "paper"))
        paper(argc > 2 ? atoi(argv[2]) : -1, argc > 3 ? atoi(argv[3]) : GUIDED);
    if (!*what)
        paper(-1, 1);
    if (!*what || !strcmp(what, "sweep"))
        sweep(argc > 2 ? atoi(argv[2]) : 1);
    if (!*what || !strcmp(what, "memory"))
        memory();
    if (!strcmp(what, "layer"))
        one_layer(argc > 2 ? atoi(argv[2]) : 1, argc > 3 ? atoi(argv[3]) : 32,
                  argc > 4 ? argv[4] : "", argc > 5 ? atoi(argv[5]) : GUIDED);
    if (!*what || !strcmp(what, "others"))
        others();
    if (!*what || !strcmp(what, "replay"))
        replays();
    if (!*what || !strcmp(what, "links"))
        over_links();
    if (!*what || !strcmp(what, "real"))
        in_earnest(argc > 2 ? atof(argv[2]) : 0, argc > 3 ? atoi(argv[3]) : 1,
                   argc > 4 ? atoi(argv[4]) : 8);
    if (!*what || !strcmp(what, "parts"))
        in_parts();
    return 0;
}
