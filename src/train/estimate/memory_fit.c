/* Search for an activation plan. The planner has the bytes and costs of nodes, but not the peak
 * of the planned buffers. It therefore gets a budget of bytes to keep. Its choice is planned, and
 * the distance of the peak from the limit changes the next budget:
 *
 *     budget          all ─────────────────────────┐
 *                                    planned peak  │ above the limit by d: budget - d
 *     limit ...........................................................................
 *                                        below by d: budget + d, until d is small */
#include "train/estimate/memory_fit.h"

#include "base/fs.h"
#include "base/rng.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "exec/copy_engine.h"
#include "exec/measure_products.h"
#include "kernel/cpu/table.h"
#include "train/estimate/activation_candidates.h"
#include "train/estimate/process_memory.h"

#include <math.h>
#include <string.h>

enum {
    TRIES = 10,                /* maximum plans of a stage */
    ROUNDS = 4,                /* maximum passes over all stages */
    NODES = 100 * 1000,        /* maximum nodes of the exact search */
    BANDWIDTH_BUFFER = 4 << 20 /* bytes of each of the two buffers of the bandwidth measurement */
};

typedef struct fit {
    const weft_run *run;
    const weft_run_models *models;
    const weft_exec_config *exec;
    weft_comm *comm; /* ranks that decide together; NULL: this rank alone */
    const weft_device_type *device;
    int64_t fixed; /* bytes needed in every phase */
    int64_t weights, staging, limit;
    weft_stored_activations *stored; /* plan of the run; NULL: none */
    bool can_recompute;              /* memory.recompute is auto */
    weft_copy_engine_rates copies;   /* out and back; 0 bytes/s: offload is off */
    /* largest minimum peak of stages that do not fit; 0 if all fit */
    int64_t least, least_train_stage;
    int64_t least_fixed; /* its weights and programs, with graphs of all stages */
    bool least_is_setup; /* the peak is outside the stage's steps */
    weft_buf least_terms;
    /* State of the current stage: */
    int64_t index;
    int64_t others;        /* bytes of the graphs and programs of other stages, which stay cached */
    int64_t program_bytes; /* bytes of this stage's, as last planned */
    int64_t stage_bytes; /* bytes that this stage's programs and batches reserve, as last planned */
    weft_activation_candidates candidates;
} fit;

/* Result of a stage: bytes of this rank's programs, and the highest peak of any rank. */
typedef struct fitted {
    int64_t peak, program_bytes, others;
    uint64_t inputs; /* hash of the activation plan's inputs */
} fitted;

/* Replaces *bytes with the maximum over the ranks. */
static weft_status over_ranks(const fit *f, int64_t *bytes)
{
    if (!f->comm)
        return WEFT_OK;
    const int ranks = weft_comm_ranks(f->comm);
    int64_t *all;
    WEFT_TRY(WEFT_NEW(all, ranks, "%d ranks", ranks));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_all_gather(f->comm, bytes, sizeof *bytes, all));
    for (int r = 0; r < ranks; r++)
        *bytes = all[r] > *bytes ? all[r] : *bytes;
out:
    weft_free(all);
    return status;
}

static weft_status add_graph(void *user, const weft_graph *graph)
{
    fit *f = user;
    return weft_activation_candidates_add(&f->candidates, graph, f->device);
}

/* Highest peak of the stage on any rank with an activation plan. NULL: all activations are kept,
 * and the graphs are added to f->candidates. Each call has its own cache, so that the programs of
 * other plans do not count. */
static weft_status peak_with(fit *f, const weft_activation_plan *activations, int64_t *peak,
                             weft_buf *terms)
{
    weft_exec_config exec = *f->exec;
    exec.stage_activations = NULL;
    exec.activations = activations;
    exec.inspect = activations ? NULL : add_graph;
    exec.inspect_user = f;
    weft_compiled_steps *steps = weft_compiled_steps_create();
    WEFT_TRY(WEFT_ALLOCATED(steps, "the activation plan"));
    weft_run_bytes stage_bytes = {0};
    const weft_status_code status =
        weft_run_stage_bytes(f->run, f->models, f->index, &exec, steps, &stage_bytes, terms);
    f->program_bytes = weft_compiled_steps_program_bytes(steps);
    f->stage_bytes = weft_run_bytes_sum(stage_bytes);
    *peak = f->stage_bytes + f->fixed + f->staging + f->program_bytes + f->others;
    weft_compiled_steps_free(steps);
    WEFT_TRY(status);
    return over_ranks(f, peak);
}

