#include "train/pipeline/pp_layout.h"

#include "base/fs.h"
#include "plan/pipeline/pipeline_plan.h"
#include "train/pipeline/pp_schedule_csv.h"
#include "transform/memory/recompute.h"
#include "transform/sharding/layer_chain.h"

#include <string.h>

static weft_status no_memory(void)
{
    return weft_no_memory("the stages of a pipeline");
}

/* ---- schedule -------------------------------------------------------------------------------- */

static int find_kind(const char *name)
{
    for (int k = 0; k < WEFT_PP_SCHEDULE_GREEDY; k++)
        if (!strcmp(weft_pp_schedule_kind_name((weft_pp_schedule_kind)k), name))
            return k;
    return -1;
}

static weft_status choose_pp_stages(const weft_parallel *config, const char *path,
                                    weft_pp_layout *p)
{
    const bool wave = p->kind == WEFT_PP_SCHEDULE_WAVE;
    const bool many = wave || p->kind == WEFT_PP_SCHEDULE_INTERLEAVED;
    const int64_t each = config->virtual_stages ? config->virtual_stages : many ? 2 : 1;
    if (wave && each % 2)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "parallel.virtual_stages", WEFT_NUMBER(each)),
            "with schedule: wave, each rank needs an even number of stages, and %" PRId64 " is odd",
            each);
    if (p->kind == WEFT_PP_SCHEDULE_1F1B && each != 1)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = path, .key = "parallel.virtual_stages", WEFT_NUMBER(each)),
            "with schedule: 1f1b, each rank has one stage; schedule: interleaved allows %" PRId64,
            each);
    p->pp_stages = (int)(each * p->devices);
    WEFT_TRY(WEFT_NEW(p->device_of, p->pp_stages, "the stages of a pipeline"));
    weft_pp_stage_map_fill(wave ? WEFT_MAP_FOLD : WEFT_MAP_ROUND, p->pp_stages, p->devices,
                           p->device_of);
    p->apart = p->kind == WEFT_PP_SCHEDULE_ZERO_BUBBLE;
    p->collocate = wave ? WEFT_COLLOCATE_AUTO : WEFT_COLLOCATE_NONE;
    return WEFT_OK;
}

static weft_status unknown_schedule(const weft_parallel *config, const char *path)
{
    return weft_error(
        WEFT_MSG_CONFIG_VALUE,
        WEFT_AT(.file = path, .key = "parallel.schedule", .value = config->schedule),
        "\"%s\" is not gpipe, 1f1b, interleaved, wave, zero-bubble or an existing file",
        config->schedule);
}

static weft_status load_file(const weft_parallel *config, const char *path, weft_pp_schedule *table)
{
    if (!weft_path_exists(config->schedule))
        return unknown_schedule(config, path);
    return weft_error_add(
        weft_error_at(weft_pp_schedule_csv_load(config->schedule, table),
                      WEFT_AT(.file = path, .key = "parallel.schedule")),
        "Give the plan that `weft plan pipeline --out` wrote, a .csv with one line of tasks "
        "for each rank, or gpipe, 1f1b, interleaved, wave or zero-bubble");
}

static weft_status take_file(const weft_parallel *config, const char *path, weft_pp_layout *p)
{
    WEFT_TRY(load_file(config, path, &p->file));
    if (p->file.devices != p->devices)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = path, .key = "parallel.schedule",
                                  .value = config->schedule, WEFT_NUMBER(p->file.devices)),
                          "%s is for pp=%" PRId64 ", and the mesh has pp=%d", config->schedule,
                          p->file.devices, p->devices);
    p->pp_stages = (int)p->file.pp_stages;
    p->apart = p->file.split;
    WEFT_TRY(WEFT_NEW(p->device_of, p->pp_stages, "the stages of a pipeline"));
    memcpy(p->device_of, p->file.device_of, (size_t)p->pp_stages * sizeof *p->device_of);
    bool folds = true;
    for (int q = 0; q < p->pp_stages; q++)
        folds = folds && p->device_of[q] == p->device_of[p->pp_stages - 1 - q];
    p->collocate = folds && p->pp_stages > 1 ? WEFT_COLLOCATE_AUTO : WEFT_COLLOCATE_NONE;
    return WEFT_OK;
}

