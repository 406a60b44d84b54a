#include "train/step/stage_state.h"

#include "base/log.h"
#include "comm/comm_world.h"

#include <math.h>

/* Starts straggler detection on rank 0, with the FLOPs per step of each rank. */
static weft_status watch_ranks(const weft_train_context *c, weft_stage_state *s)
{
    const int ranks = weft_comm_ranks(c->exec.comm);
    double own = 0, *all;
    if (ranks == 1 || !c->run->stragglers.steps || c->meta)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(all, ranks, "the FLOPs of %d ranks", ranks));
    for (int i = 0; i < s->programs.count; i++)
        own += s->flops[i] * (double)(i < s->programs.buckets ? s->programs.runs : 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_all_gather(c->exec.comm, &own, sizeof own, all));
    if (c->is_rank0)
        WEFT_GO(weft_stragglers_create(&c->run->stragglers, ranks, all, &s->stragglers));
out:
    weft_free(all);
    return status;
}

weft_status weft_stage_state_create(const weft_train_context *c, bool watch, weft_stage_state *s)
{
    const int count = s->programs.count;
    s->flops = weft_calloc(2 * count + 1, sizeof *s->flops);
    s->bucket_of = weft_calloc(s->programs.runs + 1, sizeof *s->bucket_of);
    WEFT_TRY(WEFT_ALLOCATED(s->flops && s->bucket_of, "%d programs", count));
    for (int i = 0; i < count; i++)
        s->flops[i] = (double)s->programs.bucket[i]->cost.flops;
    s->bf16_flops = s->flops + count;
    for (int i = 0; i < count; i++)
        s->bf16_flops[i] = (double)s->programs.bucket[i]->cost.bf16_flops;
    if (watch)
        WEFT_TRY(watch_ranks(c, s));
    return weft_comm_sum(c->exec.comm, s->flops, 2 * count);
}

weft_status weft_stage_state_bind(weft_train_context *c, weft_stage_state *s)
{
    weft_group *world;
    WEFT_TRY(weft_compiled_steps_bind(c->steps, s->programs.bucket, s->programs.count, c->store,
                                      (uint64_t)c->run->seed));
    if (!c->exec.pp)
        return WEFT_OK;
    WEFT_TRY(weft_stage_programs_pipe(&s->programs, &s->pp_executor));
    WEFT_TRY(weft_comm_world(c->exec.comm, &world));
    return weft_pp_executor_bind(s->pp_executor, world, &c->exec.mesh);
}

void weft_stage_state_free(weft_stage_state *s)
{
    weft_batch_share_free(&s->share);
    for (int i = 0; i < WEFT_RUN_PAIRS; i++) {
        weft_paired_latents_close(s->pair[i]);
        weft_paired_clips_close(s->clips[i]);
    }
    for (int i = 0; s->grey && i < s->programs.buckets; i++)
        weft_free(s->grey[i]);
    weft_free(s->grey);
    weft_loader_close(s->loader);
    weft_pp_executor_free(s->pp_executor);
    weft_stage_programs_free(&s->programs);
    weft_stragglers_free(s->stragglers);
    weft_free(s->flops);
    weft_free(s->bucket_of);
    weft_free(s->no_text);
    *s = (weft_stage_state){0};
}

int64_t weft_stage_state_bytes(const weft_train_context *c, const weft_stage_state *s)
{
    return weft_compiled_steps_bytes(c->steps) +
           (s->pp_executor ? weft_pp_executor_bytes(s->pp_executor) : 0);
}

void weft_stage_state_print_traffic(const weft_stage_state *s)
{
    weft_offload_times m = s->totals.offload_times;
    weft_comm_times c = s->totals.sent;
    char text[2][32];
    if (s->pp_executor) {
        const weft_pp_task_times p = weft_pp_executor_times(s->pp_executor);
        weft_comm_times_add(&c, p.inside);
        weft_offload_times_add(&m, p.offload_times);
        weft_notice(WEFT_MSG_STAGE_REPORT,
                    WEFT_AT(WEFT_DETAILS(
                        WEFT_DETAIL("stage", s->index), WEFT_DETAIL("pipeline_sent_bytes", p.sent),
                        WEFT_DETAIL("waited_share", p.waited / fmax(s->totals.seconds, 1e-9)))),
                    "stage %" PRId64
                    ": this rank sent %s to other pipeline stages and waited for them %.0f %% of "
                    "the time",
                    s->index, weft_format_bytes(p.sent, text[0]),
                    100 * p.waited / fmax(s->totals.seconds, 1e-9));
    }
    if (c.busy > 0)
        weft_notice(
            WEFT_MSG_STAGE_REPORT,
            WEFT_AT(WEFT_DETAILS(WEFT_DETAIL("stage", s->index),
                                 WEFT_DETAIL("sent_bytes", c.wire_bytes),
                                 WEFT_DETAIL("seconds", c.busy),
                                 WEFT_DETAIL("hidden_share", fmax(0, 1 - c.exposed / c.busy)))),
            "stage %" PRId64 ": this rank sent %s%s; communication took %.3g s, %.0f %% of it "
            "hidden behind compute",
            s->index, weft_format_bytes(c.wire_bytes, text[0]),
            s->pp_executor ? " within its pipeline stage" : "", c.busy,
            100 * fmax(0, 1 - c.exposed / c.busy));
    if (m.busy > 0)
        weft_notice(WEFT_MSG_STAGE_REPORT,
                    WEFT_AT(WEFT_DETAILS(
                        WEFT_DETAIL("stage", s->index), WEFT_DETAIL("offloaded_bytes", m.out),
                        WEFT_DETAIL("fetched_bytes", m.back), WEFT_DETAIL("seconds", m.busy),
                        WEFT_DETAIL("hidden_share", fmax(0, 1 - m.exposed / m.busy)))),
                    "stage %" PRId64
                    ": %s were offloaded and %s fetched; the copies took %.3g s, %.0f %% of it "
                    "hidden behind compute",
                    s->index, weft_format_bytes(m.out, text[0]), weft_format_bytes(m.back, text[1]),
                    m.busy, 100 * fmax(0, 1 - m.exposed / m.busy));
}