/* ---- search over budgets --------------------------------------------------------------------- */

typedef struct trial {
    weft_activation_choice choice;
    weft_activation_plan activations;
    double budget; /* bytes to keep */
    int64_t peak, program_bytes;
} trial;

static void trial_free(trial *t)
{
    weft_activation_choice_free(&t->choice);
    weft_free(t->activations.row);
    *t = (trial){0};
}

static weft_status try_budget(fit *f, double budget, trial *out)
{
    trial t = {.budget = budget};
    const weft_activation_candidates *k = &f->candidates;
    const weft_offload_rates copies = {.window = k->run, .slowdown = f->copies.slowdown};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_activations_choose_exact(k->item, k->items, copies, budget, NODES, &t.choice));
    WEFT_GO(weft_activation_candidates_plan(k, &t.choice, &t.activations));
    WEFT_GO(peak_with(f, &t.activations, &t.peak, NULL));
    t.program_bytes = f->program_bytes;
    *out = t;
    return WEFT_OK;
out:
    trial_free(&t);
    return status;
}

/* Bytes of all items, or with `stay` of items that must be kept. */
static double item_bytes(const weft_activation_candidates *k, bool stay)
{
    double sum = 0;
    for (int64_t i = 0; i < k->items; i++)
        if (!stay || (isinf(k->item[i].recompute) && isinf(k->item[i].offload)))
            sum += k->item[i].bytes * (double)k->item[i].count;
    return sum;
}

/* Slightly more than the bytes that must be kept, so that rounding does not exclude the choice. */
static double least_budget(const weft_activation_candidates *k)
{
    return item_bytes(k, true) * (1 + 1e-12) + 1;
}

/* Tries the smallest budget with each method and returns the fastest choice that fits. If none
 * fits, returns the lowest peak of the methods that do not depend on measured rates. Measured rates
 * differ between starts. A limit that the error names as sufficient must also suffice at the next
 * start. */
static weft_status try_least(fit *f, trial *least)
{
    static const struct {
        /* rest: only nodes that cannot be recomputed are offloaded */
        bool recompute, offload, rest;
        bool measured;
    } methods[] = {{true, true, true, false},
                   {true, false, false, false},
                   {false, true, false, false},
                   {true, true, false, true}};
    const double rate = f->copies.bytes_per_second;
    for (int i = 0; i < WEFT_COUNT(methods); i++) {
        trial t = {0};
        if ((methods[i].recompute && !f->can_recompute) || (methods[i].offload && !(rate > 0)))
            continue;
        WEFT_TRY(weft_activation_candidates_items(&f->candidates, methods[i].recompute,
                                                  methods[i].offload ? rate : 0, methods[i].rest));
        WEFT_TRY(try_budget(f, least_budget(&f->candidates), &t));
        const bool fits = t.peak <= f->limit, none_yet = least->peak > f->limit;
        if (!least->activations.row ||
            (fits && (none_yet || t.choice.seconds < least->choice.seconds)) ||
            (!fits && !methods[i].measured && t.peak < least->peak)) {
            trial_free(least);
            *least = t;
        } else {
            trial_free(&t);
        }
    }
    return weft_activation_candidates_items(&f->candidates, f->can_recompute, rate, false);
}

/* Records the lowest possible peak of a stage that does not fit, and its terms, if it is the
 * largest of all stages. `setup_terms`: terms of the memory outside the steps, if that is the
 * peak. */
static weft_status record_least(fit *f, fitted least, const weft_activation_plan *activations,
                                weft_buf *setup_terms)
{
    int64_t peak;
    if (least.peak <= f->least)
        return WEFT_OK;
    f->least = least.peak;
    f->least_train_stage = f->index;
    f->least_fixed = f->fixed + least.program_bytes + least.others;
    f->least_is_setup = setup_terms != NULL;
    weft_buf_free(&f->least_terms);
    if (!setup_terms)
        return peak_with(f, activations, &peak, &f->least_terms);
    f->least_terms = *setup_terms;
    *setup_terms = (weft_buf){0};
    return WEFT_OK;
}

