#include "generate/cache.h"

#include "base/log.h"
#include "runtime/part.h"

#include <math.h>
#include <string.h>

typedef enum kind { PROBE, REFRESH, REUSE } kind;

/* A state of the programs, where it lies in its record; `shared`: in the one of all windows. */
typedef struct room {
    const char *name;
    int64_t at, bytes;
    bool shared;
} room;

/* What is denoised by itself. */
typedef struct record {
    char *data;
    bool valid;   /* something is kept */
    bool turned;  /* reuse.now and reuse.before have changed places */
    bool seen;    /* there is a signal to compare with */
    int64_t run;  /* steps in a row that took it again */
    double *gone; /* [rows]: added up since it was refreshed */
} record;

struct weft_cache {
    weft_cache_rule rule;
    weft_reuse graphs;
    weft_graph *graph[WEFT_CACHE_PROGRAMS]; /* behind the passes; NULL: none */
    weft_program *program[WEFT_CACHE_PROGRAMS];
    double flops[WEFT_CACHE_PROGRAMS];
    weft_comm *comm;
    int64_t rows, first_row, own_rows; /* of the batch, and this rank's */
    room *room;
    int rooms;
    int64_t shared_bytes, record_bytes, windows;
    char *shared;
    record *record;
    double *sums;  /* [rows][2]: moved, size */
    int64_t steps; /* of this denoiser */
    char *trace;   /* [steps + 1] */
    int64_t trace_room;
    /* the step that runs */
    int64_t window, step;
    double started;
    /* by what was done */
    int64_t runs[2];
    double seconds[2];
};

/* ---- opening -------------------------------------------------------------------------------- */

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for a cache between steps");
}

static weft_status compile(weft_cache *c, kind k, weft_graph **from, const weft_cache_place *place)
{
    if (!*from)
        return WEFT_OK;
    c->graph[k] = *from;
    *from = NULL;
    WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, place->setup, false, &c->graph[k], NULL));
    c->flops[k] = (double)weft_graph_cost(c->graph[k]).flops;
    return weft_program_compile(c->graph[k], place->options, &c->program[k]);
}

static room *find_room(const weft_cache *c, const char *name)
{
    for (int i = 0; i < c->rooms; i++)
        if (!strcmp(c->room[i].name, name))
            return &c->room[i];
    return NULL;
}

static weft_status lay_rooms(weft_cache *c)
{
    int all = 0, count;
    for (int k = 0; k < WEFT_CACHE_PROGRAMS; k++)
        if (c->program[k]) {
            weft_program_slots(c->program[k], &count);
            all += count;
        }
    c->room = weft_alloc((all + 1) * (int64_t)sizeof *c->room);
    if (!c->room)
        return no_memory();
    for (int k = 0; k < WEFT_CACHE_PROGRAMS; k++) {
        const weft_tensor *slot = c->program[k] ? weft_program_slots(c->program[k], &count) : NULL;
        for (int i = 0; slot && i < count; i++) {
            if (find_room(c, slot[i].name))
                continue;
            room *r = &c->room[c->rooms++];
            const int64_t bytes =
                weft_aligned(weft_shape_count(&slot[i].shape) * weft_dtype_bytes(slot[i].dtype));
            *r = (room){.name = slot[i].name, .bytes = bytes};
            r->shared = !strncmp(r->name, "reuse.front.", 12);
            int64_t *end = r->shared ? &c->shared_bytes : &c->record_bytes;
            r->at = *end;
            *end += bytes;
        }
    }
    return WEFT_OK;
}

