#include "train/estimate/memory_estimate.h"

#include "comm/comm_world.h"
#include "train/checkpoint/run_checkpoints.h"
#include "train/graph/run_pair.h"
#include "train/latents/latent_cache.h"
#include "train/latents/stage_loader.h"
#include "train/step/initial_weights.h"

#include <string.h>

static bool is_encoded(const weft_exec_config *exec, int64_t train_stage)
{
    return exec && exec->encoded && exec->encoded[train_stage];
}

static bool decodes(const weft_run *run, const weft_exec_config *exec)
{
    for (int64_t i = 0; i < run->train_stages.count; i++)
        if (!is_encoded(exec, i))
            return true;
    return false;
}

weft_status weft_run_stage_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_exec_config *exec, weft_compiled_steps *steps,
                                 weft_run_bytes *stage_bytes, weft_buf *terms)
{
    weft_stage_programs s = {0};
    int64_t programs = 0, batches = 0, offloaded = 0;
    char text[2][32];
    const weft_train_stage *at = (const weft_train_stage *)run->train_stages.item + index;
    WEFT_TRY(weft_stage_programs_plan(steps, run, models, at, exec, &s));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_stage_programs_bytes(&s, &programs));
    WEFT_GO(weft_stage_programs_offloaded_bytes(&s, &offloaded));
    WEFT_GO(weft_stage_loader_bytes(run, models, exec, index, &s, &batches));
out:
    *stage_bytes = (weft_run_bytes){.device = programs, .host = batches, .offloaded = offloaded};
    if (terms)
        weft_buf_printf(terms, ", stage %" PRId64 " %s and batches %s", index,
                        weft_format_bytes(programs, text[0]), weft_format_bytes(batches, text[1]));
    if (terms && offloaded)
        weft_buf_printf(terms, " (and %s offloaded)", weft_format_bytes(offloaded, text[0]));
    weft_stage_programs_free(&s);
    return status;
}

/* Bytes of encoding the clips of the largest data set. */
static weft_status encoding_bytes(const weft_run *run, const weft_run_models *models,
                                  const weft_train_stage *stage, const weft_exec_config *exec,
                                  int64_t *bytes)
{
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_trains_denoiser(models) ? weft_run_pairs_of(run, models, pair) : 0;
    WEFT_TRY(weft_latents_bytes(run, models, stage, exec, bytes));
    for (int i = 0; i < pairs; i++) {
        const weft_run other = weft_run_pair_run(run, &pair[i]);
        const weft_run_models second = weft_run_pair_models(models, &pair[i]);
        weft_train_stage own;
        int64_t needed = 0;
        if (!weft_run_pair_cached(&pair[i]))
            continue;
        WEFT_TRY(weft_run_pair_stage(run, &pair[i], stage, &own));
        const weft_status_code status = weft_latents_bytes(&other, &second, &own, exec, &needed);
        weft_run_pair_stage_free(&pair[i], &own);
        WEFT_TRY(status);
        *bytes = needed > *bytes ? needed : *bytes;
    }
    return WEFT_OK;
}

weft_status weft_run_setup_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_exec_config *exec, weft_compiled_steps *steps,
                                 weft_run_bytes *most, weft_buf *terms)
{
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    const bool denoises = weft_run_trains_denoiser(models);
    weft_stage_programs s = {0};
    int64_t bytes = 0;
    char text[32];
    *most = (weft_run_bytes){0};
    if (index == 0) {
        WEFT_TRY(weft_stage_programs_plan(steps, run, models, train_stage, exec, &s));
        most->host = weft_initial_weights_bytes(run, models, exec, s.bucket[0]->whole);
        weft_stage_programs_free(&s);
    }
    if (most->host && terms)
        weft_buf_printf(terms, ", complete initial model %s", weft_format_bytes(most->host, text));
    if (!denoises && index + 1 < run->train_stages.count)
        return WEFT_OK;
    WEFT_TRY(encoding_bytes(run, models, train_stage, exec, &bytes));
    if (bytes > most->host && !is_encoded(exec, index))
        *most = (weft_run_bytes){.device = bytes};
    if (terms)
        weft_buf_printf(terms, ", %s %s", denoises ? "latent encoding" : "latent statistics",
                        weft_format_bytes(bytes, text));
    return WEFT_OK;
}

/* Prints the store's bytes by kind of tensor, from the name prefixes of train/graph/optimizer.h. */
static void format_store(weft_store *store, weft_buf *out)
{
    static const char *const prefix[] = {"adamw.", "ema.", "grad.", ""};
    static const char *const what[] = {"moments", "EMA", "gradients", "parameters"};
    int64_t bytes[4] = {0};
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *t = weft_store_at(store, i);
        int kind = 0;
        if (t->mapped)
            continue;
        while (strncmp(t->name, prefix[kind], strlen(prefix[kind])))
            kind++;
        bytes[kind] += weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    }
    const char *between = "";
    for (int kind = 3; kind >= 0; kind--) {
        char text[32];
        if (bytes[kind] == 0)
            continue;
        weft_buf_printf(out, "%s%s %s", between, what[kind], weft_format_bytes(bytes[kind], text));
        between = ", ";
    }
    if (weft_store_offloaded_bytes(store)) {
        char text[32];
        weft_buf_printf(out, "%soffloaded %s", between,
                        weft_format_bytes(weft_store_offloaded_bytes(store), text));
    }
}

