#include "generate/generator/feature_cache.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/scratch_map.h"
#include "comm/comm_world.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "format/tensors/safetensors_write.h"
#include "kernel/device.h"
#include "kernel/host.h"
#include "transform/feature_cache_ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum kind { PROBE, REFRESH, REUSE } kind;

/* A state tensor of the programs: offset and bytes in its window's record; `shared`: in the memory
 * of all windows. */
typedef struct state {
    const char *name;
    int64_t at, bytes;
    bool shared;
} state;

/* State of one window. */
typedef struct record {
    weft_scratch file; /* memory of `data` on the host */
    char *data;        /* in the memory of the programs */
    bool valid;        /* block outputs are saved */
    bool turned;       /* reuse.now and reuse.before are swapped */
    bool seen;         /* a previous signal exists */
    int64_t run;       /* consecutive steps that reused */
    double *gone;      /* [rows]: change since the last refresh */
} record;

struct weft_feature_cache {
    weft_feature_cache_rule rule;
    weft_feature_cache_programs graphs;
    weft_graph *graph[WEFT_FEATURE_CACHE_PROGRAM_COUNT]; /* after the passes; NULL: none */
    weft_program *program[WEFT_FEATURE_CACHE_PROGRAM_COUNT];
    double flops[WEFT_FEATURE_CACHE_PROGRAM_COUNT];
    weft_comm *comm;
    int64_t rows; /* rows of the batch */
    state *state;
    int states;
    int64_t shared_bytes, record_bytes, windows;
    uint64_t arrangement; /* hash of which part of which state is where in a record */
    const weft_device *device;
    weft_staging *staging; /* NULL: the host accesses the records */
    char *shared;
    record *record;
    double *totals; /* [rows][2]: change, magnitude */
    int64_t steps;  /* steps of this denoiser */
    char *trace;    /* a letter per evaluation of window 0, NUL-terminated */
    int64_t traced, trace_capacity;
    const char *offload_dir;
    /* current step */
    int64_t window, step;
    double started;
    /* [0]: refreshes, [1]: reuses */
    int64_t runs[2];
    double seconds[2];
};

/* ---- opening -------------------------------------------------------------------------------- */

static weft_status compile(weft_feature_cache *c, kind k, weft_graph **from,
                           const weft_feature_cache_setup *cache_setup)
{
    if (!*from)
        return WEFT_OK;
    c->graph[k] = *from;
    *from = NULL;
    WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, cache_setup->setup, false, &c->graph[k], NULL));
    c->flops[k] = (double)weft_graph_cost(c->graph[k]).flops;
    return weft_program_compile(c->graph[k], cache_setup->options, &c->program[k]);
}

static state *find_state(const weft_feature_cache *c, const char *name)
{
    for (int i = 0; i < c->states; i++)
        if (!strcmp(c->state[i].name, name))
            return &c->state[i];
    return NULL;
}

static uint64_t hash_numbers(const int64_t *number, int count, uint64_t hash)
{
    return XXH3_64bits_withSeed(number, (size_t)count * sizeof *number, hash);
}

/* Adds a state to the hash. In another layout a rank has other parts of a state, which may have the
 * same number of bytes. */
static uint64_t hash_state(const weft_tensor *t, int64_t at, uint64_t hash)
{
    hash = XXH3_64bits_withSeed(t->name, strlen(t->name), hash);
    hash = hash_numbers(&at, 1, hash);
    hash = hash_numbers(t->shape.dim, t->shape.rank, hash);
    hash = hash_numbers(t->whole.dim, t->whole.rank, hash);
    return hash_numbers(t->start, t->shape.rank, hash);
}

