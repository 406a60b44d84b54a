#include "train/estimate/dry_run.h"

#include "base/log.h"
#include "exec/execute.h"
#include "kernel/virtual/virtual.h"

double weft_dry_run_kernels(const weft_backend *backend, const weft_graph *g)
{
    const weft_virtual_rates *rates = weft_backend_virtual_rates(backend);
    double seconds = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (backend->kernel[node->op])
            seconds +=
                rates->scale * weft_virtual_seconds(rates, node->op, weft_node_dtype(g, node),
                                                    weft_node_cost(g, n));
    }
    return seconds;
}

static double pp_step_kernels(const weft_pp_step *step)
{
    double seconds = 0;
    for (int i = 0; i < step->owns; i++)
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++)
            if (step->own[i].program[k])
                seconds += weft_dry_run_kernels(weft_program_backend(step->own[i].program[k]),
                                                step->own[i].graph[k]);
    return seconds;
}

double weft_dry_run_seconds(const weft_stage_programs *s)
{
    double seconds = 0;
    for (int i = 0; i < s->count; i++) {
        const weft_step *step = s->bucket[i];
        const double times = i < s->buckets ? (double)s->runs / s->buckets : 1;
        seconds +=
            times * (step->pp_step
                         ? pp_step_kernels(step->pp_step)
                         : weft_dry_run_kernels(weft_program_backend(step->program), step->graph));
    }
    return seconds;
}

/* Runs the pipeline stages of a step's microbatches once, in the order of their schedule. */
static weft_status run_pipeline(weft_dry_run *r, weft_pp_executor *run, weft_step *const *bucket,
                                const int *bucket_of, int64_t microbatches)
{
    const double before = weft_pp_executor_times(run).waited;
    WEFT_TRY(weft_pp_executor_step(run, bucket_of));
    r->waited += weft_pp_executor_times(run).waited - before;
    for (int64_t m = 0; m < microbatches; m++)
        r->predicted += pp_step_kernels(bucket[bucket_of[m]]->pp_step);
    return WEFT_OK;
}

static weft_status run_program(weft_dry_run *r, const weft_step *step)
{
    WEFT_TRY(weft_program_run(step->program));
    r->predicted += weft_dry_run_kernels(weft_program_backend(step->program), step->graph);
    r->waited += weft_program_comm_times(step->program).exposed;
    return WEFT_OK;
}

weft_status weft_dry_run_step(weft_dry_run *r, weft_stage_state *train_stage, int64_t step)
{
    const weft_stage_programs *s = &train_stage->programs;
    const double started = weft_now();
    for (int64_t i = 0; i < s->runs; i++) {
        train_stage->bucket_of[i] = (int)((step * s->runs + i) % s->buckets);
        if (!train_stage->pp_executor)
            WEFT_TRY(run_program(r, s->bucket[train_stage->bucket_of[i]]));
    }
    if (train_stage->pp_executor)
        WEFT_TRY(
            run_pipeline(r, train_stage->pp_executor, s->bucket, train_stage->bucket_of, s->runs));
    for (int i = s->buckets; i < s->count; i++)
        WEFT_TRY(run_program(r, s->bucket[i]));
    r->executed += weft_now() - started;
    r->steps++;
    return WEFT_OK;
}

void weft_dry_run_print(const weft_dry_run *r, int64_t train_stage, int64_t peak)
{
    char kernels[32], executed[32], waited[32], bytes[32];
    const double steps = r->steps > 0 ? (double)r->steps : 1;
    weft_notice(WEFT_MSG_STAGE_REPORT,
                WEFT_AT(WEFT_NUMBER(peak),
                        WEFT_DETAILS(WEFT_DETAIL("stage", train_stage),
                                     WEFT_DETAIL("dry_run_steps", r->steps),
                                     WEFT_DETAIL("predicted_seconds", r->predicted / steps),
                                     WEFT_DETAIL("executed_seconds", r->executed / steps),
                                     WEFT_DETAIL("waited_seconds", r->waited / steps))),
                "stage %" PRId64 ": dry run of %" PRId64
                " steps; per step %s compute (predicted), %s executed, %s of it waiting for other "
                "ranks; peak %s per rank; no loss",
                train_stage, r->steps, weft_format_seconds(r->predicted / steps, kernels),
                weft_format_seconds(r->executed / steps, executed),
                weft_format_seconds(r->waited / steps, waited), weft_format_bytes(peak, bytes));
}