weft_status weft_run_staging_bytes(const weft_run *run, const weft_run_models *models,
                                   const weft_exec_config *exec, weft_store *store, int64_t *bytes)
{
    weft_checkpoint_spec spec = {.store = store,
                                 .comm = exec->comm,
                                 .rank = weft_allocation_rank(exec),
                                 .ranks = weft_mesh_ranks(&exec->mesh)};
    spec.parts = weft_run_checkpoints_parts(run, models, spec.part);
    return weft_checkpoints_bytes(&spec, bytes);
}

/* The larger of two by sum. `offloaded` is the maximum because each stage has its own buffer. */
static weft_run_bytes larger(weft_run_bytes a, weft_run_bytes b)
{
    weft_run_bytes most = weft_run_bytes_sum(b) > weft_run_bytes_sum(a) ? b : a;
    most.offloaded = a.offloaded > b.offloaded ? a.offloaded : b.offloaded;
    return most;
}

weft_status weft_run_memory(const weft_run *run, const weft_run_models *models,
                            const weft_exec_config *exec, weft_compiled_steps *steps,
                            weft_store *store, int64_t process_bytes, weft_run_bytes *peak,
                            weft_buf *out)
{
    const int64_t weights = weft_store_bytes(store);
    int64_t staging = 0;
    weft_run_bytes most = {0};
    char text[4][32];
    weft_buf terms = {0}, kinds = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_staging_bytes(run, models, exec, store, &staging));
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        weft_run_bytes stage_bytes = {0}, setup_bytes = {0};
        WEFT_GO(weft_run_stage_bytes(run, models, i, exec, steps, &stage_bytes, &terms));
        WEFT_GO(weft_run_setup_bytes(run, models, i, exec, steps, &setup_bytes, &terms));
        stage_bytes.host += staging; /* a checkpoint is written while a stage runs */
        most = larger(most, stage_bytes);
        most = larger(most, setup_bytes);
    }
    WEFT_GO(weft_buf_check(&terms));
    format_store(store, &kinds);
    WEFT_GO(weft_buf_check(&kinds));
    process_bytes += weft_compiled_steps_program_bytes(steps);
    *peak = most;
    peak->device += weights;
    peak->host += process_bytes;
    peak->process = process_bytes;
    peak->offloaded += weft_store_offloaded_bytes(store);
    weft_buf_printf(
        out,
        "memory%s: at most %s: program and libraries %s%s, weights and optimizer %s (%s), "
        "copies for checkpoints %s%s",
        weft_mesh_ranks(&exec->mesh) > 1 ? " of a rank" : "",
        weft_format_bytes(weft_run_bytes_sum(*peak), text[0]),
        weft_format_bytes(process_bytes, text[1]),
        decodes(run, exec) ? "" : " (without decoders: latents are cached)",
        weft_format_bytes(weights, text[2]), kinds.data ? kinds.data : "",
        weft_format_bytes(staging, text[3]), terms.data);
    WEFT_GO(weft_buf_check(out));
out:
    weft_buf_free(&terms);
    weft_buf_free(&kinds);
    return status;
}

weft_status weft_run_memory_max_rank(weft_comm *comm, weft_rank_memory *memory, weft_buf *out)
{
    typedef struct line {
        weft_rank_memory memory;
        int64_t length;
    } line;
    const int ranks = weft_comm_ranks(comm);
    const line own = {*memory, out->len};
    int most = 0;
    char *text = NULL;
    if (ranks == 1)
        return WEFT_OK;
    line *all = weft_calloc(ranks, sizeof *all);
    weft_status_code status;
    WEFT_GO(all ? weft_comm_all_gather(comm, &own, sizeof own, all)
                : weft_no_memory("%d ranks", ranks));
    for (int r = 1; r < ranks; r++)
        most = all[r].memory.reserved > all[most].memory.reserved ? r : most;
    WEFT_GO(
        WEFT_ALLOCATED((text = weft_alloc(all[most].length + 1)), "the memory report of a rank"));
    if (weft_comm_rank(comm) == most)
        memcpy(text, out->data, (size_t)out->len);
    WEFT_GO(weft_comm_broadcast(comm, text, all[most].length, most));
    out->len = 0;
    weft_buf_append(out, text, all[most].length);
    WEFT_GO(weft_buf_check(out));
    *memory = all[most].memory;
out:
    weft_free(all);
    weft_free(text);
    return status;
}