static weft_status arrange_states(weft_feature_cache *c)
{
    int all = 0, count;
    for (int k = 0; k < WEFT_FEATURE_CACHE_PROGRAM_COUNT; k++)
        if (c->program[k]) {
            weft_program_slots(c->program[k], &count);
            all += count;
        }
    WEFT_TRY(WEFT_NEW(c->state, all + 1, "a cache between steps"));
    for (int k = 0; k < WEFT_FEATURE_CACHE_PROGRAM_COUNT; k++) {
        const weft_tensor *slot = c->program[k] ? weft_program_slots(c->program[k], &count) : NULL;
        for (int i = 0; slot && i < count; i++) {
            if (find_state(c, slot[i].name))
                continue;
            state *r = &c->state[c->states++];
            const int64_t bytes =
                weft_aligned(weft_shape_count(&slot[i].shape) * weft_dtype_bytes(slot[i].dtype));
            *r = (state){.name = slot[i].name, .bytes = bytes};
            r->shared = !strncmp(r->name, "reuse.front.", 12);
            int64_t *end = r->shared ? &c->shared_bytes : &c->record_bytes;
            r->at = *end;
            *end += bytes;
            c->arrangement = hash_state(&slot[i], r->at, c->arrangement);
        }
    }
    return WEFT_OK;
}

weft_status weft_feature_cache_open(const weft_feature_cache_rule *rule,
                                    const weft_feature_cache_setup *cache_setup,
                                    weft_feature_cache **cache)
{
    weft_feature_cache *c = weft_alloc(sizeof *c);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(c, "a cache between steps"));
    c->rule = *rule;
    c->device =
        cache_setup->options->backend ? cache_setup->options->backend->device : &weft_device_host;
    c->comm = cache_setup->comm;
    c->rows = cache_setup->rows;
    c->windows = cache_setup->windows;
    c->offload_dir = cache_setup->offload_dir;
    const weft_feature_cache_programs_setup setup = {.latents = "batch.latents",
                                                     .time = "batch.timestep",
                                                     .what = rule->what,
                                                     .signal = rule->signal,
                                                     .front = rule->front};
    WEFT_GO(weft_pass_feature_cache(cache_setup->graph, &setup, &c->graphs));
    WEFT_GO(weft_feature_cache_programs_shard(&c->graphs, cache_setup->setup));
    WEFT_GO(compile(c, PROBE, &c->graphs.probe, cache_setup));
    WEFT_GO(compile(c, REFRESH, &c->graphs.refresh, cache_setup));
    WEFT_GO(compile(c, REUSE, &c->graphs.reuse, cache_setup));
    WEFT_GO(arrange_states(c));
    *cache = c;
    c = NULL;
out:
    weft_feature_cache_free(c);
    return status;
}

void weft_feature_cache_free(weft_feature_cache *c)
{
    if (!c)
        return;
    for (int k = 0; k < WEFT_FEATURE_CACHE_PROGRAM_COUNT; k++) {
        weft_program_free(c->program[k]);
        weft_graph_free(c->graph[k]);
    }
    weft_feature_cache_programs_free(&c->graphs);
    for (int64_t i = 0; i < c->windows && c->record; i++) {
        if (c->staging)
            c->device->free(c->device, c->record[i].data);
        weft_scratch_release(&c->record[i].file);
        weft_free(c->record[i].gone);
    }
    weft_free(c->record);
    weft_free(c->state);
    c->device->free(c->device, c->shared);
    weft_staging_free(c->staging);
    weft_free(c->totals);
    weft_free(c->trace);
    weft_free(c);
}

int weft_feature_cache_list_programs(const weft_feature_cache *c,
                                     weft_program *list[WEFT_FEATURE_CACHE_PROGRAM_COUNT])
{
    int count = 0;
    for (int k = 0; k < WEFT_FEATURE_CACHE_PROGRAM_COUNT; k++)
        if (c->program[k])
            list[count++] = c->program[k];
    return count;
}

int64_t weft_feature_cache_bytes(const weft_feature_cache *c, bool mapped)
{
    const int64_t records = c->windows * c->record_bytes;
    return mapped ? (c->offload_dir ? records : 0)
                  : c->shared_bytes + (c->offload_dir ? 0 : records);
}

/* Reserves zeros for a window: on another device its own memory, or a file. */
static weft_status reserve_record(weft_feature_cache *c, record *r)
{
    const int64_t bytes = c->record_bytes + 64;
    WEFT_TRY(WEFT_NEW(r->gone, c->rows, "a cache between steps"));
    if (!c->staging) {
        WEFT_TRY(weft_scratch_reserve(c->offload_dir, bytes,
                                      "Leave --feature-cache out, or write --out to another disk",
                                      &r->file));
        r->data = r->file.data;
        return WEFT_OK;
    }
    r->data = c->device->alloc(c->device, bytes);
    WEFT_TRY(WEFT_ALLOCATED(r->data, "a cache between steps"));
    return weft_staging_zero(c->staging, r->data, bytes);
}

