#include "train/estimate/memory_start.h"

#include "base/log.h"
#include "base/scratch_map.h"
#include "comm/comm_world.h"
#include "kernel/device.h"
#include "train/config/packing_config.h"
#include "train/latents/latent_cache_folder.h"
#include "transform/memory/offload.h"

#include <math.h>
#include <string.h>

weft_status weft_run_check_offload(const weft_run *run)
{
    enum { PAGE = 4096 };
    const weft_offload_target offload = weft_run_offload_target(run);
    void *data;
    if (!(offload.values || offload.states) || !offload.dir)
        return WEFT_OK;
    if (weft_scratch_map(offload.dir, PAGE, "Name another folder", &data) != WEFT_OK)
        return weft_error_at(WEFT_E_IO, WEFT_AT(.key = "memory.offload"));
    weft_scratch_unmap(data, PAGE);
    return WEFT_OK;
}

/* Warns if memory.states: offload has no effect because all states of `store` are small. */
static void warn_states(weft_store *store)
{
    int count;
    const char *const *offload_states = weft_step_offloaded_states(&count);
    int64_t largest = 0, bytes = 0;
    char text[3][32];
    if (weft_store_offloaded_bytes(store) > 0)
        return;
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *state = weft_store_at(store, i);
        const int64_t own = weft_shape_count(&state->shape) * weft_dtype_bytes(state->dtype);
        if (!weft_offload_state(offload_states, count, state->name, WEFT_OFFLOAD_LEAST))
            continue;
        bytes += own;
        largest = own > largest ? own : largest;
    }
    weft_warning(WEFT_MSG_CONFIG_UNUSUAL,
                 WEFT_AT(.key = "memory.optimizer_states", WEFT_NUMBER(largest)),
                 "offload has no effect: the largest optimizer state has %s, and states below %s "
                 "stay resident (%s in all)",
                 weft_format_bytes(largest, text[0]),
                 weft_format_bytes(WEFT_OFFLOAD_LEAST, text[1]), weft_format_bytes(bytes, text[2]));
}

void weft_memory_start_free(weft_memory_start *m)
{
    weft_activation_plans_free(m->activations, m->train_stages);
    weft_free(m->encoded);
    *m = (weft_memory_start){0};
}

static weft_status find_encoded(weft_memory_start *m, weft_train_context *c)
{
    const int64_t train_stages = c->run->train_stages.count;
    weft_comm *comm = c->exec.comm;
    weft_status_code status = WEFT_OK;
    m->encoded = weft_alloc(train_stages);
    WEFT_TRY(WEFT_ALLOCATED(m->encoded, "%" PRId64 " stages", train_stages));
    weft_comm_set_busy(comm, "looking for cached latents");
    if (c->is_rank0)
        status = weft_latents_encoded(c->run, &c->models, m->encoded);
    if (c->is_rank0 && status == WEFT_OK) /* before hours of earlier stages */
        status = weft_latents_check_writable(c->run, &c->models, m->encoded);
    weft_comm_set_busy(comm, NULL);
    c->exec.encoded = m->encoded;
    WEFT_TRY(status);
    return weft_comm_ranks(comm) > 1 ? weft_comm_broadcast(comm, m->encoded, train_stages, 0)
                                     : WEFT_OK;
}

weft_status weft_memory_start_measure(weft_memory_start *m, weft_train_context *c)
{
    if (!c->meta)
        WEFT_TRY(find_encoded(m, c));
    if (c->run->memory.limit != 0) {
        WEFT_TRY(weft_fit_rates_measure(c->run, c->exec.backend, &m->rates));
        c->exec.fit_rates = &m->rates;
    }
    return weft_process_memory_measure(c->run, m->encoded, weft_comm_ranks(c->exec.comm),
                                       &m->process);
}

