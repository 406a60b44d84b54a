/* The search. A planner knows what nodes leave and cost, and not how a plan of all buffers comes
 * out; so it is given a budget of bytes to keep, its choice is planned, and what is missing or left
 * changes the next budget:
 *
 *     budget          all ─────────────────────────┐
 *                                    planned peak  │ above the limit by d: budget - d
 *     limit ...........................................................................
 *                                        below by d: budget + d, until little is left */
#include "train/run_fit.h"

#include "base/fs.h"
#include "base/rng.h"
#include "runtime/measure.h"
#include "runtime/mover.h"
#include "train/keeps.h"

#include <math.h>
#include <string.h>

enum {
    SLACK = 64,         /* what a process takes was 0.5 % above what was told of it, measured */
    TRIES = 10,         /* plans of a stage */
    ROUNDS = 4,         /* over all stages */
    NODES = 100 * 1000, /* of the exact search */
    COPIED = 6 << 20,   /* bytes: below what a run has at its peak anyway */
    WANDERS = 4 << 20   /* bytes of libraries that are there by where they begin and by what the
                         * system has of their files: 3.5 MiB between 40 starts were measured */
};

typedef struct fit {
    const weft_run *run;
    const weft_run_models *models;
    const weft_place_of_run *place;
    weft_comm *comm; /* of the ranks that decide together; NULL: of this one alone */
    const weft_device_type *device;
    int64_t fixed; /* what every phase has */
    int64_t staging, limit;
    weft_activation_plan *stored; /* of the run; NULL: none */
    bool again;                   /* it may be made again */
    weft_mover_rates copies;      /* out and back; no bytes a second: there is nowhere to go */
    int64_t least, least_stage;   /* of a stage that does not fit; 0: they all do */
    int64_t least_fixed;          /* of it: weights and program, with graphs of all stages */
    bool least_beside;            /* not its steps take that, what lies beside them does */
    weft_buf least_terms;
    /* of the stage */
    int64_t index;
    int64_t others; /* graphs and programs of the other stages, which stay from stage to stage */
    int64_t kept;   /* its own, as planned last */
    weft_keeps keeps;
} fit;

/* What a stage came to: of this rank's programs, and the most on any rank. */
typedef struct fitted {
    int64_t peak, kept, others;
    uint64_t inputs; /* of its activation plan */
} fitted;

/* The most on any rank. */
static weft_status over_ranks(const fit *f, int64_t *bytes)
{
    if (!f->comm)
        return WEFT_OK;
    const int ranks = weft_comm_ranks(f->comm);
    int64_t *all = weft_alloc(ranks * (int64_t)sizeof *all);
    if (!all)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d ranks", ranks);
    const weft_status_code status = weft_comm_all_gather(f->comm, bytes, sizeof *bytes, all);
    for (int r = 0; r < ranks && status == WEFT_OK; r++)
        *bytes = all[r] > *bytes ? all[r] : *bytes;
    weft_free(all);
    return status;
}

static weft_status look(void *user, const weft_graph *graph)
{
    fit *f = user;
    return weft_keeps_add(&f->keeps, graph, f->device);
}

/* The most that the stage takes on any rank with such fates; NULL: all is kept, and looked at. Each
 * has a cache of its own, so that what other plans keep does not count. */
static weft_status peak_with(fit *f, const weft_fates *fates, int64_t *peak, weft_buf *terms)
{
    weft_place_of_run place = *f->place;
    place.stage_fates = NULL;
    place.fates = fates;
    place.look = fates ? NULL : look;
    place.look_user = f;
    weft_step_cache *steps = weft_step_cache_create();
    if (!steps)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_run_bytes stage = {0};
    const weft_status_code status =
        weft_run_stage_bytes(f->run, f->models, f->index, &place, steps, &stage, terms);
    f->kept = weft_step_cache_kept(steps);
    *peak = weft_run_bytes_sum(stage) + f->fixed + f->staging + f->kept + f->others;
    weft_step_cache_free(steps);
    return status == WEFT_OK ? over_ranks(f, peak) : status;
}

/* ---- a budget -------------------------------------------------------------------------------- */

typedef struct trial {
    weft_keep_choice choice;
    weft_fates fates;
    double budget; /* bytes to keep */
    int64_t peak, kept;
} trial;

static void trial_free(trial *t)
{
    weft_keep_choice_free(&t->choice);
    weft_free(t->fates.row);
    *t = (trial){0};
}

