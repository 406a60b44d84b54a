#include "estimate/training/resolve_precision.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "estimate/precision_rates.h"
#include "estimate/training/layout_estimate.h"
#include "kernel/registry/backend.h"
#include "plan/cluster/cluster_path.h"
#include "train/checkpoint/run_file.h"

#include <string.h>

static const weft_run_file choice_file = {
    .name = "precision-choice.json",
    .format = WEFT_PRECISION_CHOICE_FORMAT,
    .remedy = "Remove the file, and the run chooses its precision again"};

/* ---- the file ------------------------------------------------------------------------------- */

static const char *name_of(int precision)
{
    return precision == WEFT_PRECISION_BF16 ? "bf16" : "f32";
}

static weft_status read_choice(const json_t *json, const char *path, void *to)
{
    weft_precision_choice *choice = to;
    const char *text;
    WEFT_TRY(weft_json_get_string(json, "precision", path, &text));
    choice->precision = strcmp(text, "bf16") ? WEFT_PRECISION_F32 : WEFT_PRECISION_BF16;
    if (!strcmp(text, name_of(choice->precision)))
        return WEFT_OK;
    return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "precision", .value = text),
                      "'%.40s' is not f32 or bf16", text);
}

weft_status weft_precision_choice_load(const char *out, weft_precision_choice *choice)
{
    *choice = (weft_precision_choice){.precision = WEFT_PRECISION_AUTO};
    return weft_run_file_load(out, &choice_file, read_choice, choice);
}

weft_status weft_precision_choice_save(const char *out, const weft_precision_choice *choice)
{
    json_t *json = json_pack("{s:s}", "precision", name_of(choice->precision));
    const weft_status_code status = json ? weft_run_file_save(out, &choice_file, json)
                                         : weft_no_memory("the precision of the run");
    json_decref(json);
    return status;
}

/* ---- seconds -------------------------------------------------------------------------------- */

/* Seconds of a step in one precision. */
static weft_status step_seconds(const weft_run *run, const weft_run_models *models,
                                const char *path, const weft_cluster *cluster, int precision,
                                weft_arena *arena, double *seconds)
{
    weft_run alone = *run;
    weft_layout_estimate estimate;
    const weft_layout_estimator estimator = {.run = &alone,
                                             .path = path,
                                             .models = models,
                                             .cluster = cluster,
                                             .ranks = 1,
                                             .arena = arena};
    alone.parallel = weft_parallel_default;
    alone.memory.limit = 0;
    alone.precision = precision;
    alone.grad_reduce_dtype = WEFT_PRECISION_F32;
    WEFT_TRY(weft_layout_estimate_make(&estimator, &weft_parallel_default, &estimate));
    if (!estimate.legal)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.file = path, .key = "precision"),
                          "auto cannot estimate a step on one rank: %s. Set f32 or bf16.",
                          estimate.why);
    *seconds = estimate.time.total;
    return WEFT_OK;
}

/* Seconds of products alone: iterations of cascades have no program of a whole step. */
static double product_seconds(const weft_cluster *cluster, int precision)
{
    const weft_dtype dtype = precision == WEFT_PRECISION_BF16 ? WEFT_BF16 : WEFT_F32;
    return 1e12 / weft_device_flops(&cluster->device, WEFT_WORK_GEMM, dtype);
}

weft_status weft_precision_choose(const weft_run *run, const weft_run_models *models,
                                  const char *path, const weft_cluster *cluster, bool bf16_units,
                                  weft_arena *arena, int *precision, weft_buf *why)
{
    double seconds[2];
    const bool cascades = weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE;
    *precision = WEFT_PRECISION_F32;
    if (!bf16_units) {
        weft_buf_printf(why, "the processor has no units for bf16");
        return weft_buf_check(why);
    }
    for (int i = WEFT_PRECISION_F32; i <= WEFT_PRECISION_BF16; i++)
        if (cascades)
            seconds[i] = product_seconds(cluster, i);
        else
            WEFT_TRY(step_seconds(run, models, path, cluster, i, arena, &seconds[i]));
    if (weft_precision_gains(seconds, cascades ? "1 TFLOP of products is" : "a step is", why))
        *precision = WEFT_PRECISION_BF16;
    return weft_buf_check(why);
}

/* ---- rates ---------------------------------------------------------------------------------- */

static weft_status choose(const weft_run *run, const weft_run_models *models, const char *path,
                          const char *spec, weft_arena *arena, int *precision, weft_buf *why)
{
    weft_cluster cluster;
    weft_precision_rates rates;
    char name[512];
    const weft_backend *backend = weft_backend_find(run->backend);
    WEFT_TRY(weft_run_cluster(arena, run, spec, &cluster, name));
    WEFT_TRY(
        weft_precision_rates_open(backend, !strcmp(spec, "local"), &cluster, name, why, &rates));
    if (rates.decided) {
        *precision = rates.bf16 ? WEFT_PRECISION_BF16 : WEFT_PRECISION_F32;
        return WEFT_OK;
    }
    WEFT_TRY(weft_precision_choose(run, models, path, &cluster, true, arena, precision, why));
    weft_buf_printf(why, " (rates: %s)", name);
    return weft_buf_check(why);
}

/* ---- the choice of a run -------------------------------------------------------------------- */

/* Chooses on the process that chooses for all. */
static weft_status choose_alone(const weft_run *run, const weft_run_models *models,
                                const char *path, const char *spec, weft_precision_choice *stored,
                                weft_arena *arena, weft_buf *out)
{
    weft_buf why = {0};
    if (stored->precision != WEFT_PRECISION_AUTO) {
        weft_buf_printf(out, "precision: auto is %s, as the run chose before",
                        name_of(stored->precision));
        return weft_buf_check(out);
    }
    const weft_status_code status =
        choose(run, models, path, spec, arena, &stored->precision, &why);
    stored->changed = true;
    weft_buf_printf(out, "precision: auto is %s: %s", name_of(stored->precision),
                    why.data ? why.data : "");
    weft_buf_free(&why);
    WEFT_TRY(status);
    return weft_buf_check(out);
}

weft_status weft_run_resolve_precision(weft_run *run, const weft_run_models *models,
                                       const char *path, const char *spec, weft_comm *comm,
                                       weft_precision_choice *stored, weft_arena *arena,
                                       weft_buf *out)
{
    weft_status_code status = WEFT_OK;
    if (run->precision != WEFT_PRECISION_AUTO)
        return WEFT_OK;
    if (comm)
        weft_comm_set_busy(comm, "choosing the precision");
    if (!comm || weft_comm_rank(comm) == 0)
        WEFT_GO(choose_alone(run, models, path, spec, stored, arena, out));
out:
    if (comm)
        weft_comm_set_busy(comm, NULL);
    WEFT_TRY(status);
    if (comm)
        WEFT_TRY(weft_comm_broadcast(comm, &stored->precision, sizeof stored->precision, 0));
    run->precision = stored->precision;
    if (run->precision == WEFT_PRECISION_F32)
        run->grad_reduce_dtype = WEFT_PRECISION_F32;
    return WEFT_OK;
}

weft_status weft_run_predict_precision(weft_run *run, const weft_run_models *models,
                                       const char *path, const char *spec, weft_arena *arena,
                                       weft_buf *out)
{
    weft_precision_choice stored = {.precision = WEFT_PRECISION_AUTO};
    if (run->precision != WEFT_PRECISION_AUTO)
        return WEFT_OK;
    if (!strcmp(spec, "local"))
        WEFT_TRY(weft_precision_choice_load(run->out, &stored));
    return weft_run_resolve_precision(run, models, path, spec, NULL, &stored, arena, out);
}