weft_status weft_pp_layout_check_trained(const weft_mesh *mesh, bool denoises, const char *path)
{
    const int axis = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS), ranks = weft_mesh_ranks(mesh);
    if (denoises || axis < 0 || mesh->axis[axis].size == 1)
        return WEFT_OK;
    return weft_error(WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = path, .key = "parallel.pp"),
                      "an autoencoder has no blocks to divide into pipeline stages; use dp=%d or "
                      "fsdp=%d",
                      ranks, ranks);
}

static weft_status check_schedule(const weft_parallel *config, const char *path)
{
    weft_pp_schedule table = {0};
    if (find_kind(config->schedule) >= 0)
        return WEFT_OK;
    WEFT_TRY(load_file(config, path, &table));
    weft_pp_schedule_free(&table);
    return WEFT_OK;
}

weft_status weft_pp_layout_check_used(const weft_parallel *config, const char *path)
{
    const weft_parallel *unset = &weft_parallel_default;
    const bool scheduled = strcmp(config->schedule, unset->schedule) != 0;
    WEFT_TRY(check_schedule(config, path));
    if (config->pp > 1 || config->plan[0] ||
        (!scheduled && config->virtual_stages == unset->virtual_stages))
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_CONFIG_NO_EFFECT,
        WEFT_AT(.file = path, .key = scheduled ? "parallel.schedule" : "parallel.virtual_stages"),
        "this key is for pipeline stages, and pp is 1; set parallel.pp, or remove the key");
}

weft_status weft_pp_layout_open(const weft_parallel *config, const weft_mesh *mesh, int rank,
                                const char *path, weft_pp_layout **out)
{
    const int axis = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS);
    int at[WEFT_MAX_AXES];
    *out = NULL;
    if (axis < 0 || mesh->axis[axis].size == 1)
        return WEFT_OK;
    weft_pp_layout *p;
    WEFT_TRY(WEFT_NEW(p, 1, "the stages of a pipeline"));
    weft_mesh_coordinates(mesh, rank, at);
    *p = (weft_pp_layout){.schedule = config->schedule,
                          .kind = find_kind(config->schedule),
                          .axis = axis,
                          .devices = mesh->axis[axis].size,
                          .device = at[axis]};
    weft_status_code status = WEFT_OK;
    WEFT_GO(p->kind < 0 ? take_file(config, path, p) : choose_pp_stages(config, path, p));
    WEFT_GO(WEFT_NEW(p->cut, p->pp_stages + 1, "the stages of a pipeline"));
    *out = p;
    p = NULL;
out:
    weft_pp_layout_free(p);
    return status;
}

void weft_pp_layout_free(weft_pp_layout *p)
{
    if (!p)
        return;
    weft_pp_schedule_free(&p->file);
    for (int u = 0; u < p->units; u++)
        weft_free(p->unit[u]);
    weft_free(p->unit);
    weft_free(p->device_of);
    weft_free(p->cut);
    weft_free(p);
}

void weft_pp_layout_print(const weft_pp_layout *p, int64_t microbatches, weft_buf *out)
{
    weft_buf_printf(out, "  pipeline: %s, %" PRId64 " microbatches a step\n", p->schedule,
                    microbatches);
    for (int q = 0; q < p->pp_stages && p->units; q++) {
        const char *first = p->unit[p->cut[q]], *last = p->unit[p->cut[q + 1] - 1];
        weft_buf_printf(out, "  stage %2d  on %s=%d  %s%s", q, WEFT_PP_STAGES_AXIS,
                        (int)p->device_of[q], q == 0 ? "embedding, " : "", first);
        if (p->cut[q + 1] - p->cut[q] > 1)
            weft_buf_printf(out, " to %s", last[0] ? last : "loss");
        weft_buf_printf(out, "\n");
    }
}

/* Copies the schedule of a file. */
static weft_status copy_table(const weft_pp_schedule *from, weft_pp_schedule *table)
{
    weft_pp_schedule order = *from;
    order.name = "loaded";
    return weft_pp_schedule_from_order(&order, table);
}