static weft_status too_little(const fit *f)
{
    const int64_t enough = f->least + weft_process_unreported() + WEFT_PROCESS_VARIES;
    char text[5][32];
    weft_format_bytes(WEFT_PROCESS_VARIES, text[4]);
    if (f->least_is_setup)
        return weft_error(
            WEFT_MSG_MEMORY_NEEDED, WEFT_AT(.key = "memory.limit", WEFT_NUMBER(enough)),
            "%s is less than the %s that a rank needs besides the training steps of stage %" PRId64
            ", "
            "with all activations recomputed: weights, optimizer and program %s, library pages "
            "that not every start maps %s%s. Smaller frames, fsdp or zero in `parallel`, or "
            "memory.optimizer_states: offload need less",
            weft_format_bytes(f->run->memory.limit, text[0]), weft_format_bytes(enough, text[1]),
            f->least_train_stage, weft_format_bytes(f->least_fixed, text[2]), text[4],
            f->least_terms.data ? f->least_terms.data : "");
    return weft_error(
        WEFT_MSG_MEMORY_NEEDED, WEFT_AT(.key = "memory.limit", WEFT_NUMBER(enough)),
        "%s is less than the %s that a rank needs, with everything of stage %" PRId64
        "%s%s that can be: "
        "weights, optimizer and program %s, library pages that not every start maps %s, copies for "
        "checkpoints %s%s. Smaller batches, fsdp or zero in `parallel`%s need less",
        weft_format_bytes(f->run->memory.limit, text[0]), weft_format_bytes(enough, text[1]),
        f->least_train_stage, f->can_recompute ? " recomputed in backward" : "",
        f->copies.bytes_per_second > 0 ? f->can_recompute ? " or offloaded" : " offloaded" : "",
        weft_format_bytes(f->least_fixed, text[2]), text[4], weft_format_bytes(f->staging, text[3]),
        f->least_terms.data ? f->least_terms.data : "",
        f->copies.bytes_per_second > 0 ? "" : ", or memory.offload,");
}

/* Bisects between the smallest budget and the bytes of all activations. *best fits, or is the
 * result of try_least. */
static weft_status search(fit *f, int64_t all_peak, trial *best)
{
    const double least = least_budget(&f->candidates), all = item_bytes(&f->candidates, false);
    const double step = all / 128; /* smaller steps do not change the choice */
    double low = least, high = all, budget = all - (double)(all_peak - f->limit);
    for (int i = 0; i < TRIES && high - low > step; i++) {
        trial t;
        if (!(budget > low && budget < high) || i >= TRIES / 2)
            budget = (low + high) / 2;
        WEFT_TRY(try_budget(f, budget, &t));
        const double slack = (double)(f->limit - t.peak), kept = t.choice.saved;
        if (slack >= 0) {
            low = budget;
            budget = kept + slack;
            trial_free(best);
            *best = t;
            if (slack < step)
                break;
        } else {
            high = fmin(budget, kept);
            budget = high + fmin(slack, -step);
            trial_free(&t);
        }
    }
    return best->activations.row ? WEFT_OK : try_least(f, best);
}

/* ---- training stages ------------------------------------------------------------------------- */

static void format_choice(const fit *f, trial *t, weft_buf *message)
{
    weft_buf what[2] = {{0}};
    char text[3][32];
    const int64_t recomputed = weft_activation_candidates_print(
                      &f->candidates, &t->activations, WEFT_ACTIVATION_RECOMPUTE, &what[0]),
                  offloaded = weft_activation_candidates_print(&f->candidates, &t->activations,
                                                               WEFT_ACTIVATION_OFFLOAD, &what[1]);
    t->activations.figures = (weft_activation_figures){.all = item_bytes(&f->candidates, false),
                                                       .kept = t->choice.saved,
                                                       .recomputed = (double)recomputed,
                                                       .offloaded = (double)offloaded,
                                                       .step = f->candidates.run,
                                                       .longer = t->choice.seconds,
                                                       .copy_slowdown = f->copies.slowdown};
    weft_buf_printf(message, "memory.limit: stage %" PRId64 " keeps %s of %s", f->index,
                    weft_format_bytes((int64_t)t->choice.saved, text[0]),
                    weft_format_bytes((int64_t)item_bytes(&f->candidates, false), text[1]));
    if (recomputed)
        weft_buf_printf(message, ", recomputes %s in the backward (%s)",
                        weft_format_bytes(recomputed, text[2]), what[0].data ? what[0].data : "");
    if (offloaded)
        weft_buf_printf(message,
                        ", offloads %s (%s) at %s/s; kernels lose %.0f %% of the copy time",
                        weft_format_bytes(offloaded, text[2]), what[1].data ? what[1].data : "",
                        weft_format_bytes((int64_t)f->copies.bytes_per_second, text[0]),
                        100 * f->copies.slowdown);
    if (isnan(t->choice.seconds)) {
        weft_buf_printf(message, "; the activation plan is that of the run");
        if (t->peak > f->run->memory.limit)
            weft_buf_printf(message, ", whose process was smaller: the predicted peak is %s",
                            weft_format_bytes(t->peak, text[0]));
        weft_buf_printf(message, "\n");
    } else {
        weft_buf_printf(message, "; a step of %s is expected to take %.1f %% longer\n",
                        weft_format_seconds(f->candidates.run, text[2]),
                        f->candidates.run > 0 ? 100 * t->choice.seconds / f->candidates.run : 0);
    }
    weft_buf_free(&what[0]);
    weft_buf_free(&what[1]);
}