/* Chooses the activation plans, starting from the plan of the run folder. */
static weft_status fit_stored(const weft_memory_start *m, const weft_train_context *c,
                              weft_buf *out)
{
    weft_stored_activations plan = {0};
    weft_status_code status = WEFT_OK;
    if (!c->meta && c->is_rank0)
        status = weft_stored_activations_load(c->run->out, &plan);
    if (!c->meta)
        status = weft_stored_activations_share(&plan, c->exec.comm, status);
    WEFT_GO(status);
    WEFT_GO(weft_run_fit_memory(c->run, &c->models, &c->exec, c->exec.comm, c->store,
                                weft_process_memory_sum(m->process), &plan, m->activations, out));
    if (c->is_rank0 && !c->meta && plan.changed) {
        weft_comm_set_busy(c->exec.comm, "writing the activation plan");
        status = weft_stored_activations_save(c->run->out, &plan);
        weft_comm_set_busy(c->exec.comm, NULL);
    }
out:
    weft_stored_activations_free(&plan);
    return status;
}

/* Prints a line of `text` for each stage that does not keep all activations. */
static void print_fit(const weft_memory_start *m, const char *text)
{
    for (int64_t i = 0; i < m->train_stages; i++) {
        const weft_activation_figures *f = &m->activations[i].figures;
        const char *end = strchr(text, '\n');
        if (m->activations[i].count == 0 || !end)
            continue;
        const bool stored = isnan(f->longer);
        weft_notice(
            WEFT_MSG_MEMORY_REPORT,
            WEFT_AT(WEFT_DETAILS(
                WEFT_DETAIL("stage", i), WEFT_DETAIL("activation_bytes", f->all),
                WEFT_DETAIL("kept_bytes", f->kept), WEFT_DETAIL("recomputed_bytes", f->recomputed),
                WEFT_DETAIL("offloaded_bytes", f->offloaded),
                WEFT_WORD("plan", stored ? "stored" : "new"), WEFT_DETAIL("step_seconds", f->step),
                WEFT_DETAIL("added_seconds", stored ? 0 : f->longer),
                WEFT_DETAIL("copy_slowdown", f->copy_slowdown))),
            "%.*s", (int)(end - text), text);
        text = end + 1;
    }
}

weft_status weft_memory_start_fit(weft_memory_start *m, weft_train_context *c)
{
    const int64_t train_stages = c->run->train_stages.count;
    weft_buf out = {0};
    if (c->run->memory.limit == 0)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(m->activations, train_stages, "%" PRId64 " stages", train_stages));
    m->train_stages = train_stages;
    WEFT_TRY(weft_train_context_drop_programs(c)); /* programs planned without the limit */
    weft_status_code status = WEFT_OK;
    WEFT_GO(fit_stored(m, c, &out));
    if (c->is_rank0 && out.len)
        print_fit(m, out.data);
out:
    weft_buf_free(&out);
    c->exec.stage_activations = m->activations;
    weft_memory_trim();
    return status;
}

weft_status weft_memory_start_predict(weft_memory_start *m, const weft_train_context *c)
{
    weft_buf out = {0};
    weft_run_bytes peak = {0};
    if (c->is_rank0 && c->exec.offload_states)
        warn_states(c->store);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_memory(c->run, &c->models, &c->exec, c->steps, c->store,
                            weft_process_memory_sum(m->process), &peak, &out));
    m->predicted = weft_run_bytes_sum(peak);
    m->reserved = weft_run_bytes_reserved(peak);
    weft_rank_memory most = {m->reserved, m->predicted, weft_store_bytes(c->store)};
    WEFT_GO(weft_run_memory_max_rank(c->exec.comm, &most, &out));
    if (c->is_rank0)
        weft_notice(WEFT_MSG_MEMORY_REPORT,
                    WEFT_AT(WEFT_NUMBER(most.bytes),
                            WEFT_DETAILS(WEFT_DETAIL("weight_bytes", most.weights),
                                         WEFT_DETAIL("reserved_bytes", most.reserved))),
                    "%s", out.data);
out:
    weft_buf_free(&out);
    return status;
}