static weft_status try_budget(fit *f, double budget, trial *out)
{
    trial t = {.budget = budget};
    const weft_keeps *k = &f->keeps;
    const weft_keep_copies copies = {.window = k->run, .drag = f->copies.drag};
    weft_status_code status = weft_keep_exact(k->item, k->items, copies, budget, NODES, &t.choice);
    if (status == WEFT_OK)
        status = weft_keeps_fates(k, &t.choice, &t.fates);
    if (status == WEFT_OK)
        status = peak_with(f, &t.fates, &t.peak, NULL);
    t.kept = f->kept;
    if (status != WEFT_OK)
        trial_free(&t);
    else
        *out = t;
    return status;
}

/* Bytes of all items, or of those that have to stay. */
static double item_bytes(const weft_keeps *k, bool stay)
{
    double sum = 0;
    for (int64_t i = 0; i < k->items; i++)
        if (!stay || (isinf(k->item[i].recompute) && isinf(k->item[i].offload)))
            sum += k->item[i].bytes * (double)k->item[i].count;
    return sum;
}

/* A choice that is missed by rounding is not asked for. */
static double least_budget(const weft_keeps *k)
{
    return item_bytes(k, true) * (1 + 1e-12) + 1;
}

/* Nothing is kept that need not be, each way that there is: of those that fit the quickest. Where
 * none does, the lowest peak of the ways that do not go by what was measured, which differs from
 * start to start: a limit that is told to be enough is enough at the next start. */
static weft_status try_least(fit *f, trial *least)
{
    static const struct {
        bool again, away, rest; /* rest: only what cannot be made again leaves */
        bool priced;
    } ways[] = {{true, true, true, false},
                {true, false, false, false},
                {false, true, false, false},
                {true, true, false, true}};
    const double rate = f->copies.bytes_per_second;
    for (int i = 0; i < WEFT_COUNT(ways); i++) {
        trial t = {0};
        if ((ways[i].again && !f->again) || (ways[i].away && !(rate > 0)))
            continue;
        WEFT_TRY(weft_keeps_items(&f->keeps, ways[i].again, ways[i].away ? rate : 0, ways[i].rest));
        WEFT_TRY(try_budget(f, least_budget(&f->keeps), &t));
        const bool fits = t.peak <= f->limit, none_yet = least->peak > f->limit;
        if (!least->fates.row || (fits && (none_yet || t.choice.seconds < least->choice.seconds)) ||
            (!fits && !ways[i].priced && t.peak < least->peak)) {
            trial_free(least);
            *least = t;
        } else {
            trial_free(&t);
        }
    }
    return weft_keeps_items(&f->keeps, f->again, rate, false);
}

/* The stage does not fit: what a rank takes at least is noted, of the stage that takes most, with
 * the terms of it; `beside` are those of what lies beside its steps, where that is the most. */
static weft_status note_least(fit *f, fitted least, const weft_fates *fates, weft_buf *beside)
{
    int64_t peak;
    if (least.peak <= f->least)
        return WEFT_OK;
    f->least = least.peak;
    f->least_stage = f->index;
    f->least_fixed = f->fixed + least.kept + least.others;
    f->least_beside = beside != NULL;
    weft_buf_free(&f->least_terms);
    if (!beside)
        return peak_with(f, fates, &peak, &f->least_terms);
    f->least_terms = *beside;
    *beside = (weft_buf){0};
    return WEFT_OK;
}

static weft_status too_little(const fit *f)
{
    const int64_t enough = f->least + f->least / (SLACK - 1) + 1 + WANDERS;
    char text[4][32];
    if (f->least_beside)
        return weft_fail(
            WEFT_E_MEMORY,
            "memory.limit: %s are less than the %s that a rank takes beside the steps of stage "
            "%lld, whatever these make again: weights, optimizer and program %s%s. Smaller frames, "
            "fsdp or zero in `parallel`, or memory.states: offload take less",
            weft_format_bytes(f->run->memory.limit, text[0]), weft_format_bytes(enough, text[1]),
            (long long)f->least_stage, weft_format_bytes(f->least_fixed, text[2]),
            f->least_terms.data ? f->least_terms.data : "");
    return weft_fail(
        WEFT_E_MEMORY,
        "memory.limit: %s are less than the %s that a rank takes with all of stage %lld%s%s that "
        "can be: weights, optimizer and program %s, copies for checkpoints %s%s. Smaller batches, "
        "fsdp or zero in `parallel`%s take less",
        weft_format_bytes(f->run->memory.limit, text[0]), weft_format_bytes(enough, text[1]),
        (long long)f->least_stage, f->again ? " made again in its backward" : "",
        f->copies.bytes_per_second > 0 ? f->again ? " or moved away" : " moved away" : "",
        weft_format_bytes(f->least_fixed, text[2]), weft_format_bytes(f->staging, text[3]),
        f->least_terms.data ? f->least_terms.data : "",
        f->copies.bytes_per_second > 0 ? "" : ", or memory.offload,");
}