weft_status weft_feature_cache_reserve(weft_feature_cache *c)
{
    if (weft_device_is_apart(c->device))
        WEFT_TRY(weft_staging_create(c->device, &c->staging));
    c->shared = c->device->alloc(c->device, c->shared_bytes + 64);
    c->record = weft_calloc(c->windows, sizeof *c->record);
    c->totals = weft_calloc(2 * c->rows, sizeof *c->totals);
    WEFT_TRY(WEFT_ALLOCATED(c->shared && c->record && c->totals, "a cache between steps"));
    for (int64_t i = 0; i < c->windows; i++)
        WEFT_TRY(reserve_record(c, &c->record[i]));
    return WEFT_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

void weft_feature_cache_begin(weft_feature_cache *c, int64_t steps)
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

/* Appends a letter to the trace. Samplers with several evaluations per step append several
 * letters. */
static weft_status note(weft_feature_cache *c, bool refreshed)
{
    WEFT_TRY(weft_grow((void **)&c->trace, c->traced + 1, &c->trace_capacity, 1));
    c->trace[c->traced++] = refreshed ? 'R' : '.';
    c->trace[c->traced] = '\0';
    return WEFT_OK;
}

/* Points the states of a program to the window's record. */
static void point(const weft_feature_cache *c, kind k, const record *r)
{
    int count;
    weft_tensor *slot = weft_program_slots(c->program[k], &count);
    for (int i = 0; i < count; i++) {
        const char *name = slot[i].name;
        if (r->turned && !strcmp(name, "reuse.now"))
            name = "reuse.before";
        else if (r->turned && !strcmp(name, "reuse.before"))
            name = "reuse.now";
        const state *at = find_state(c, name);
        slot[i].data = (at->shared ? c->shared : r->data) + at->at;
    }
    weft_program_set_slots(c->program[k]);
}

/* Whether the step refreshes whatever the signal: first and last steps, no saved outputs, or too
 * many consecutive reuses. */
static bool must_refresh(const weft_feature_cache *c, const record *r)
{
    const double warm = ceil(c->rule.warm * (double)c->steps - 1e-9);
    return !r->valid || (double)c->step < warm || c->step >= c->steps - c->rule.last ||
           (c->rule.run && r->run >= c->rule.run);
}

/* Adds the output `name`, which every rank has for all rows, to the totals per row. A row's
 * elements are contiguous. */
static void add_rows(weft_feature_cache *c, const char *name, int which)
{
    const weft_tensor *t = weft_program_output(c->program[PROBE], name);
    const float *x = t->data;
    const int64_t each = weft_shape_count(&t->shape) / c->rows;
    for (int64_t i = 0; i < each * c->rows; i++)
        c->totals[2 * (i / each) + which] += (double)x[i];
}

static double polynomial(const double coefficient[5], double x)
{
    double y = 0;
    for (int i = 0; i < 5; i++)
        y = y * x + coefficient[i];
    return y;
}

/* Sets *refresh if the signal changed too much in any row. */
static weft_status check_change(weft_feature_cache *c, record *r, bool *refresh)
{
    memset(c->totals, 0, (size_t)(2 * c->rows) * sizeof *c->totals);
    add_rows(c, "reuse.moved", 0);
    add_rows(c, "reuse.size", 1);
    if (c->comm)
        WEFT_TRY(weft_comm_sum(c->comm, c->totals, 2 * c->rows));
    bool far = !r->seen;
    for (int64_t i = 0; i < c->rows; i++) {
        const double change = c->totals[2 * i] / c->totals[2 * i + 1];
        if (!r->seen)
            r->gone[i] = 0;
        else if (c->rule.adds)
            r->gone[i] += polynomial(c->rule.coefficient, change);
        else
            r->gone[i] = change;
        far |= !(r->gone[i] < c->rule.threshold); /* NaN also refreshes */
    }
    *refresh = far || must_refresh(c, r);
    return WEFT_OK;
}

weft_status weft_feature_cache_begin_step(weft_feature_cache *c, int64_t window, int64_t step,
                                          weft_program **program)
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

/* Updates the record after a step; the current signal becomes the reference for the next step. */
static void remember(const weft_feature_cache *c, record *r, bool refreshed)
{
    if (refreshed)
        memset(r->gone, 0, (size_t)c->rows * sizeof *r->gone);
    if (c->rule.signal && (refreshed || c->rule.adds))
        r->turned = !r->turned;
    r->seen = true;
    r->valid |= refreshed;
    r->run = refreshed ? 0 : r->run + 1;
}

weft_status weft_feature_cache_end_step(weft_feature_cache *c, weft_program **program)
{
    record *r = &c->record[c->window];
    bool refresh = *program == c->program[REFRESH];
    WEFT_TRY(weft_program_run(*program));
    if (c->rule.signal) {
        WEFT_TRY(check_change(c, r, &refresh));
        const kind k = refresh ? REFRESH : REUSE;
        point(c, k, r);
        *program = c->program[k];
        WEFT_TRY(weft_program_run(*program));
    }
    remember(c, r, refresh);
    c->runs[!refresh]++;
    c->seconds[!refresh] += weft_now() - c->started;
    weft_scratch_drop(&r->file);
    return c->window == 0 ? note(c, refresh) : WEFT_OK;
}

/* ---- saving -------------------------------------------------------------------------------- */

/* Tensors of each window: `data`, the record's bytes, and `head`: valid, turned, seen, run,
 * gone[rows]. One tensor for all windows: "trace", and with several ranks "arrangement". */
enum { HEAD = 4, NAME = 96 };

static const char *name_of(const char *prefix, int64_t window, const char *what, char name[NAME])
{
    snprintf(name, NAME, "%.40s.%" PRId64 ".%s", prefix, window, what);
    return name;
}

weft_status weft_feature_cache_declare(const weft_feature_cache *c, const char *prefix,
                                       weft_tensors_writer *w)
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
    const int64_t hash_bytes = sizeof c->arrangement;
    if (c->comm)
        WEFT_TRY(weft_tensors_writer_declare(w, name_of(prefix, 0, "arrangement", name), WEFT_U8, 1,
                                             &hash_bytes));
    return weft_tensors_writer_declare(w, name_of(prefix, 0, "trace", name), WEFT_U8, 1,
                                       &c->traced);
}