/* Hash of all inputs of a stage's choice except measured values, which are rates and the bytes
 * of the process before the run reserves memory. `reserved`: maximum bytes that a rank reserves
 * with all activations kept. */
static uint64_t inputs_of(const fit *f, int64_t reserved)
{
    bool is_auto;
    const weft_string_list patterns = weft_run_recomputes(f->run, &is_auto);
    uint64_t hash = weft_seed_mix((uint64_t)f->run->memory.limit, (uint64_t)f->can_recompute << 1);
    hash = weft_seed_mix(hash, f->copies.bytes_per_second > 0);
    hash = weft_seed_mix(hash, (uint64_t)reserved);
    for (int64_t i = 0; i < patterns.count; i++)
        for (const char *c = patterns.item[i]; *c; c++)
            hash = weft_seed_mix(hash, (uint64_t)*c);
    for (int64_t i = 0; i < f->candidates.rows; i++) {
        const weft_activation_row *row = &f->candidates.row[i];
        hash = weft_seed_mix(weft_seed_mix(hash, row->key), (uint64_t)row->bytes);
        hash = weft_seed_mix(hash, isinf(row->seconds) ? 1 : 2);
    }
    return hash;
}

/* Uses the stored choice of the stage, also if its peak exceeds the limit. Its inputs are
 * unchanged, so the run reserves as much as when it began. Only the process can be larger at this
 * start. `all`: the peak with all activations kept. */
static weft_status reuse(fit *f, uint64_t inputs, int64_t all, trial *best, bool *reused)
{
    const weft_activation_plan *activations =
        weft_stored_activations_find(f->stored, f->index, inputs);
    trial t = {.peak = all, .program_bytes = f->program_bytes};
    const int64_t bytes = activations ? activations->count * (int64_t)sizeof *activations->row : 0;
    *reused = false;
    if (!activations)
        return WEFT_OK;
    t.choice.seconds = NAN;
    t.choice.saved = item_bytes(&f->candidates, false);
    t.activations = (weft_activation_plan){weft_alloc(bytes + 1), activations->count};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(t.activations.row, "memory.limit"));
    if (bytes) {
        weft_buf text = {0};
        memcpy(t.activations.row, activations->row, (size_t)bytes);
        for (int policy = WEFT_ACTIVATION_RECOMPUTE; policy <= WEFT_ACTIVATION_OFFLOAD; policy++)
            t.choice.saved -= (double)weft_activation_candidates_print(
                &f->candidates, &t.activations, (weft_activation_policy)policy, &text);
        weft_buf_free(&text);
        WEFT_GO(peak_with(f, &t.activations, &t.peak, NULL));
        t.program_bytes = f->program_bytes;
    }
    *reused = true;
    *best = t;
    return WEFT_OK;
out:
    trial_free(&t);
    return status;
}

/* Chooses the activation plan of a stage. *reused: it is the stored choice. */
static weft_status choose(fit *f, uint64_t inputs, int64_t all, trial *best, bool *reused)
{
    WEFT_TRY(reuse(f, inputs, all, best, reused));
    if (!*reused && all > f->limit && f->candidates.items)
        return search(f, all, best);
    if (!*reused)
        *best = (trial){.peak = all, .program_bytes = f->program_bytes};
    return WEFT_OK;
}

