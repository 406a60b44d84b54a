#include "estimate/training/run_estimate.h"

#include "base/log.h"
#include "estimate/training/resolve_layout.h"
#include "estimate/training/resolve_precision.h"
#include "plan/ops/rates.h"
#include "train/config/packing_config.h"
#include "train/estimate/process_memory.h"
#include "train/latents/latent_cache_folder.h"

/* ---- estimate -------------------------------------------------------------------------------- */

/* Resolves the layout for the number of ranks. */
static weft_status resolve(weft_run *run, const char *path, const weft_run_models *models,
                           weft_arena *arena, weft_run_estimate *out, weft_buf *message)
{
    weft_mesh mesh;
    weft_settled settled;
    weft_buf layout = {0};
    WEFT_TRY(weft_settled_load(run->out, &settled));
    const weft_status_code status =
        weft_run_resolve_layout(run, models, path, NULL, out->ranks, &settled, arena, &layout);
    if (layout.len)
        weft_buf_printf(message, "%s%s", message->len ? "\n" : "", layout.data);
    weft_buf_free(&layout);
    WEFT_TRY(status);
    WEFT_TRY(weft_parallel_mesh(&run->parallel, out->ranks, path, &mesh));
    WEFT_TRY(weft_pp_layout_check_trained(&mesh, weft_run_trains_denoiser(models), path));
    const int axis = weft_mesh_axis(&mesh, "dp");
    run->parallel.dp = axis >= 0 ? mesh.axis[axis].size : 1;
    out->ranks = weft_mesh_ranks(&mesh);
    return WEFT_OK;
}

static weft_status estimate_layout(const weft_run *run, const char *path,
                                   const weft_run_models *models, weft_arena *arena,
                                   weft_run_estimate *out)
{
    weft_stored_activations stored = {0};
    weft_process_memory process;
    bool *encoded;
    weft_layout_estimator p = {.run = run,
                               .path = path,
                               .models = models,
                               .cluster = &out->cluster,
                               .ranks = out->ranks,
                               .stored = &stored,
                               .by_stage = true,
                               .arena = arena};
    WEFT_TRY(WEFT_ARENA_NEW(arena, encoded, run->train_stages.count, "the estimate"));
    if (weft_latents_encoded(run, models, encoded) == WEFT_OK) /* else no data yet */
        p.encoded = encoded;
    WEFT_TRY(weft_process_memory_measure(run, p.encoded, p.ranks, &process));
    p.process_bytes = weft_process_memory_sum(process);
    WEFT_TRY(weft_stored_activations_load(run->out, &stored));
    const weft_status_code status = weft_layout_estimate_run(&p, &out->layout);
    weft_stored_activations_free(&stored);
    return status;
}

static weft_status execute(const weft_run *run, const char *path, const weft_run_models *models,
                           weft_arena *arena, weft_run_estimate *out)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    WEFT_TRY(WEFT_NEW(out->simulation, run->train_stages.count, "the simulation"));
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_run_simulation_setup setup = {.run = run,
                                                 .path = path,
                                                 .models = models,
                                                 .train_stage = &train_stage[i],
                                                 .cluster = &out->cluster,
                                                 .execute = WEFT_EXECUTE_ALWAYS,
                                                 .arena = arena};
        WEFT_TRY(weft_run_simulate(&setup, &out->simulation[i]));
        out->simulations++;
    }
    return WEFT_OK;
}

weft_status weft_run_estimate_make(weft_run *run, const char *path,
                                   const weft_run_estimate_options *options, weft_arena *arena,
                                   weft_run_estimate *out, weft_buf *message)
{
    const double begin = weft_now();
    weft_run_models models;
    *out = (weft_run_estimate){.ranks = options->ranks};
    WEFT_TRY(weft_run_models_read(run, path, &models));
    WEFT_TRY(weft_run_predict_precision(
        run, &models, path, options->cluster ? options->cluster : "local", arena, message));
    WEFT_TRY(resolve(run, path, &models, arena, out, message));
    WEFT_TRY(weft_run_cluster(arena, run, options->cluster ? options->cluster : "local",
                              &out->cluster, out->cluster_name));
    WEFT_TRY(estimate_layout(run, path, &models, arena, out));
    const weft_status_code status =
        options->execute ? execute(run, path, &models, arena, out) : WEFT_OK;
    out->took = weft_now() - begin;
    if (status != WEFT_OK)
        weft_run_estimate_free(out);
    return status;
}

