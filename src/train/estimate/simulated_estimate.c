#include "train/estimate/simulated_estimate.h"

#include "comm/coll_algorithms.h"
#include "estimate/program_estimate.h"
#include "exec/program_sent.h"
#include "plan/cluster/cluster_path.h"
#include "plan/cost/graph_list.h"

#include <string.h>

typedef struct estimation {
    const weft_device_type *device;
    weft_simulated_step *out;
    weft_link_costs costs;
    weft_span span[WEFT_MAX_AXES];
} estimation;

/* Seconds of a collective with the algorithm chosen for its size. */
static double comm_seconds(const void *self, int axis, weft_comm_op op, int64_t bytes)
{
    const estimation *w = self;
    const weft_span *span = &w->span[axis];
    weft_algorithm algorithm;
    double seconds;
    if (weft_algorithm_choose(op, span, bytes, false, &weft_link_costs_default, &algorithm, NULL) !=
            WEFT_OK ||
        weft_algorithm_cost(algorithm, op, span, bytes, &w->costs, &seconds) != WEFT_OK)
        return 0;
    return seconds;
}

/* Seconds of one run of a program of `graph`. */
static weft_status estimate(const estimation *w, const weft_program *program, const weft_graph *g,
                            double *seconds)
{
    weft_time_estimate run;
    double *kernel = weft_calloc(weft_graph_node_count(g) + 1, sizeof *kernel);
    const weft_part_times times = {.kernel = kernel,
                                   .collective = comm_seconds,
                                   .self = w,
                                   .copy = 2 / weft_device_bytes(w->device)};
    WEFT_TRY(WEFT_ALLOCATED(kernel, "the estimate of a simulated step"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_node_times(g, w->device, kernel, NULL, NULL));
    WEFT_GO(weft_program_estimate(program, &times, &run));
    *seconds = run.seconds;
out:
    weft_free(kernel);
    return status;
}

/* ---- pipeline stages ------------------------------------------------------------------------ */

static weft_status find_skips(const weft_pp_stages *s, weft_simulated_step *out)
{
    out->skip = weft_calloc(s->links + 1, sizeof *out->skip);
    for (int l = 0; l < s->links && out->skip; l++) {
        const weft_pp_edge *link = &s->link[l];
        const weft_value_info *info = weft_value_get(s->graph, (weft_value){link->value});
        int i = 0;
        if (!link->local || link->to == link->from + 1)
            continue;
        while (i < out->skips && (out->skip[i].from != link->from || out->skip[i].to != link->to))
            i++;
        if (i == out->skips)
            out->skip[out->skips++] = (weft_skip){.from = link->from, .to = link->to};
        out->skip[i].bytes +=
            (double)(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
    }
    return WEFT_ALLOCATED(out->skip, "the estimate of a simulated step");
}

/* Estimates the pipeline stages of one device, with the programs of the first bucket. */
static weft_status estimate_pp_stages(const estimation *w, const weft_rank_kind *kind)
{
    const weft_pp_step *step = kind->steps.bucket[0]->pp_step;
    const weft_pp_stages *pp_stages = &step->pp_stages;
    for (int i = 0; i < step->owns; i++) {
        weft_simulated_stage *own = &w->out->pp_stage[step->own[i].pp_stage];
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++)
            if (step->own[i].program[k])
                WEFT_TRY(
                    estimate(w, step->own[i].program[k], step->own[i].graph[k], &own->seconds[k]));
        for (int l = 0; l < pp_stages->links; l++) {
            const weft_pp_edge *link = &pp_stages->link[l];
            const weft_value_info *info =
                weft_value_get(pp_stages->graph, (weft_value){link->value});
            if (!link->local && link->from == step->own[i].pp_stage)
                own->sent +=
                    (double)(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
        }
    }
    return WEFT_OK;
}

static weft_status estimate_pipeline(const estimation *w, const weft_rank_kind *first)
{
    const weft_stage_programs *steps = &first->steps;
    weft_buf text = {0};
    weft_pp_layout_print(first->pp, steps->runs, &text);
    w->out->print = text.data;
    WEFT_TRY(weft_buf_check(&text));
    WEFT_TRY(find_skips(&steps->bucket[0]->pp_step->pp_stages, w->out));
    return weft_pp_schedule_csv(first->pp, steps->runs, &w->out->table);
}

/* ---- a pipeline device, or all ranks without a pipeline -------------------------------------- */

static weft_status estimate_device(const estimation *w, const weft_rank_kind *kind)
{
    const weft_stage_programs *s = &kind->steps;
    double seconds, update_seconds = 0;
    if (kind->pp)
        WEFT_TRY(estimate_pp_stages(w, kind));
    for (int64_t b = 0; b < s->buckets && !kind->pp; b++) {
        WEFT_TRY(estimate(w, s->bucket[b]->program, s->bucket[b]->graph, &seconds));
        w->out->estimated_seconds +=
            seconds * (double)(s->runs / s->buckets + (b < s->runs % s->buckets));
    }
    for (int i = s->buckets; i < s->count; i++) {
        WEFT_TRY(estimate(w, s->bucket[i]->program, s->bucket[i]->graph, &seconds));
        update_seconds += seconds;
    }
    if (update_seconds > w->out->estimated_update_seconds)
        w->out->estimated_update_seconds = update_seconds;
    return WEFT_OK;
}

static bool is_first(const weft_mesh *mesh, int rank)
{
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(mesh, rank, at);
    for (int a = 0; a < mesh->axis_count; a++)
        if (at[a] && strcmp(mesh->axis[a].name, WEFT_PP_STAGES_AXIS))
            return false;
    return true;
}

weft_status weft_simulated_step_estimate(const weft_simulated_setup *setup,
                                         const weft_rank_kinds *kinds, weft_simulated_step *step)
{
    const weft_link_model *links = &setup->links;
    estimation w = {
        .device = &setup->device,
        .out = step,
        .costs = {.message = {links->inside.latency, links->between.latency},
                  .byte = {1 / links->inside.bytes_per_second, 1 / links->between.bytes_per_second},
                  .add = 3 / weft_device_bytes(&setup->device)}};
    for (int a = 0; a < step->mesh.axis_count; a++)
        WEFT_TRY(weft_axis_span(&step->mesh, 0, a, links->per_node, &w.span[a]));
    step->kinds = kinds->count;
    step->microbatches = kinds->kind[0].steps.runs;
    for (int k = 0; k < kinds->count; k++)
        if (is_first(&step->mesh, kinds->kind[k].rank))
            WEFT_TRY(estimate_device(&w, &kinds->kind[k]));
    for (int r = 0; r < step->ranks; r++) {
        const weft_rank_kind *kind = &kinds->kind[kinds->of[r]];
        step->rank[r] = (weft_simulated_rank){.kernels = kind->kernels,
                                              .sent = kind->inside.bytes,
                                              .messages = kind->inside.messages,
                                              .bytes = kind->bytes};
    }
    memcpy(step->planned, kinds->kind[0].sent, sizeof step->planned);
    return kinds->kind[0].pp ? estimate_pipeline(&w, &kinds->kind[0]) : WEFT_OK;
}