static weft_status fit_train_stage(fit *f, fitted *out, weft_activation_plan *activations,
                                   weft_buf *message)
{
    trial best = {0};
    int64_t peak = 0, reserved, setup_bytes;
    bool reused = false;
    weft_run_bytes latents = {0};
    weft_buf setup_terms = {0};
    weft_compiled_steps *steps = weft_compiled_steps_create();
    WEFT_TRY(WEFT_ALLOCATED(steps, "the activation plan"));
    weft_status_code status =
        weft_run_setup_bytes(f->run, f->models, f->index, f->exec, steps, &latents, &setup_terms);
    weft_compiled_steps_free(steps);
    WEFT_GO(status);
    WEFT_GO(peak_with(f, NULL, &peak, NULL));
    reserved = f->stage_bytes + f->weights + f->staging;
    WEFT_GO(over_ranks(f, &reserved));
    WEFT_GO(weft_activation_candidates_share(&f->candidates, f->comm));
    WEFT_GO(weft_activation_candidates_items(&f->candidates, f->can_recompute,
                                             f->copies.bytes_per_second, false));
    const uint64_t inputs = inputs_of(f, reserved);
    WEFT_GO(choose(f, inputs, peak, &best, &reused));
    if ((reused || best.peak <= f->limit) && best.activations.count)
        format_choice(f, &best, message);
    setup_bytes = weft_run_bytes_sum(latents) + f->fixed + best.program_bytes + f->others;
    WEFT_GO(over_ranks(f, &setup_bytes));
    /* memory outside the steps does not depend on the choice */
    const bool more = setup_bytes > best.peak;
    peak = more ? setup_bytes : best.peak;
    *out = (fitted){peak, best.program_bytes, f->others, inputs};
    if (peak > f->limit && !reused)
        WEFT_GO(record_least(f, *out, &best.activations, more ? &setup_terms : NULL));
out:
    weft_buf_free(&setup_terms);
    *activations = best.activations;
    best.activations.row = NULL;
    trial_free(&best);
    weft_activation_candidates_free(&f->candidates);
    return status;
}

/* ---- all training stages --------------------------------------------------------------------- */

/* Bytes of the graphs and programs of all stages. Stages with the same shapes share programs. */
static weft_status all_program_bytes(const fit *f, const weft_activation_plan *activations,
                                     int64_t *bytes)
{
    weft_exec_config exec = *f->exec;
    weft_status_code status = WEFT_OK;
    weft_compiled_steps *steps = weft_compiled_steps_create();
    WEFT_TRY(WEFT_ALLOCATED(steps, "the activation plan"));
    exec.stage_activations = activations;
    exec.inspect = NULL;
    for (int64_t i = 0; i < f->run->train_stages.count; i++) {
        weft_run_bytes stage_bytes = {0};
        WEFT_GO(weft_run_stage_bytes(f->run, f->models, i, &exec, steps, &stage_bytes, NULL));
    }
out:
    *bytes = weft_compiled_steps_program_bytes(steps);
    weft_compiled_steps_free(steps);
    return status;
}

static weft_status fit_each(fit *f, fitted *results, weft_activation_plan *activations,
                            weft_buf *message)
{
    f->least = 0;
    for (f->index = 0; f->index < f->run->train_stages.count; f->index++) {
        fitted *s = &results[f->index];
        f->others = s->others;
        weft_free(activations[f->index].row);
        activations[f->index] = (weft_activation_plan){0};
        WEFT_TRY(fit_train_stage(f, s, &activations[f->index], message));
    }
    return WEFT_OK;
}

/* Updates each stage's bytes of other stages' programs, which are known once all stages are
 * planned. *over: the added bytes of a stage do not fit. */
static weft_status count_others(fit *f, fitted *results, const weft_activation_plan *activations,
                                bool *over)
{
    int64_t all = 0;
    *over = false;
    WEFT_TRY(all_program_bytes(f, activations, &all));
    for (int64_t i = 0; i < f->run->train_stages.count; i++) {
        fitted *s = &results[i];
        const int64_t others = all > s->program_bytes ? all - s->program_bytes : 0;
        int64_t more = others > s->others ? others - s->others : 0;
        s->others += more;
        WEFT_TRY(over_ranks(f, &more));
        *over = *over || (more > 0 && s->peak + more > f->limit);
    }
    return WEFT_OK;
}

/* Repeats until the assumed bytes of other stages' programs suffice, at most ROUNDS times. */
static weft_status fit_all(fit *f, fitted *results, weft_activation_plan *activations,
                           weft_buf *message)
{
    bool over = true;
    for (int round = 0; round < ROUNDS && over; round++) {
        weft_buf_free(message);
        WEFT_TRY(fit_each(f, results, activations, message));
        if (f->run->train_stages.count == 1)
            return WEFT_OK;
        WEFT_TRY(count_others(f, results, activations, &over));
    }
    return WEFT_OK;
}

