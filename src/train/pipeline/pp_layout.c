#include "train/pipe.h"

#include "plan/pipeline/pipeline_plan.h"
#include "train/pipe_table.h"

#include <string.h>

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for the stages of a pipeline");
}

/* ---- the table ------------------------------------------------------------------------------- */

static int find_kind(const char *name)
{
    for (int k = 0; k < WEFT_SCHEDULE_GREEDY; k++)
        if (!strcmp(weft_schedule_kind_name((weft_schedule_kind)k), name))
            return k;
    return -1;
}

static weft_status choose_stages(const weft_parallel *config, const char *path, weft_pipe *p)
{
    const bool wave = p->kind == WEFT_SCHEDULE_WAVE;
    const bool many = wave || p->kind == WEFT_SCHEDULE_INTERLEAVED;
    const int64_t each = config->virtual_stages ? config->virtual_stages : many ? 2 : 1;
    if (wave && each % 2)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.virtual_stages: a wave folds back, so each rank has an even "
                         "number of stages, not %lld",
                         path, (long long)each);
    if (p->kind == WEFT_SCHEDULE_1F1B && each != 1)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.virtual_stages: 1f1b has one stage on each rank; schedule: "
                         "interleaved has %lld",
                         path, (long long)each);
    p->stages = (int)(each * p->devices);
    p->device_of = weft_alloc(p->stages * (int64_t)sizeof *p->device_of);
    if (!p->device_of)
        return no_memory();
    weft_stage_map_fill(wave ? WEFT_MAP_FOLD : WEFT_MAP_ROUND, p->stages, p->devices, p->device_of);
    p->apart = p->kind == WEFT_SCHEDULE_ZERO_BUBBLE;
    p->collocate = wave ? WEFT_COLLOCATE_AUTO : WEFT_COLLOCATE_NONE;
    return WEFT_OK;
}

static weft_status take_file(const weft_parallel *config, const char *path, weft_pipe *p)
{
    const weft_status_code status = weft_pipe_table_load(config->schedule, &p->file);
    if (status == WEFT_E_NOT_FOUND)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.schedule: \"%s\" is none of gpipe, 1f1b, interleaved, wave, "
                         "zero-bubble, and no file",
                         path, config->schedule);
    WEFT_TRY(status);
    if (p->file.devices != p->devices)
        return weft_fail(WEFT_E_CONFIG, "%s: parallel.schedule: %s is for pp=%lld, the mesh has %d",
                         path, config->schedule, (long long)p->file.devices, p->devices);
    p->stages = (int)p->file.stages;
    p->apart = p->file.split;
    p->device_of = weft_alloc(p->stages * (int64_t)sizeof *p->device_of);
    if (!p->device_of)
        return no_memory();
    memcpy(p->device_of, p->file.device_of, (size_t)p->stages * sizeof *p->device_of);
    bool folds = true;
    for (int q = 0; q < p->stages; q++)
        folds = folds && p->device_of[q] == p->device_of[p->stages - 1 - q];
    p->collocate = folds && p->stages > 1 ? WEFT_COLLOCATE_AUTO : WEFT_COLLOCATE_NONE;
    return WEFT_OK;
}

weft_status weft_pipe_check_trained(const weft_mesh *mesh, bool denoises, const char *path)
{
    const int axis = weft_mesh_axis(mesh, WEFT_STAGES_AXIS), ranks = weft_mesh_ranks(mesh);
    if (denoises || axis < 0 || mesh->axis[axis].size == 1)
        return WEFT_OK;
    return weft_fail(WEFT_E_CONFIG,
                     "%s: parallel.pp: an autoencoder has no blocks to make stages of; dp=%d or "
                     "fsdp=%d split its training over as many ranks",
                     path, ranks, ranks);
}

weft_status weft_pipe_open(const weft_parallel *config, const weft_mesh *mesh, int rank,
                           const char *path, weft_pipe **out)
{
    const int axis = weft_mesh_axis(mesh, WEFT_STAGES_AXIS);
    int at[WEFT_MAX_AXES];
    *out = NULL;
    if (axis < 0 || mesh->axis[axis].size == 1)
        return WEFT_OK;
    weft_pipe *p = weft_alloc(sizeof *p);
    if (!p)
        return no_memory();
    weft_mesh_coordinates(mesh, rank, at);
    *p = (weft_pipe){.schedule = config->schedule,
                     .kind = find_kind(config->schedule),
                     .axis = axis,
                     .devices = mesh->axis[axis].size,
                     .device = at[axis]};
    weft_status_code status = WEFT_OK;
    WEFT_GO(p->kind < 0 ? take_file(config, path, p) : choose_stages(config, path, p));
    p->cut = weft_alloc((p->stages + 1) * (int64_t)sizeof *p->cut);
    if (!p->cut)
        WEFT_GO(no_memory());
    *out = p;
    p = NULL;
out:
    weft_pipe_free(p);
    return status;
}