weft_status weft_pp_schedule_csv(const weft_pp_layout *p, int64_t microbatches,
                                 weft_pp_schedule *table)
{
    if (p->kind < 0 && p->file.microbatches != microbatches)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = p->schedule, WEFT_NUMBER(p->file.microbatches)),
                          "the schedule is for %" PRId64 " microbatches, and a step has %" PRId64,
                          p->file.microbatches, microbatches);
    WEFT_TRY(p->kind < 0
                 ? copy_table(&p->file, table)
                 : weft_pp_schedule_make((weft_pp_schedule_kind)p->kind, p->device_of, p->pp_stages,
                                         p->devices, microbatches, NULL, table));
    const weft_status_code status = weft_pp_schedule_check(table);
    if (status != WEFT_OK)
        weft_pp_schedule_free(table);
    return status;
}

/* Divisor of the number of microbatches per batch that the schedule requires. */
static int64_t multiple_of(const weft_pp_layout *pp, int64_t accumulate)
{
    int64_t multiple = 1;
    while (pp && pp->kind == WEFT_PP_SCHEDULE_INTERLEAVED &&
           multiple * accumulate % pp->devices != 0)
        multiple++;
    return multiple;
}

/* The largest divisor of `batch` up to `most` that is a multiple of `multiple`; otherwise the
 * smallest above `most`. 0 if no divisor fits. */
static int64_t divisor_near(int64_t batch, int64_t most, int64_t multiple)
{
    for (int64_t m = most; m > 0; m--)
        if (batch % m == 0 && m % multiple == 0)
            return m;
    for (int64_t m = most + 1; m <= batch; m++)
        if (batch % m == 0 && m % multiple == 0)
            return m;
    return 0;
}

weft_status weft_pp_layout_microbatches(const weft_parallel *config, const weft_pp_layout *pp,
                                        int64_t batch, int64_t accumulate, int64_t shares,
                                        int64_t *microbatches)
{
    const int64_t configured = config->microbatches, multiple = multiple_of(pp, accumulate);
    int64_t most = pp ? 4 * (int64_t)pp->devices : 1;
    most = most > batch / shares ? batch / shares : most;
    most = most > 1 ? most : 1;
    if (pp && pp->kind < 0 && !configured)
        most = pp->file.microbatches;
    const int64_t fits = divisor_near(batch, configured ? configured : most, multiple);
    if (!fits)
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.key = "parallel.schedule", WEFT_NUMBER(batch)),
            "interleaved needs a multiple of %" PRId64
            " microbatches (pp=%d), and batches of %" PRId64 " "
            "samples cannot be divided so; use batches of %" PRId64 ", or schedule: 1f1b",
            multiple, pp->devices, batch, (batch / multiple + 1) * multiple);
    if (configured && batch % configured)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "parallel.microbatches", WEFT_NUMBER(configured)),
            "%" PRId64 " does not divide the batches of %" PRId64 " samples; use %" PRId64,
            configured, batch, fits);
    if (configured && configured % multiple)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = "parallel.microbatches", WEFT_NUMBER(configured)),
                          "interleaved needs a multiple of %" PRId64 " (pp=%d), and %" PRId64
                          " is none; use %" PRId64,
                          multiple, pp->devices, configured, fits);
    *microbatches = fits;
    return WEFT_OK;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Approximate seconds of a unit. Only ratios matter. */
static double seconds_of(weft_cost cost)
{
    return (double)cost.flops / 1e11 + (double)cost.bytes / 1e10;
}