static weft_status store_activations(const fit *f, const fitted *results,
                                     const weft_activation_plan *activations)
{
    const int64_t train_stages = f->run->train_stages.count;
    for (int64_t i = 0; i < train_stages && f->stored; i++)
        WEFT_TRY(weft_stored_activations_set(f->stored, i, train_stages, results[i].inputs,
                                             &activations[i]));
    return WEFT_OK;
}

weft_status weft_fit_rates_measure(const weft_run *run, const weft_backend *backend,
                                   weft_fit_rates *rates)
{
    const weft_offload_target offload = weft_run_offload_target(run);
    *rates = (weft_fit_rates){0};
    if (!run->memory.profile[0] && backend == &weft_backend_cpu) {
        WEFT_TRY(weft_measure_gemm(backend, WEFT_F32, 0.05, &rates->gflops));
        if (run->precision == WEFT_PRECISION_BF16)
            WEFT_TRY(weft_measure_gemm(backend, WEFT_BF16, 0.05, &rates->bf16_gflops));
        WEFT_TRY(weft_measure_memory(BANDWIDTH_BUFFER, 0.03, &rates->bytes_per_second));
    }
    if (offload.values && offload.dir && weft_path_is_dir(offload.dir))
        WEFT_TRY(weft_copy_engine_measure(offload.dir, &rates->copies));
    return WEFT_OK;
}

/* Reads the rates of memory.profile, or takes this machine's rates. Rank 0's rate of copies is used
 * by all ranks, so that all ranks choose alike. */
static weft_status read_rates(fit *f, weft_arena *arena, weft_cluster *cluster)
{
    const weft_memory_config *memory = &f->run->memory;
    weft_fit_rates rates = {0};
    if (f->exec->fit_rates)
        rates = *f->exec->fit_rates;
    else
        WEFT_TRY(weft_fit_rates_measure(f->run, f->exec->backend, &rates));
    WEFT_TRY(weft_cluster_load(arena, memory->profile[0] ? memory->profile : "local", cluster));
    if (rates.gflops > 0) {
        cluster->device.flops = rates.gflops * 1e9 / cluster->device.gemm;
        cluster->device.bf16_flops = rates.bf16_gflops * 1e9 / cluster->device.gemm;
        cluster->device.memory_bandwidth = rates.bytes_per_second / cluster->device.memory_fraction;
    }
    if (!weft_run_offload_target(f->run).values)
        return WEFT_OK;
    f->copies = rates.copies;
    if (!(f->copies.bytes_per_second > 0))
        f->copies.bytes_per_second = cluster->host.bandwidth;
    return f->comm ? weft_comm_broadcast(f->comm, &f->copies, sizeof f->copies, 0) : WEFT_OK;
}

weft_status weft_run_fit_memory(const weft_run *run, const weft_run_models *models,
                                const weft_exec_config *exec, weft_comm *together,
                                weft_store *store, int64_t process_bytes,
                                weft_stored_activations *stored, weft_activation_plan *activations,
                                weft_buf *message)
{
    weft_cluster cluster;
    fit f = {.run = run,
             .models = models,
             .exec = exec,
             .comm = together,
             .stored = stored,
             .device = &cluster.device,
             .weights = weft_store_bytes(store),
             .limit = run->memory.limit - weft_process_unreported()};
    f.fixed = process_bytes + f.weights;
    weft_run_recomputes(run, &f.can_recompute);
    weft_arena *arena = weft_arena_create();
    fitted *results = weft_calloc(run->train_stages.count, sizeof *results);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(arena && results, "memory.limit"));
    WEFT_GO(read_rates(&f, arena, &cluster));
    WEFT_GO(weft_run_staging_bytes(run, models, exec, store, &f.staging));
    WEFT_GO(fit_all(&f, results, activations, message));
    if (f.least)
        WEFT_GO(too_little(&f));
    WEFT_GO(store_activations(&f, results, activations));
    WEFT_GO(weft_buf_check(message));
out:
    weft_buf_free(&f.least_terms);
    weft_arena_free(arena);
    weft_free(results);
    return status;
}

void weft_activation_plans_free(weft_activation_plan *activations, int64_t train_stages)
{
    for (int64_t i = 0; i < train_stages && activations; i++)
        weft_free(activations[i].row);
    weft_free(activations);
}