void weft_pipe_free(weft_pipe *p)
{
    if (!p)
        return;
    weft_schedule_free(&p->file);
    for (int u = 0; u < p->units; u++)
        weft_free(p->unit[u]);
    weft_free(p->unit);
    weft_free(p->device_of);
    weft_free(p->cut);
    weft_free(p);
}

void weft_pipe_print(const weft_pipe *p, int64_t microbatches, weft_buf *out)
{
    weft_buf_printf(out, "  pipeline: %s, %lld microbatches a step\n", p->schedule,
                    (long long)microbatches);
    for (int q = 0; q < p->stages && p->units; q++) {
        const char *first = p->unit[p->cut[q]], *last = p->unit[p->cut[q + 1] - 1];
        weft_buf_printf(out, "  stage %2d  on %s=%d  %s%s", q, WEFT_STAGES_AXIS,
                        (int)p->device_of[q], q == 0 ? "embedding, " : "", first);
        if (p->cut[q + 1] - p->cut[q] > 1)
            weft_buf_printf(out, " to %s", last[0] ? last : "loss");
        weft_buf_printf(out, "\n");
    }
}

/* A copy of the file's. */
static weft_status copy_table(const weft_schedule *from, weft_schedule *table)
{
    return weft_schedule_from_order("loaded", from->device_of, from->stages, from->devices,
                                    from->microbatches, from->split, from->task, from->task_count,
                                    table);
}

weft_status weft_pipe_table(const weft_pipe *p, int64_t microbatches, weft_schedule *table)
{
    if (p->kind < 0 && p->file.microbatches != microbatches)
        return weft_fail(WEFT_E_CONFIG, "%s: the table has %lld microbatches, a step has %lld",
                         p->schedule, (long long)p->file.microbatches, (long long)microbatches);
    WEFT_TRY(p->kind < 0 ? copy_table(&p->file, table)
                         : weft_schedule_make((weft_schedule_kind)p->kind, p->device_of, p->stages,
                                              p->devices, microbatches, NULL, table));
    const weft_status_code status = weft_schedule_check(table);
    if (status != WEFT_OK)
        weft_schedule_free(table);
    return status;
}

/* The table takes them in multiples of this, of each of the batches of a step. */
static int64_t multiple_of(const weft_pipe *pipe, int64_t accumulate)
{
    int64_t multiple = 1;
    while (pipe && pipe->kind == WEFT_SCHEDULE_INTERLEAVED &&
           multiple * accumulate % pipe->devices != 0)
        multiple++;
    return multiple;
}

/* The most up to `most` that divide a batch, else the fewest that do; 0: none. */
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