/* Computes the cuts from the chain of the unsharded graph, which is the same on all ranks. */
static weft_status find_cuts(weft_pp_layout *p, const weft_layer_chain *chain)
{
    weft_pp_costs costs = {.op_count = chain->units, .skip_count = chain->skips};
    weft_partition partition = {0};
    weft_status_code status = WEFT_OK;
    const int each = p->pp_stages / p->devices, most = chain->units / each;
    if (chain->units < p->pp_stages)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.key = most > 1 ? "parallel.pp" : "parallel.virtual_stages",
                                  WEFT_NUMBER(p->pp_stages)),
                          "the pipeline has %d stages, and the model has only %d blocks and "
                          "layers; use %s of at most %d",
                          p->pp_stages, chain->units, most > 1 ? "pp" : "virtual_stages",
                          most > 1 ? most : chain->units / p->devices);
    costs.op = weft_calloc(chain->units, sizeof *costs.op);
    costs.skip = weft_calloc(chain->skips + 1, sizeof *costs.skip);
    WEFT_GO(WEFT_ALLOCATED(costs.op && costs.skip, "the stages of a pipeline"));
    for (int u = 0; u < chain->units; u++) {
        const double forward = seconds_of(chain->unit[u].cost);
        costs.op[u] = (weft_pp_op){.name = chain->unit[u].name,
                                   .forward = forward,
                                   .backward = 2 * forward,
                                   .output_bytes = (double)chain->unit[u].output_bytes};
    }
    for (int i = 0; i < chain->skips; i++)
        costs.skip[i] = (weft_skip){.from = chain->skip[i].from,
                                    .to = chain->skip[i].to,
                                    .bytes = (double)chain->skip[i].bytes};
    WEFT_GO(weft_partition_solve(&costs, p->pp_stages, p->collocate, &partition));
    p->unit = weft_calloc(chain->units + 1, sizeof *p->unit);
    for (int u = 0; u < chain->units && p->unit; u++)
        if (!(p->unit[p->units++] = weft_strdup(chain->unit[u].name)))
            WEFT_GO(no_memory());
    WEFT_GO(WEFT_ALLOCATED(p->unit, "the stages of a pipeline"));
    memcpy(p->cut, partition.cut, (size_t)(p->pp_stages + 1) * sizeof *p->cut);
out:
    weft_partition_free(&partition);
    weft_free(costs.op);
    weft_free(costs.skip);
    return status;
}

/* ---- programs -------------------------------------------------------------------------------- */

void weft_pp_step_free(weft_pp_step *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->owns; i++)
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++) {
            weft_program_free(s->own[i].program[k]);
            weft_graph_free(s->own[i].graph[k]);
        }
    for (int i = 0; i < s->owns; i++)
        weft_graph_free(s->own[i].whole);
    weft_free(s->own);
    weft_pp_stages_free(&s->pp_stages);
    weft_free(s);
}

/* Runs the passes of a single program: starts collectives early, removes dead nodes, adds
 * offload and prefetch, and joins elementwise ops. */
static weft_status order(weft_graph **graph, const weft_pass_setup *setup)
{
    const weft_pass_switches *all = setup->switches ? setup->switches : &weft_pass_defaults,
                             only = {.order = all->order,
                                     .offload = all->offload,
                                     .pointwise = all->pointwise};
    weft_pass_setup own = *setup;
    own.switches = &only;
    own.recompute_count = 0;
    own.inspect = NULL;
    return weft_passes_run(WEFT_PASS_RANK, &own, false, graph, NULL);
}

static weft_status plan_programs(const weft_pp_layout *p, const weft_pass_setup *setup,
                                 const weft_program_options *options, weft_pp_step *s,
                                 weft_pp_local_stage *own)
{
    const bool offload = (setup->switches ? setup->switches : &weft_pass_defaults)->offload;
    for (int k = 0; k < (p->apart ? WEFT_PP_TASK_KINDS : WEFT_PP_TASK_W); k++) {
        WEFT_TRY(weft_pp_stage_split(own->whole, p->apart, offload, (weft_pp_task_kind)k,
                                     &own->graph[k]));
        WEFT_TRY(order(&own->graph[k], setup));
        WEFT_TRY(weft_program_compile(own->graph[k], options, &own->program[k]));
        const weft_cost cost = weft_graph_cost(own->graph[k]);
        s->cost.flops += cost.flops;
        s->cost.bytes += cost.bytes;
        s->cost.wire_bytes += cost.wire_bytes;
        s->cost.bf16_flops += cost.bf16_flops;
    }
    return WEFT_OK;
}

/* Differentiates a pipeline stage. Recompute patterns that match only other stages are removed. */
static weft_status differentiate(const weft_pp_layout *p, const weft_pass_setup *setup,
                                 const weft_optimizer_config *optimizer, bool shares,
                                 weft_pp_step *s, weft_pp_local_stage *own)
{
    weft_pp_stage_graph cut;
    weft_pass_switches switches = setup->switches ? *setup->switches : weft_pass_defaults;
    WEFT_TRY(weft_pp_stage_extract(&s->pp_stages, own->pp_stage, shares, &cut));
    own->whole = cut.graph;
    weft_optimizer_accumulate_stage(&cut, s->pp_stages.graph, p->axis, optimizer);
    WEFT_TRY(weft_graph_check(cut.graph));
    switches.order = switches.offload = switches.pointwise = false; /* done for each program */
    weft_pass_setup mine = *setup;
    const char **pattern;
    WEFT_TRY(WEFT_NEW(pattern, setup->recompute_count + 1, "the stages of a pipeline"));
    mine.switches = &switches;
    mine.recompute = pattern;
    mine.recompute_count = 0;
    for (int i = 0; i < setup->recompute_count; i++)
        if (weft_recompute_chooses(cut.graph, setup->recompute[i]))
            pattern[mine.recompute_count++] = setup->recompute[i];
    const weft_status_code status =
        weft_passes_run(WEFT_PASS_RANK, &mine, false, &own->whole, NULL);
    weft_free(pattern);
    return status;
}