weft_status weft_cache_open(const weft_cache_rule *rule, const weft_cache_place *place,
                            weft_cache **cache)
{
    weft_cache *c = weft_alloc(sizeof *c);
    weft_status_code status = WEFT_OK;
    if (!c)
        return no_memory();
    c->rule = *rule;
    c->comm = place->comm;
    c->rows = place->rows;
    c->windows = place->windows;
    const weft_reuse_setup setup = {.latents = "batch.latents",
                                    .time = "batch.timestep",
                                    .what = rule->what,
                                    .signal = rule->signal,
                                    .front = rule->front};
    WEFT_GO(weft_pass_reuse(place->graph, &setup, &c->graphs));
    const weft_tensor own =
        weft_tensor_of(place->graph, weft_graph_find(place->graph, "batch.latents"));
    c->first_row = own.start[0];
    c->own_rows = own.shape.dim[0];
    WEFT_GO(compile(c, PROBE, &c->graphs.probe, place));
    WEFT_GO(compile(c, REFRESH, &c->graphs.refresh, place));
    WEFT_GO(compile(c, REUSE, &c->graphs.reuse, place));
    WEFT_GO(lay_rooms(c));
    *cache = c;
    c = NULL;
out:
    weft_cache_free(c);
    return status;
}

void weft_cache_free(weft_cache *c)
{
    if (!c)
        return;
    for (int k = 0; k < WEFT_CACHE_PROGRAMS; k++) {
        weft_program_free(c->program[k]);
        weft_graph_free(c->graph[k]);
    }
    weft_reuse_free(&c->graphs);
    for (int64_t i = 0; i < c->windows && c->record; i++) {
        weft_free(c->record[i].data);
        weft_free(c->record[i].gone);
    }
    weft_free(c->record);
    weft_free(c->room);
    weft_free(c->shared);
    weft_free(c->sums);
    weft_free(c->trace);
    weft_free(c);
}

int weft_cache_programs(const weft_cache *c, weft_program *list[WEFT_CACHE_PROGRAMS])
{
    int count = 0;
    for (int k = 0; k < WEFT_CACHE_PROGRAMS; k++)
        if (c->program[k])
            list[count++] = c->program[k];
    return count;
}

int64_t weft_cache_bytes(const weft_cache *c)
{
    return c->shared_bytes + c->windows * c->record_bytes;
}