weft_status weft_pipe_microbatches(const weft_parallel *config, const weft_pipe *pipe,
                                   int64_t batch, int64_t accumulate, int64_t shares,
                                   int64_t *microbatches)
{
    const int64_t given = config->microbatches, multiple = multiple_of(pipe, accumulate);
    int64_t most = pipe ? 4 * (int64_t)pipe->devices : 1;
    most = most > batch / shares ? batch / shares : most;
    most = most > 1 ? most : 1;
    if (pipe && pipe->kind < 0 && !given)
        most = pipe->file.microbatches;
    const int64_t fits = divisor_near(batch, given ? given : most, multiple);
    if (!fits)
        return weft_fail(WEFT_E_CONFIG,
                         "parallel.schedule: interleaved has microbatches in multiples of %lld "
                         "here (pp=%d), and the batches of %lld samples do not divide so; those of "
                         "%lld do, or schedule: 1f1b",
                         (long long)multiple, pipe->devices, (long long)batch,
                         (long long)((batch / multiple + 1) * multiple));
    if (given && batch % given)
        return weft_fail(WEFT_E_CONFIG,
                         "parallel.microbatches: %lld do not divide the batches of %lld samples; "
                         "%lld do",
                         (long long)given, (long long)batch, (long long)fits);
    if (given && given % multiple)
        return weft_fail(WEFT_E_CONFIG,
                         "parallel.microbatches: interleaved has them in multiples of %lld here "
                         "(pp=%d), which %lld are not; %lld are",
                         (long long)multiple, pipe->devices, (long long)given, (long long)fits);
    *microbatches = fits;
    return WEFT_OK;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* What a unit takes, about: only the shares count. */
static double seconds_of(weft_cost cost)
{
    return (double)cost.flops / 1e11 + (double)cost.bytes / 1e10;
}

/* The partition of the whole graph's chain, which is the same on all ranks. */
static weft_status find_cuts(weft_pipe *p, const weft_chain *chain)
{
    weft_pipe_costs costs = {.op_count = chain->units, .skip_count = chain->skips};
    weft_partition partition = {0};
    weft_status_code status = WEFT_OK;
    const int each = p->stages / p->devices, most = chain->units / each;
    if (chain->units < p->stages)
        return weft_fail(WEFT_E_CONFIG,
                         "%d stages of a pipeline, but the model has %d blocks and layers to cut "
                         "between: %s of at most %d",
                         p->stages, chain->units, most > 1 ? "pp" : "virtual_stages",
                         most > 1 ? most : chain->units / p->devices);
    costs.op = weft_alloc(chain->units * (int64_t)sizeof *costs.op);
    costs.skip = weft_alloc((chain->skips + 1) * (int64_t)sizeof *costs.skip);
    if (!costs.op || !costs.skip)
        WEFT_GO(no_memory());
    for (int u = 0; u < chain->units; u++) {
        const double forward = seconds_of(chain->unit[u].cost);
        costs.op[u] = (weft_pipe_op){.name = chain->unit[u].name,
                                     .forward = forward,
                                     .backward = 2 * forward,
                                     .output_bytes = (double)chain->unit[u].output_bytes};
    }
    for (int i = 0; i < chain->skips; i++)
        costs.skip[i] = (weft_skip){.from = chain->skip[i].from,
                                    .to = chain->skip[i].to,
                                    .bytes = (double)chain->skip[i].bytes};
    WEFT_GO(weft_partition_solve(&costs, p->stages, p->collocate, &partition));
    p->unit = weft_alloc((chain->units + 1) * (int64_t)sizeof *p->unit);
    for (int u = 0; u < chain->units && p->unit; u++)
        if (!(p->unit[p->units++] = weft_strdup(chain->unit[u].name)))
            WEFT_GO(no_memory());
    if (!p->unit)
        WEFT_GO(no_memory());
    memcpy(p->cut, partition.cut, (size_t)(p->stages + 1) * sizeof *p->cut);
out:
    weft_partition_free(&partition);
    weft_free(costs.op);
    weft_free(costs.skip);
    return status;
}

/* ---- programs -------------------------------------------------------------------------------- */

void weft_pipe_step_free(weft_pipe_step *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->owns; i++)
        for (int k = 0; k < WEFT_PIPE_KINDS; k++) {
            weft_program_free(s->own[i].program[k]);
            weft_graph_free(s->own[i].graph[k]);
        }
    for (int i = 0; i < s->owns; i++)
        weft_graph_free(s->own[i].whole);
    weft_free(s->own);
    weft_stages_free(&s->stages);
    weft_free(s);
}

/* In a program of its own: collectives early, dead nodes go; what is handed over elsewhere leaves,
 * or is back in time. */
static weft_status order(weft_graph **graph, const weft_pass_setup *setup)
{
    const weft_pass_switches *all = setup->switches ? setup->switches : &weft_pass_defaults,
                             only = {.order = all->order, .offload = all->offload};
    weft_pass_setup own = *setup;
    own.switches = &only;
    own.recompute_count = 0;
    own.look = NULL;
    return weft_passes_run(WEFT_PASS_RANK, &own, false, graph, NULL);
}

static weft_status plan_programs(const weft_pipe *p, const weft_pass_setup *setup,
                                 const weft_program_options *options, weft_pipe_step *s,
                                 weft_pipe_stage *own)
{
    const bool away = (setup->switches ? setup->switches : &weft_pass_defaults)->offload;
    for (int k = 0; k < (p->apart ? WEFT_PIPE_KINDS : WEFT_STAGE_W); k++) {
        WEFT_TRY(weft_stage_split(own->whole, p->apart, away, (weft_stage_kind)k, &own->graph[k]));
        WEFT_TRY(order(&own->graph[k], setup));
        WEFT_TRY(weft_program_compile(own->graph[k], options, &own->program[k]));
        const weft_cost cost = weft_graph_cost(own->graph[k]);
        s->cost.flops += cost.flops;
        s->cost.bytes += cost.bytes;
        s->cost.wire_bytes += cost.wire_bytes;
    }
    return WEFT_OK;
}