static weft_status check_recompute(const weft_graph *graph, const weft_pass_setup *setup)
{
    for (int i = 0; i < setup->recompute_count; i++)
        if (!weft_recompute_chooses(graph, setup->recompute[i]))
            return weft_error(WEFT_MSG_PASS_INVALID,
                              WEFT_AT(.key = "memory.recompute", .value = setup->recompute[i]),
                              "\"%s\" matches no scope and no op of the model",
                              setup->recompute[i]);
    return WEFT_OK;
}

static weft_status plan_pp_stages(const weft_pp_layout *p, const weft_pass_setup *setup,
                                  const weft_program_options *options,
                                  const weft_optimizer_config *optimizer, weft_pp_step *s)
{
    for (int q = 0; q < p->pp_stages; q++)
        s->owns += p->device_of[q] == p->device;
    WEFT_TRY(WEFT_NEW(s->own, s->owns + 1, "the stages of a pipeline"));
    for (int q = 0, i = 0; q < p->pp_stages; q++) {
        if (p->device_of[q] != p->device)
            continue;
        s->own[i].pp_stage = q;
        WEFT_TRY(differentiate(p, setup, optimizer, i == 0, s, &s->own[i]));
        WEFT_TRY(plan_programs(p, setup, options, s, &s->own[i]));
        i++;
    }
    return WEFT_OK;
}

weft_status weft_pp_step_plan(weft_pp_layout *p, const weft_graph *whole, const weft_graph *graph,
                              const char *trunk, const weft_pass_setup *setup,
                              const weft_program_options *options,
                              const weft_optimizer_config *optimizer, weft_pp_step **out)
{
    weft_layer_chain all = {0}, own = {0};
    weft_pp_step *s = weft_alloc(sizeof *s);
    weft_program_options pp_options = *options;
    weft_status_code status = WEFT_OK;
    pp_options.apart = WEFT_PP_STAGES_AXIS;
    WEFT_TRY(WEFT_ALLOCATED(s, "the stages of a pipeline"));
    s->offload_dir = options->offload_dir;
    WEFT_GO(check_recompute(graph, setup));
    WEFT_GO(weft_layer_chain_make(whole, trunk, &all));
    if (p->units == 0)
        WEFT_GO(find_cuts(p, &all));
    WEFT_GO(weft_layer_chain_make(graph, trunk, &own));
    if (own.units != p->units || all.units != p->units)
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(own.units)),
                           "a graph of %d blocks is cut as one of %d", own.units, p->units));
    WEFT_GO(weft_pp_stages_make(graph, &own, p->cut, p->pp_stages, p->device_of, p->axis,
                                &s->pp_stages));
    WEFT_GO(plan_pp_stages(p, setup, &pp_options, optimizer, s));
    *out = s;
    s = NULL;
out:
    weft_layer_chain_free(&all);
    weft_layer_chain_free(&own);
    weft_pp_step_free(s);
    return status;
}

void weft_pp_step_sends(const weft_pp_layout *p, const weft_pp_step *step, int64_t *forward,
                        int64_t *backward)
{
    const weft_pp_stages *s = &step->pp_stages;
    *forward = *backward = 0;
    for (int i = 0; i < s->links; i++) {
        const weft_pp_edge *link = &s->link[i];
        const weft_value_info *info = weft_value_get(s->graph, (weft_value){link->value});
        const int64_t bytes = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
        if (!link->local && s->device_of[link->from] == p->device)
            *forward += bytes;
        if (!link->local && s->device_of[link->to] == p->device)
            *backward += bytes;
    }
}