weft_status weft_memory_start_print_stage(const weft_memory_start *m, const weft_train_context *c,
                                          const weft_stage_state *s)
{
    char memory[32], weights[32];
    weft_buf out = {0}, sizes = {0}, buckets = {0};
    weft_rank_memory most = {m->reserved, weft_stage_state_bytes(c, s), weft_store_bytes(c->store)};
    for (int i = 0; i < s->programs.buckets; i++) {
        const weft_bucket size = weft_run_program_size(c->run, s->train_stage, i), *b = &size;
        weft_buf_printf(
            &sizes, "%s%" PRId64 " x %" PRId64 "x%" PRId64 "x%" PRId64 ", %.2f GFLOP per step",
            i ? "; or " : "", b->batch, b->frames, b->height, b->width, 1e-9 * s->flops[i]);
        weft_buf_printf(&buckets, "%s%" PRId64 " x %" PRId64 "x%" PRId64 "x%" PRId64, i ? ", " : "",
                        b->batch, b->frames, b->height, b->width);
    }
    weft_buf_printf(
        &out,
        "stage %" PRId64 "%s%s: %" PRId64 " step%s of %s, program %s, weights and optimizer %s%s",
        s->index, s->train_stage->name[0] ? " " : "", s->train_stage->name, s->train_stage->steps,
        weft_plural(s->train_stage->steps), sizes.data ? sizes.data : "",
        weft_format_bytes(most.bytes, memory), weft_format_bytes(most.weights, weights),
        weft_comm_ranks(c->exec.comm) > 1 ? " per rank" : "");
    weft_buf_free(&sizes);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&out));
    WEFT_GO(weft_buf_check(&buckets));
    WEFT_GO(weft_run_memory_max_rank(c->exec.comm, &most, &out));
    if (c->is_rank0)
        weft_notice(WEFT_MSG_STAGE_REPORT,
                    WEFT_AT(WEFT_NUMBER(most.bytes),
                            WEFT_DETAILS(WEFT_DETAIL("stage", s->index),
                                         WEFT_WORD("name", s->train_stage->name),
                                         WEFT_DETAIL("steps", s->train_stage->steps),
                                         WEFT_WORD("buckets", buckets.data ? buckets.data : ""),
                                         WEFT_DETAIL("weight_bytes", most.weights))),
                    "%s", out.data);
out:
    weft_buf_free(&buckets);
    weft_buf_free(&out);
    return status;
}

/* A limit is of the process, and includes memory of the host. */
static int64_t device_limit(const weft_memory_start *m, const weft_device *device,
                            int64_t weight_bytes)
{
    return weft_device_usable(device) + weight_bytes + weft_process_memory_sum(m->process) +
           weft_process_unreported() + WEFT_PROCESS_VARIES;
}

weft_status_code weft_memory_start_name_limit(const weft_memory_start *m,
                                              const weft_train_context *c, weft_status_code status)
{
    const weft_device *device = c->exec.backend->device;
    bool can_recompute;
    char text[32];
    if (status == WEFT_OK || weft_error_class() != WEFT_MSG_MEMORY_NEEDED || c->run->memory.limit ||
        !weft_device_is_apart(device))
        return status;
    const int64_t limit = device_limit(m, device, weft_store_bytes(c->store));
    weft_run_recomputes(c->run, &can_recompute);
    weft_format_bytes(limit, text);
    return weft_error_add(status, "With memory.limit: %" PRId64 " (%s) %s", limit, text,
                          can_recompute ? "activations are recomputed."
                                        : "and memory.recompute: auto activations are recomputed.");
}

void weft_memory_start_print_peak(const weft_memory_start *m)
{
    char text[2][32];
    const int64_t peak = weft_memory_peak();
    if (peak && m->predicted)
        weft_notice(WEFT_MSG_MEMORY_REPORT, WEFT_AT(.key = "memory", WEFT_NUMBER(peak)),
                    "peak of this process %s, predicted %s (%+.1f %%)",
                    weft_format_bytes(peak, text[0]), weft_format_bytes(m->predicted, text[1]),
                    100 * ((double)m->predicted / (double)peak - 1));
}