static weft_status write_record(const weft_feature_cache *c, const record *r, const char *name,
                                weft_tensors_writer *w)
{
    void *copy = NULL;
    weft_status_code status = WEFT_OK;
    if (c->staging) {
        WEFT_TRY(WEFT_ALLOCATED(copy = weft_alloc(c->record_bytes + 1), "a cache between steps"));
        WEFT_GO(weft_staging_read(c->staging, copy, WEFT_U8, r->data, WEFT_U8, c->record_bytes));
    }
    WEFT_GO(weft_tensors_writer_data(w, name, WEFT_U8, copy ? copy : r->data));
out:
    weft_free(copy);
    return status;
}

static weft_status read_record(const weft_feature_cache *c, const record *r, const void *data)
{
    if (!c->staging) {
        memcpy(r->data, data, (size_t)c->record_bytes);
        return WEFT_OK;
    }
    WEFT_TRY(weft_staging_write(c->staging, r->data, WEFT_U8, data, WEFT_U8, c->record_bytes));
    return weft_staging_finish(c->staging);
}

weft_status weft_feature_cache_write(const weft_feature_cache *c, const char *prefix,
                                     weft_tensors_writer *w)
{
    char name[NAME];
    for (int64_t i = 0; i < c->windows; i++) {
        const record *r = &c->record[i];
        const double head[HEAD] = {r->valid, r->turned, r->seen, (double)r->run};
        name_of(prefix, i, "head", name);
        WEFT_TRY(weft_tensors_writer_some(w, name, head, sizeof head));
        WEFT_TRY(weft_tensors_writer_some(w, name, r->gone, c->rows * (int64_t)sizeof *r->gone));
        if (r->valid || r->seen)
            WEFT_TRY(write_record(c, r, name_of(prefix, i, "data", name), w));
        weft_scratch_drop(&r->file);
    }
    if (c->comm)
        WEFT_TRY(weft_tensors_writer_data(w, name_of(prefix, 0, "arrangement", name), WEFT_U8,
                                          &c->arrangement));
    return weft_tensors_writer_data(w, name_of(prefix, 0, "trace", name), WEFT_U8,
                                    c->traced ? c->trace : "");
}