weft_status weft_cache_reserve(weft_cache *c)
{
    c->shared = weft_alloc_aligned(c->shared_bytes + 64);
    c->record = weft_alloc(c->windows * (int64_t)sizeof *c->record);
    c->sums = weft_alloc(2 * c->rows * (int64_t)sizeof *c->sums);
    if (!c->shared || !c->record || !c->sums)
        return no_memory();
    for (int64_t i = 0; i < c->windows; i++) {
        c->record[i].data = weft_alloc_aligned(c->record_bytes + 64);
        c->record[i].gone = weft_alloc(c->rows * (int64_t)sizeof(double));
        if (!c->record[i].data || !c->record[i].gone)
            return no_memory();
    }
    return WEFT_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

void weft_cache_begin(weft_cache *c, int64_t steps)
{
    for (int64_t i = 0; i < c->windows; i++) {
        record *r = &c->record[i];
        r->valid = r->seen = false;
        r->run = 0;
    }
    c->steps = steps;
    if (steps >= c->trace_room) {
        weft_free(c->trace);
        c->trace = weft_alloc(steps + 1);
        c->trace_room = c->trace ? steps + 1 : 0;
    }
    if (c->trace)
        memset(c->trace, 0, (size_t)c->trace_room);
}

/* The states of a program are those of the window. */
static void point(const weft_cache *c, kind k, const record *r)
{
    int count;
    weft_tensor *slot = weft_program_slots(c->program[k], &count);
    for (int i = 0; i < count; i++) {
        const char *name = slot[i].name;
        if (r->turned && !strcmp(name, "reuse.now"))
            name = "reuse.before";
        else if (r->turned && !strcmp(name, "reuse.before"))
            name = "reuse.now";
        const room *at = find_room(c, name);
        slot[i].data = (at->shared ? c->shared : r->data) + at->at;
    }
    weft_program_point(c->program[k]);
}

/* Steps at the ends refresh whatever has moved. */
static bool must_refresh(const weft_cache *c, const record *r)
{
    const double warm = ceil(c->rule.warm * (double)c->steps - 1e-9);
    return !r->valid || (double)c->step < warm || c->step >= c->steps - c->rule.last ||
           (c->rule.run && r->run >= c->rule.run);
}

/* Of output `name`, this rank's sums, to those of rows; a row's lie one behind the other. */
static void add_rows(weft_cache *c, const char *name, int which)
{
    const weft_tensor *t = weft_program_output(c->program[PROBE], name);
    const float *x = t->data;
    const int64_t each = c->own_rows ? weft_shape_count(&t->shape) / c->own_rows : 0;
    for (int64_t i = 0; i < each * c->own_rows; i++)
        c->sums[2 * (c->first_row + i / each) + which] += (double)x[i];
}

static double polynomial(const double coefficient[5], double x)
{
    double y = 0;
    for (int i = 0; i < 5; i++)
        y = y * x + coefficient[i];
    return y;
}

/* Whether it has moved too far in any row. */
static weft_status look(weft_cache *c, record *r, bool *refresh)
{
    memset(c->sums, 0, (size_t)(2 * c->rows) * sizeof *c->sums);
    add_rows(c, "reuse.moved", 0);
    add_rows(c, "reuse.size", 1);
    if (c->comm)
        WEFT_TRY(weft_comm_sum(c->comm, c->sums, 2 * c->rows));
    bool far = !r->seen;
    for (int64_t i = 0; i < c->rows; i++) {
        const double moved = c->sums[2 * i] / c->sums[2 * i + 1];
        if (!r->seen)
            r->gone[i] = 0;
        else if (c->rule.adds)
            r->gone[i] += polynomial(c->rule.coefficient, moved);
        else
            r->gone[i] = moved;
        far |= !(r->gone[i] < c->rule.threshold); /* also where it is no number */
    }
    *refresh = far || must_refresh(c, r);
    return WEFT_OK;
}

weft_status weft_cache_first(weft_cache *c, int64_t window, int64_t step, weft_program **program)
{
    record *r = &c->record[window];
    c->window = window;
    c->step = step;
    kind k = PROBE;
    if (!c->rule.signal)
        k = must_refresh(c, r) || r->run + 1 >= c->rule.every ? REFRESH : REUSE;
    point(c, k, r);
    *program = c->program[k];
    c->started = weft_now();
    return WEFT_OK;
}

/* What was looked at is what the next one is compared with. */
static void remember(const weft_cache *c, record *r, bool refreshed)
{
    if (refreshed)
        memset(r->gone, 0, (size_t)c->rows * sizeof *r->gone);
    if (c->rule.signal && (refreshed || c->rule.adds))
        r->turned = !r->turned;
    r->seen = true;
    r->valid |= refreshed;
    r->run = refreshed ? 0 : r->run + 1;
}

weft_status weft_cache_finish(weft_cache *c, weft_program **program)
{
    record *r = &c->record[c->window];
    bool refresh = *program == c->program[REFRESH];
    WEFT_TRY(weft_program_run(*program));
    if (c->rule.signal) {
        WEFT_TRY(look(c, r, &refresh));
        const kind k = refresh ? REFRESH : REUSE;
        point(c, k, r);
        *program = c->program[k];
        WEFT_TRY(weft_program_run(*program));
    }
    remember(c, r, refresh);
    c->runs[!refresh]++;
    c->seconds[!refresh] += weft_now() - c->started;
    if (c->window == 0 && c->trace && c->step < c->trace_room - 1)
        c->trace[c->step] = refresh ? 'R' : '.';
    return WEFT_OK;
}

weft_cache_report weft_cache_tell(const weft_cache *c)
{
    const double full = (double)c->runs[0] + (double)c->runs[1],
                 each = c->runs[0] ? c->seconds[0] / (double)c->runs[0] : 0,
                 took = c->seconds[0] + c->seconds[1],
                 refresh = c->flops[PROBE] + c->flops[REFRESH],
                 reuse = c->flops[PROBE] + c->flops[REUSE],
                 flops = (double)c->runs[0] * refresh + (double)c->runs[1] * reuse;
    return (weft_cache_report){.runs = c->runs[0] + c->runs[1],
                               .reused = c->runs[1],
                               .predicted = flops > 0 ? full * refresh / flops : 1,
                               .measured = took > 0 ? full * each / took : 1,
                               .blocks = c->graphs.blocks,
                               .left = c->graphs.left,
                               .steps = c->trace ? c->trace : ""};
}
