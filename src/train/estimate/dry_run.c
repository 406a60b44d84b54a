#include "train/rehearsal.h"

#include "base/log.h"
#include "kernel/virtual/virtual.h"

double weft_rehearsal_kernels(const weft_backend *backend, const weft_graph *g)
{
    const weft_virtual_rates *rates = weft_backend_virtual_rates(backend);
    double seconds = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_op op = weft_graph_node(g, n)->op;
        if (backend->kernel[op])
            seconds += rates->scale * weft_virtual_seconds(rates, op, weft_node_cost(g, n));
    }
    return seconds;
}

weft_status weft_rehearsal_run_stages(weft_rehearsal *r, weft_pipe_run *run,
                                      weft_step *const *bucket, const int *bucket_of,
                                      int64_t microbatches)
{
    const double before = weft_pipe_run_times(run).waited;
    WEFT_TRY(weft_pipe_run_step(run, bucket_of));
    r->waited += weft_pipe_run_times(run).waited - before;
    for (int64_t m = 0; m < microbatches; m++) {
        const weft_pipe_step *step = bucket[bucket_of[m]]->pipe;
        for (int i = 0; i < step->owns; i++)
            for (int k = 0; k < WEFT_PIPE_KINDS; k++)
                if (step->own[i].program[k])
                    r->predicted += weft_rehearsal_kernels(
                        weft_program_backend(step->own[i].program[k]), step->own[i].graph[k]);
    }
    return WEFT_OK;
}

weft_status weft_rehearsal_run(weft_rehearsal *r, const weft_step *step)
{
    WEFT_TRY(weft_program_run(step->program));
    r->predicted += weft_rehearsal_kernels(weft_program_backend(step->program), step->graph);
    r->waited += weft_program_comm_times(step->program).exposed;
    return WEFT_OK;
}

void weft_rehearsal_tell(const weft_rehearsal *r, int64_t stage, int64_t peak)
{
    char kernels[32], executed[32], waited[32], bytes[32];
    const double steps = r->steps > 0 ? (double)r->steps : 1;
    weft_info("stage %lld rehearsed in %lld steps: a step is predicted to compute %s and took %s, "
              "of which %s waiting for other ranks; peak %s of a rank; loss not computed",
              (long long)stage, (long long)r->steps,
              weft_format_seconds(r->predicted / steps, kernels),
              weft_format_seconds(r->executed / steps, executed),
              weft_format_seconds(r->waited / steps, waited), weft_format_bytes(peak, bytes));
}