void weft_run_estimate_free(weft_run_estimate *estimate)
{
    for (int64_t i = 0; i < estimate->simulations; i++)
        weft_run_simulation_free(&estimate->simulation[i]);
    weft_free(estimate->simulation);
    estimate->simulation = NULL;
    estimate->simulations = 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_sizes(const weft_run *run, const weft_train_stage *train_stage, weft_buf *out)
{
    for (int i = 0; i < weft_run_stage_programs(run, train_stage); i++) {
        const weft_bucket size = weft_run_program_size(run, train_stage, i), *b = &size;
        weft_buf_printf(out, "%sbatch %" PRId64 " of %" PRId64 "x%" PRId64 "x%" PRId64,
                        i ? ", or " : "", b->batch, b->frames, b->height, b->width);
    }
}

static void print_term(const char *name, double seconds, double all, weft_buf *out)
{
    char text[32];
    if (seconds > 0)
        weft_buf_printf(out, "    %-20s %14s  %5.1f %%\n", name, weft_format_seconds(seconds, text),
                        100 * seconds / all);
}

static void print_seconds(const weft_stage_estimate *s, weft_buf *out)
{
    char text[32];
    weft_buf_printf(out, "  %-22s %14s\n", "seconds per step",
                    weft_format_seconds(s->time.total, text));
    print_term("compute", s->time.compute, s->time.total, out);
    print_term("exposed communication", s->time.comm, s->time.total, out);
    print_term("optimizer", s->time.optimizer, s->time.total, out);
    print_term("pipeline bubbles", s->time.bubble, s->time.total, out);
    if (s->time.hidden > 0)
        weft_buf_printf(out, "    %-20s %14s  during compute, not added\n", "hidden communication",
                        weft_format_seconds(s->time.hidden, text));
}

static void print_sent(const weft_run_estimate *e, const weft_stage_estimate *s, weft_buf *out)
{
    const weft_mesh *mesh = &e->layout.mesh;
    char text[32];
    if (e->ranks > 1)
        weft_buf_printf(out, "  sent per step by rank 0\n");
    for (int a = 0; a < mesh->axis_count; a++)
        weft_buf_printf(out, "    %-20s %14s  %" PRId64 " messages, %d ranks\n", mesh->axis[a].name,
                        weft_format_bytes(s->sent[a].bytes, text), s->sent[a].messages,
                        mesh->axis[a].size);
}

static void print_stage(const weft_run *run, const weft_run_estimate *e, int64_t index,
                        weft_buf *out)
{
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    const weft_stage_estimate *s = &e->layout.train_stage[index];
    char text[32];
    weft_buf_printf(out, "stage %" PRId64 "%s%s: %" PRId64 " step%s, ", index,
                    train_stage->name[0] ? " " : "", train_stage->name, train_stage->steps,
                    weft_plural(train_stage->steps));
    print_sizes(run, train_stage, out);
    weft_buf_printf(out, "\n  %-22s %14" PRId64 "  trained together\n", "parameters",
                    s->parameters);
    for (int i = 0; i < weft_run_stage_programs(run, train_stage); i++)
        weft_buf_printf(out, "  %-22s %8.2f GFLOP  all ranks%s\n", i ? "" : "FLOPs per step",
                        1e-9 * s->flops[i], i ? ", next size" : "");
    print_seconds(s, out);
    print_sent(e, s, out);
    weft_buf_printf(out, "  %-22s %14s  reserved for the stage, without the weights\n", "programs",
                    weft_format_bytes(s->program_bytes, text));
}

/* Bytes of a rank's device memory. */
static int64_t rank_memory(const weft_run_estimate *e)
{
    return weft_cluster_rank_memory(&e->cluster, e->ranks);
}

static int64_t missing_bytes(const weft_run_estimate *e)
{
    const int64_t missing = weft_run_bytes_sum(e->layout.peak) - rank_memory(e);
    return missing > 0 ? missing : 0;
}

static void print_missing(const char *path, const weft_run_estimate *e, weft_buf *out)
{
    char has[32], missing[32];
    if (!missing_bytes(e))
        return;
    weft_buf_printf(out,
                    "does not fit: a rank has %s of the device's memory, %s less than it needs. "
                    "Use more ranks, a smaller batch or memory.limit; `weft plan layout "
                    "--run-config %s` with the same --on finds the layouts that fit\n",
                    weft_format_bytes(rank_memory(e), has),
                    weft_format_bytes(missing_bytes(e), missing), path);
}

void weft_run_estimate_print(const weft_run *run, const char *path,
                             const weft_run_estimate *estimate, weft_buf *out)
{
    const weft_layout_estimate *l = &estimate->layout;
    weft_buf_printf(out, "%s on %d rank%s (", path, estimate->ranks,
                    estimate->ranks > 1 ? "s" : "");
    weft_parallel_name(&l->parallel, out);
    weft_buf_printf(out, "), cluster %s", estimate->cluster_name);
    weft_rates_format_basis(estimate->cluster.device.rates, l->time.exact, "weft profile CONFIG",
                            out);
    weft_buf_printf(out, "\n");
    for (int64_t i = 0; i < run->train_stages.count; i++)
        print_stage(run, estimate, i, out);
    weft_buf_printf(out, "%s%s\n", l->fit, l->memory);
    print_missing(path, estimate, out);
    for (int64_t i = 0; i < estimate->simulations; i++) {
        weft_buf_printf(out, "stage %" PRId64 " executed: ", i);
        weft_run_simulation_print(&estimate->simulation[i], estimate->cluster_name, out);
    }
    weft_buf_printf(out, "estimated in %.2f s\n", estimate->took);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *sizes_json(const weft_run *run, const weft_train_stage *train_stage,
                          const weft_stage_estimate *s)
{
    json_t *list = json_array();
    for (int i = 0; i < weft_run_stage_programs(run, train_stage); i++) {
        const weft_bucket size = weft_run_program_size(run, train_stage, i), *b = &size;
        json_array_append_new(list, json_pack("{s:I,s:I,s:I,s:I,s:f}", "batch",
                                              (json_int_t)b->batch, "frames", (json_int_t)b->frames,
                                              "height", (json_int_t)b->height, "width",
                                              (json_int_t)b->width, "flops", s->flops[i]));
    }
    return list;
}

static json_t *axes_json(const weft_mesh *mesh, const weft_sent *sent)
{
    json_t *list = json_array();
    for (int a = 0; a < mesh->axis_count; a++)
        json_array_append_new(list, json_pack("{s:s,s:i,s:I,s:I}", "axis", mesh->axis[a].name,
                                              "ranks", mesh->axis[a].size, "messages",
                                              (json_int_t)sent[a].messages, "bytes",
                                              (json_int_t)sent[a].bytes));
    return list;
}

static json_t *stage_json(const weft_run *run, const weft_run_estimate *e, int64_t index)
{
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    const weft_stage_estimate *s = &e->layout.train_stage[index];
    json_t *json =
        json_pack("{s:s,s:I,s:I,s:I,s:o,s:o}", "name", train_stage->name, "steps",
                  (json_int_t)train_stage->steps, "parameters", (json_int_t)s->parameters,
                  "program_bytes", (json_int_t)s->program_bytes, "sizes",
                  sizes_json(run, train_stage, s), "axes", axes_json(&e->layout.mesh, s->sent));
    weft_step_seconds_json(&s->time, json);
    if (json && index < e->simulations)
        json_object_set_new(json, "executed", weft_run_simulation_json(&e->simulation[index]));
    return json;
}

json_t *weft_run_estimate_json(const weft_run *run, const char *path,
                               const weft_run_estimate *estimate)
{
    const weft_layout_estimate *l = &estimate->layout;
    weft_buf name = {0};
    json_t *train_stages = json_array();
    weft_parallel_name(&l->parallel, &name);
    for (int64_t i = 0; train_stages && i < run->train_stages.count; i++)
        json_array_append_new(train_stages, stage_json(run, estimate, i));
    json_t *json = json_pack(
        "{s:s,s:s,s:s,s:i,s:s,s:I,s:b,s:s,s:o}", "format", WEFT_RUN_ESTIMATE_FORMAT, "config", path,
        "cluster", estimate->cluster_name, "ranks", estimate->ranks, "layout",
        name.data ? name.data : "", "rank_memory_bytes", (json_int_t)rank_memory(estimate), "fits",
        missing_bytes(estimate) == 0, "memory", l->memory, "stages", train_stages);
    weft_layout_estimate_json(l, json);
    weft_buf_free(&name);
    return json;
}