/* Budgets between `low`, the least, and `high`, all; *best fits. */
static weft_status search(fit *f, int64_t all_peak, trial *best)
{
    const double least = least_budget(&f->keeps), all = item_bytes(&f->keeps, false);
    const double step = all / 128; /* less changes nothing that is chosen */
    double low = least, high = all, budget = all - (double)(all_peak - f->limit);
    for (int i = 0; i < TRIES && high - low > step; i++) {
        trial t;
        if (!(budget > low && budget < high) || i >= TRIES / 2)
            budget = (low + high) / 2;
        WEFT_TRY(try_budget(f, budget, &t));
        const double room = (double)(f->limit - t.peak), kept = t.choice.kept;
        if (room >= 0) {
            low = budget;
            budget = kept + room;
            trial_free(best);
            *best = t;
            if (room < step)
                break;
        } else {
            high = fmin(budget, kept);
            budget = high + fmin(room, -step);
            trial_free(&t);
        }
    }
    return best->fates.row ? WEFT_OK : try_least(f, best);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void tell(const fit *f, const trial *t, weft_buf *told)
{
    weft_buf what[2] = {{0}};
    char text[3][32];
    const int64_t again = weft_keeps_tell(&f->keeps, &t->fates, WEFT_FATE_AGAIN, &what[0]),
                  away = weft_keeps_tell(&f->keeps, &t->fates, WEFT_FATE_AWAY, &what[1]);
    weft_buf_printf(told, "memory.limit: stage %lld keeps %s of %s", (long long)f->index,
                    weft_format_bytes((int64_t)t->choice.kept, text[0]),
                    weft_format_bytes((int64_t)item_bytes(&f->keeps, false), text[1]));
    if (again)
        weft_buf_printf(told, ", makes %s again in the backward (%s)",
                        weft_format_bytes(again, text[2]), what[0].data ? what[0].data : "");
    if (away)
        weft_buf_printf(
            told, ", moves %s away and back (%s) at %s/s, of which kernels lose %.0f %%",
            weft_format_bytes(away, text[2]), what[1].data ? what[1].data : "",
            weft_format_bytes((int64_t)f->copies.bytes_per_second, text[0]), 100 * f->copies.drag);
    if (isnan(t->choice.seconds))
        weft_buf_printf(told, "; the activation plan is that of the run\n");
    else
        weft_buf_printf(told, "; a step of %s is expected to take %.1f %% longer\n",
                        weft_format_seconds(f->keeps.run, text[2]),
                        f->keeps.run > 0 ? 100 * t->choice.seconds / f->keeps.run : 0);
    weft_buf_free(&what[0]);
    weft_buf_free(&what[1]);
}

/* All that the choice of a stage may follow from, but for measured rates. */
static uint64_t inputs_of(const fit *f)
{
    bool chosen;
    const weft_string_list *patterns = weft_run_recomputes(f->run, &chosen);
    uint64_t hash = weft_seed_mix((uint64_t)f->run->memory.limit, (uint64_t)f->again << 1);
    hash = weft_seed_mix(hash, f->copies.bytes_per_second > 0);
    for (int64_t i = 0; i < patterns->count; i++)
        for (const char *c = patterns->item[i]; *c; c++)
            hash = weft_seed_mix(hash, (uint64_t)*c);
    for (int64_t i = 0; i < f->keeps.rows; i++) {
        const weft_keep_row *row = &f->keeps.row[i];
        hash = weft_seed_mix(weft_seed_mix(hash, row->key), (uint64_t)row->bytes);
        hash = weft_seed_mix(hash, isinf(row->seconds) ? 1 : 2);
    }
    return hash;
}

/* The choice that the run has for the stage, if its peak is within the limit. `all`: the peak with
 * all kept. A limit has some slack for a process that is larger at another start. */
static weft_status reuse(fit *f, uint64_t inputs, int64_t all, trial *best, bool *reused)
{
    const weft_fates *fates = weft_activation_plan_find(f->stored, f->index, inputs);
    trial t = {.peak = all, .kept = f->kept};
    const int64_t bytes = fates ? fates->count * (int64_t)sizeof *fates->row : 0;
    *reused = false;
    if (!fates)
        return WEFT_OK;
    t.choice.seconds = NAN;
    t.choice.kept = item_bytes(&f->keeps, false);
    t.fates = (weft_fates){weft_alloc(bytes + 1), fates->count};
    weft_status_code status =
        t.fates.row ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for memory.limit");
    if (status == WEFT_OK && bytes) {
        weft_buf text = {0};
        memcpy(t.fates.row, fates->row, (size_t)bytes);
        for (int fate = WEFT_FATE_AGAIN; fate <= WEFT_FATE_AWAY; fate++)
            t.choice.kept -= (double)weft_keeps_tell(&f->keeps, &t.fates, (weft_fate)fate, &text);
        weft_buf_free(&text);
        status = peak_with(f, &t.fates, &t.peak, NULL);
        t.kept = f->kept;
    }
    *reused = status == WEFT_OK && t.peak <= f->run->memory.limit;
    if (*reused)
        *best = t;
    else
        trial_free(&t);
    return status;
}

/* *fits: the choice is made, and the limit kept. */
static weft_status choose(fit *f, uint64_t inputs, int64_t all, trial *best, bool *fits)
{
    WEFT_TRY(reuse(f, inputs, all, best, fits));
    if (!*fits && all > f->limit && f->keeps.items) {
        WEFT_TRY(search(f, all, best));
        *fits = best->peak <= f->limit;
    } else if (!*fits) {
        *best = (trial){.peak = all, .kept = f->kept};
        *fits = all <= f->limit;
    }
    return WEFT_OK;
}

static weft_status fit_stage(fit *f, fitted *out, weft_fates *fates, weft_buf *told)
{
    trial best = {0};
    int64_t peak = 0, beside;
    bool fits = false;
    weft_run_bytes latents = {0};
    weft_buf beside_terms = {0};
    weft_step_cache *steps = weft_step_cache_create();
    if (!steps)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = weft_run_beside_bytes(f->run, f->models, f->index, f->place, steps,
                                                    &latents, &beside_terms);
    weft_step_cache_free(steps);
    if (status == WEFT_OK)
        status = peak_with(f, NULL, &peak, NULL);
    if (status == WEFT_OK)
        status = weft_keeps_share(&f->keeps, f->comm);
    if (status == WEFT_OK)
        status = weft_keeps_items(&f->keeps, f->again, f->copies.bytes_per_second, false);
    const uint64_t inputs = inputs_of(f);
    if (status == WEFT_OK)
        status = choose(f, inputs, peak, &best, &fits);
    if (status == WEFT_OK && fits && best.fates.count)
        tell(f, &best, told);
    beside = weft_run_bytes_sum(latents) + f->fixed + best.kept + f->others;
    if (status == WEFT_OK)
        status = over_ranks(f, &beside);
    const bool more = beside > best.peak; /* what lies beside it does not change */
    peak = more ? beside : best.peak;
    *out = (fitted){peak, best.kept, f->others, inputs};
    if (status == WEFT_OK && (more ? peak > f->limit : !fits))
        status = note_least(f, *out, &best.fates, more ? &beside_terms : NULL);
    weft_buf_free(&beside_terms);
    *fates = best.fates;
    best.fates.row = NULL;
    trial_free(&best);
    weft_keeps_free(&f->keeps);
    return status;
}

/* ---- all stages ------------------------------------------------------------------------------ */

/* Graphs and programs of all stages: one that has another's shapes has its programs, too. */
static weft_status kept_of_all(const fit *f, const weft_fates *fates, int64_t *bytes)
{
    weft_place_of_run place = *f->place;
    weft_status_code status = WEFT_OK;
    weft_step_cache *steps = weft_step_cache_create();
    if (!steps)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    place.stage_fates = fates;
    place.look = NULL;
    for (int64_t i = 0; i < f->run->stages.count && status == WEFT_OK; i++) {
        weft_run_bytes stage = {0};
        status = weft_run_stage_bytes(f->run, f->models, i, &place, steps, &stage, NULL);
    }
    *bytes = weft_step_cache_kept(steps);
    weft_step_cache_free(steps);
    return status;
}

static weft_status fit_each(fit *f, fitted *stage, weft_fates *fates, weft_buf *told)
{
    f->least = 0;
    for (f->index = 0; f->index < f->run->stages.count; f->index++) {
        fitted *s = &stage[f->index];
        f->others = s->others;
        weft_free(fates[f->index].row);
        fates[f->index] = (weft_fates){0};
        WEFT_TRY(fit_stage(f, s, &fates[f->index], told));
    }
    return WEFT_OK;
}

/* What the others keep beside each stage is known when all are planned. *over: what a stage had not
 * counted of it does not fit. */
static weft_status count_others(fit *f, fitted *stage, const weft_fates *fates, bool *over)
{
    int64_t all = 0;
    *over = false;
    WEFT_TRY(kept_of_all(f, fates, &all));
    for (int64_t i = 0; i < f->run->stages.count; i++) {
        fitted *s = &stage[i];
        const int64_t others = all > s->kept ? all - s->kept : 0;
        int64_t more = others > s->others ? others - s->others : 0;
        s->others += more;
        WEFT_TRY(over_ranks(f, &more));
        *over = *over || (more > 0 && s->peak + more > f->limit);
    }
    return WEFT_OK;
}

/* Round after round, till what stages take for one another's programs is what these are. */
static weft_status fit_all(fit *f, fitted *stage, weft_fates *fates, weft_buf *told)
{
    bool over = true;
    for (int round = 0; round < ROUNDS && over; round++) {
        weft_buf_free(told);
        WEFT_TRY(fit_each(f, stage, fates, told));
        if (f->run->stages.count == 1)
            return WEFT_OK;
        WEFT_TRY(count_others(f, stage, fates, &over));
    }
    return WEFT_OK;
}

static weft_status store_choices(const fit *f, const fitted *stage, const weft_fates *fates)
{
    const int64_t stages = f->run->stages.count;
    for (int64_t i = 0; i < stages && f->stored; i++)
        WEFT_TRY(weft_activation_plan_set(f->stored, i, stages, stage[i].inputs, &fates[i]));
    return WEFT_OK;
}

/* Of this machine, as measured now, or as a profile has it. */
static weft_status read_device(const weft_run *run, const weft_backend *backend, weft_arena *arena,
                               weft_cluster *cluster)
{
    const bool profiled = run->memory.profile[0];
    double gflops, bytes;
    WEFT_TRY(weft_cluster_load(arena, profiled ? run->memory.profile : "local", cluster));
    if (profiled || backend != &weft_backend_cpu)
        return WEFT_OK;
    WEFT_TRY(weft_measure_gemm(backend, 0.05, &gflops));
    WEFT_TRY(weft_measure_memory(COPIED, 0.03, &bytes));
    cluster->device.flops = gflops * 1e9 / cluster->device.gemm;
    cluster->device.memory_bandwidth = bytes / cluster->device.memory_fraction;
    return WEFT_OK;
}

/* Bytes a second of what is moved away and back; 0: nothing may be. The first rank's for all, as
 * all have to choose alike. */
static weft_status measure_copies(fit *f, const weft_cluster *cluster)
{
    const weft_run_place away = weft_run_away(f->run);
    if (!away.values)
        return WEFT_OK;
    f->copies.bytes_per_second = cluster->host.bandwidth;
    if (away.dir && (f->comm || weft_path_is_dir(away.dir)))
        WEFT_TRY(weft_mover_measure(away.dir, &f->copies));
    return f->comm ? weft_comm_broadcast(f->comm, &f->copies, sizeof f->copies, 0) : WEFT_OK;
}

weft_status weft_run_fit(const weft_run *run, const weft_run_models *models,
                         const weft_place_of_run *place, weft_comm *together, weft_store *store,
                         int64_t process, weft_activation_plan *stored, weft_fates *fates,
                         weft_buf *told)
{
    weft_cluster cluster;
    fit f = {.run = run,
             .models = models,
             .place = place,
             .comm = together,
             .stored = stored,
             .device = &cluster.device,
             .fixed = process + weft_run_first_use(run, place) + weft_store_bytes(store),
             .limit = run->memory.limit - run->memory.limit / SLACK};
    weft_run_recomputes(run, &f.again);
    weft_arena *arena = weft_arena_create();
    weft_status_code status = arena ? read_device(run, place->backend, arena, &cluster)
                                    : weft_fail(WEFT_E_MEMORY, "out of memory for memory.limit");
    if (status == WEFT_OK)
        status = measure_copies(&f, &cluster);
    if (status == WEFT_OK)
        status = weft_run_staging_bytes(models, place, store, &f.staging);
    fitted *stage = weft_alloc(run->stages.count * (int64_t)sizeof *stage);
    if (status == WEFT_OK && !stage)
        status = weft_fail(WEFT_E_MEMORY, "out of memory for memory.limit");
    if (status == WEFT_OK)
        status = fit_all(&f, stage, fates, told);
    if (status == WEFT_OK && f.least)
        status = too_little(&f);
    if (status == WEFT_OK)
        status = store_choices(&f, stage, fates);
    weft_buf_free(&f.least_terms);
    weft_arena_free(arena);
    weft_free(stage);
    return status == WEFT_OK ? weft_buf_check(told) : status;
}

void weft_run_fates_free(weft_fates *fates, int64_t stages)
{
    for (int64_t i = 0; i < stages && fates; i++)
        weft_free(fates[i].row);
    weft_free(fates);
}
