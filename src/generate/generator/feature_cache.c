#include "generate/cache.h"

#include "base/log.h"
#include "base/scratch_map.h"
#include "runtime/part.h"

#include <math.h>
#include <stdio.h>
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
    weft_scratch data;
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
    int64_t rows; /* of the batch */
    room *room;
    int rooms;
    int64_t shared_bytes, record_bytes, windows;
    char *shared;
    record *record;
    double *sums;  /* [rows][2]: moved, size */
    int64_t steps; /* of this denoiser */
    char *trace;   /* a letter each time that window 0 was asked, and a 0 */
    int64_t traced, trace_room;
    const char *away;
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
    c->away = place->away;
    const weft_reuse_setup setup = {.latents = "batch.latents",
                                    .time = "batch.timestep",
                                    .what = rule->what,
                                    .signal = rule->signal,
                                    .front = rule->front};
    WEFT_GO(weft_pass_reuse(place->graph, &setup, &c->graphs));
    WEFT_GO(weft_reuse_shard(&c->graphs, place->setup));
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
        weft_scratch_release(&c->record[i].data);
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

int64_t weft_cache_bytes(const weft_cache *c, bool mapped)
{
    const int64_t records = c->windows * c->record_bytes;
    return mapped ? (c->away ? records : 0) : c->shared_bytes + (c->away ? 0 : records);
}

weft_status weft_cache_reserve(weft_cache *c)
{
    c->shared = weft_alloc_aligned(c->shared_bytes + 64);
    c->record = weft_alloc(c->windows * (int64_t)sizeof *c->record);
    c->sums = weft_alloc(2 * c->rows * (int64_t)sizeof *c->sums);
    if (!c->shared || !c->record || !c->sums)
        return no_memory();
    for (int64_t i = 0; i < c->windows; i++) {
        c->record[i].gone = weft_alloc(c->rows * (int64_t)sizeof(double));
        if (!c->record[i].gone)
            return no_memory();
        WEFT_TRY(weft_scratch_reserve(c->away, c->record_bytes + 64,
                                      "Leave --cache out, or write --out to another disk",
                                      &c->record[i].data));
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
    c->traced = 0;
    if (c->trace)
        c->trace[0] = '\0';
}

/* Samplers that ask several times a step leave as many letters. */
static weft_status note(weft_cache *c, bool refreshed)
{
    WEFT_TRY(weft_grow((void **)&c->trace, c->traced + 1, &c->trace_room, 1));
    c->trace[c->traced++] = refreshed ? 'R' : '.';
    c->trace[c->traced] = '\0';
    return WEFT_OK;
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
        slot[i].data = (at->shared ? c->shared : (char *)r->data.data) + at->at;
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

/* Adds output `name`, which every rank has for all rows, to the sums of rows. A row's elements are
 * contiguous. */
static void add_rows(weft_cache *c, const char *name, int which)
{
    const weft_tensor *t = weft_program_output(c->program[PROBE], name);
    const float *x = t->data;
    const int64_t each = weft_shape_count(&t->shape) / c->rows;
    for (int64_t i = 0; i < each * c->rows; i++)
        c->sums[2 * (i / each) + which] += (double)x[i];
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
    weft_scratch_drop(&r->data);
    return c->window == 0 ? note(c, refresh) : WEFT_OK;
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* Of each window `data`, as it lies, and `head`: valid, turned, seen, run, gone[rows]. Of all of
 * them "trace". */
enum { HEAD = 4, NAME = 96 };

static const char *name_of(const char *prefix, int64_t window, const char *what, char name[NAME])
{
    snprintf(name, NAME, "%.40s.%lld.%s", prefix, (long long)window, what);
    return name;
}

weft_status weft_cache_declare(const weft_cache *c, const char *prefix, weft_tensors_writer *w)
{
    char name[NAME];
    const int64_t head = HEAD + c->rows;
    for (int64_t i = 0; i < c->windows; i++) {
        WEFT_TRY(
            weft_tensors_writer_declare(w, name_of(prefix, i, "head", name), WEFT_F64, 1, &head));
        if (c->record[i].valid || c->record[i].seen)
            WEFT_TRY(weft_tensors_writer_declare(w, name_of(prefix, i, "data", name), WEFT_U8, 1,
                                                 &c->record_bytes));
    }
    return weft_tensors_writer_declare(w, name_of(prefix, 0, "trace", name), WEFT_U8, 1,
                                       &c->traced);
}

weft_status weft_cache_write(const weft_cache *c, const char *prefix, weft_tensors_writer *w)
{
    char name[NAME];
    for (int64_t i = 0; i < c->windows; i++) {
        const record *r = &c->record[i];
        const double head[HEAD] = {r->valid, r->turned, r->seen, (double)r->run};
        name_of(prefix, i, "head", name);
        WEFT_TRY(weft_tensors_writer_some(w, name, head, sizeof head));
        WEFT_TRY(weft_tensors_writer_some(w, name, r->gone, c->rows * (int64_t)sizeof *r->gone));
        if (r->valid || r->seen)
            WEFT_TRY(weft_tensors_writer_data(w, name_of(prefix, i, "data", name), WEFT_U8,
                                              r->data.data));
        weft_scratch_drop(&r->data);
    }
    return weft_tensors_writer_data(w, name_of(prefix, 0, "trace", name), WEFT_U8,
                                    c->traced ? c->trace : "");
}

static weft_status find_kept(const weft_tensors *from, const char *name, int64_t bytes,
                             const void **data)
{
    const weft_stored_tensor *t = weft_tensors_find(from, name);
    if (!t || t->bytes != bytes)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"%s\" is not of %lld bytes, as the cache of this run has it; "
                         "remove the walk's files to begin anew",
                         weft_tensors_path(from), name, (long long)bytes);
    *data = t->data;
    return WEFT_OK;
}

weft_status weft_cache_read(weft_cache *c, const char *prefix, const weft_tensors *from)
{
    char name[NAME];
    const void *data;
    for (int64_t i = 0; i < c->windows; i++) {
        record *r = &c->record[i];
        double head[HEAD];
        WEFT_TRY(find_kept(from, name_of(prefix, i, "head", name),
                           (HEAD + c->rows) * (int64_t)sizeof *head, &data));
        memcpy(head, data, sizeof head);
        memcpy(r->gone, (const char *)data + sizeof head, (size_t)c->rows * sizeof *r->gone);
        r->valid = head[0] > 0;
        r->turned = head[1] > 0;
        r->seen = head[2] > 0;
        r->run = (int64_t)head[3];
        if (!r->valid && !r->seen)
            continue;
        WEFT_TRY(find_kept(from, name_of(prefix, i, "data", name), c->record_bytes, &data));
        memcpy(r->data.data, data, (size_t)c->record_bytes);
        weft_scratch_drop(&r->data);
    }
    const weft_stored_tensor *trace = weft_tensors_find(from, name_of(prefix, 0, "trace", name));
    for (int64_t i = 0; trace && i < trace->bytes; i++)
        WEFT_TRY(note(c, ((const char *)trace->data)[i] == 'R'));
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