static weft_status find_saved(const weft_tensors *from, const char *name, int64_t bytes,
                              const void **data)
{
    const weft_stored_tensor *t = weft_tensors_find(from, name);
    if (!t || t->bytes != bytes)
        return weft_error(
            WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = weft_tensors_path(from), .key = name),
            "the saved cache has another size than the %" PRId64 " bytes of this run. "
            "Remove the saved state to start from scratch.",
            bytes);
    *data = t->data;
    return WEFT_OK;
}

/* Refuses a cache of several ranks that was saved with another arrangement, or without its hash. */
static weft_status check_arrangement(const weft_feature_cache *c, const char *prefix,
                                     const weft_tensors *from)
{
    char name[NAME];
    if (!c->comm)
        return WEFT_OK;
    const weft_stored_tensor *t = weft_tensors_find(from, name_of(prefix, 0, "arrangement", name));
    if (t && t->bytes == sizeof c->arrangement &&
        !memcmp(t->data, &c->arrangement, sizeof c->arrangement))
        return WEFT_OK;
    return weft_error(WEFT_MSG_LATENTS_MISMATCH,
                      WEFT_AT(.file = weft_tensors_path(from), .key = name),
                      "the cache was saved with another layout of the ranks. Resume with its "
                      "--parallel and --comm-overlap and the same version of weft, or remove the "
                      "saved state to start from scratch.");
}

weft_status weft_feature_cache_read(weft_feature_cache *c, const char *prefix,
                                    const weft_tensors *from)
{
    char name[NAME];
    const void *data = NULL;
    WEFT_TRY(check_arrangement(c, prefix, from));
    for (int64_t i = 0; i < c->windows; i++) {
        record *r = &c->record[i];
        double head[HEAD];
        WEFT_TRY(find_saved(from, name_of(prefix, i, "head", name),
                            (HEAD + c->rows) * (int64_t)sizeof *head, &data));
        memcpy(head, data, sizeof head);
        memcpy(r->gone, (const char *)data + sizeof head, (size_t)c->rows * sizeof *r->gone);
        r->valid = head[0] > 0;
        r->turned = head[1] > 0;
        r->seen = head[2] > 0;
        r->run = (int64_t)head[3];
        if (!r->valid && !r->seen)
            continue;
        WEFT_TRY(find_saved(from, name_of(prefix, i, "data", name), c->record_bytes, &data));
        WEFT_TRY(read_record(c, r, data));
        weft_scratch_drop(&r->file);
    }
    const weft_stored_tensor *trace = weft_tensors_find(from, name_of(prefix, 0, "trace", name));
    for (int64_t i = 0; trace && i < trace->bytes; i++)
        WEFT_TRY(note(c, ((const char *)trace->data)[i] == 'R'));
    return WEFT_OK;
}

weft_feature_cache_stats weft_feature_cache_get_stats(const weft_feature_cache *c)
{
    const double full = (double)c->runs[0] + (double)c->runs[1],
                 each = c->runs[0] ? c->seconds[0] / (double)c->runs[0] : 0,
                 took = c->seconds[0] + c->seconds[1],
                 refresh = c->flops[PROBE] + c->flops[REFRESH],
                 reuse = c->flops[PROBE] + c->flops[REUSE],
                 flops = (double)c->runs[0] * refresh + (double)c->runs[1] * reuse;
    return (weft_feature_cache_stats){.runs = c->runs[0] + c->runs[1],
                                      .reused = c->runs[1],
                                      .predicted = flops > 0 ? full * refresh / flops : 1,
                                      .measured = took > 0 ? full * each / took : 1,
                                      .blocks = c->graphs.blocks,
                                      .left = c->graphs.left,
                                      .steps = c->trace ? c->trace : ""};
}