/* Patterns that choose something on another stage only have nothing to do on this one. */
static weft_status differentiate(const weft_pipe *p, const weft_pass_setup *setup,
                                 const weft_optimizer_config *optimizer, bool shares,
                                 weft_pipe_step *s, weft_pipe_stage *own)
{
    weft_stage_graph cut;
    weft_pass_switches switches = setup->switches ? *setup->switches : weft_pass_defaults;
    WEFT_TRY(weft_stage_cut(&s->stages, own->stage, shares, &cut));
    own->whole = cut.graph;
    weft_optimizer_accumulate_stage(&cut, p->axis, optimizer);
    WEFT_TRY(weft_graph_check(cut.graph));
    switches.order = switches.offload = false; /* of each program by itself */
    weft_pass_setup mine = *setup;
    const char **pattern = weft_alloc((setup->recompute_count + 1) * (int64_t)sizeof *pattern);
    if (!pattern)
        return no_memory();
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
            return weft_fail(WEFT_E_ARG, "recompute: \"%s\" matches no scope and no op",
                             setup->recompute[i]);
    return WEFT_OK;
}

static weft_status plan_stages(const weft_pipe *p, const weft_pass_setup *setup,
                               const weft_program_options *options,
                               const weft_optimizer_config *optimizer, weft_pipe_step *s)
{
    for (int q = 0; q < p->stages; q++)
        s->owns += p->device_of[q] == p->device;
    s->own = weft_alloc((s->owns + 1) * (int64_t)sizeof *s->own);
    if (!s->own)
        return no_memory();
    for (int q = 0, i = 0; q < p->stages; q++) {
        if (p->device_of[q] != p->device)
            continue;
        s->own[i].stage = q;
        WEFT_TRY(differentiate(p, setup, optimizer, i == 0, s, &s->own[i]));
        WEFT_TRY(plan_programs(p, setup, options, s, &s->own[i]));
        i++;
    }
    return WEFT_OK;
}

weft_status weft_pipe_step_plan(weft_pipe *p, const weft_graph *whole, const weft_graph *graph,
                                const char *trunk, const weft_pass_setup *setup,
                                const weft_program_options *options,
                                const weft_optimizer_config *optimizer, weft_pipe_step **out)
{
    weft_chain all = {0}, own = {0};
    weft_pipe_step *s = weft_alloc(sizeof *s);
    weft_program_options of_stage = *options;
    weft_status_code status = WEFT_OK;
    of_stage.apart = WEFT_STAGES_AXIS;
    if (!s)
        return no_memory();
    s->away = options->away;
    WEFT_GO(check_recompute(graph, setup));
    WEFT_GO(weft_chain_make(whole, trunk, &all));
    if (p->units == 0)
        WEFT_GO(find_cuts(p, &all));
    WEFT_GO(weft_chain_make(graph, trunk, &own));
    if (own.units != p->units || all.units != p->units)
        WEFT_GO(weft_fail(WEFT_E_INTERNAL, "a graph of %d blocks, cut as one of %d", own.units,
                          p->units));
    WEFT_GO(weft_stages_make(graph, &own, p->cut, p->stages, p->device_of, p->axis, &s->stages));
    WEFT_GO(plan_stages(p, setup, &of_stage, optimizer, s));
    *out = s;
    s = NULL;
out:
    weft_chain_free(&all);
    weft_chain_free(&own);
    weft_pipe_step_free(s);
    return status;
}

void weft_pipe_step_sends(const weft_pipe *p, const weft_pipe_step *step, int64_t *forward,
                          int64_t *backward)
{
    const weft_stages *s = &step->stages;
    *forward = *backward = 0;
    for (int i = 0; i < s->links; i++) {
        const weft_stage_link *link = &s->link[i];
        const weft_value_info *info = weft_value_get(s->graph, (weft_value){link->value});
        const int64_t bytes = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
        if (!link->local && s->device_of[link->from] == p->device)
            *forward += bytes;
        if (!link->local && s->device_of[link->to] == p->device)
            *backward += bytes;
    }
}
