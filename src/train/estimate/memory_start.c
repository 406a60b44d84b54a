#include "train/memory_start.h"

#include "base/log.h"
#include "base/scratch_map.h"
#include "train/latent_cache.h"

weft_status weft_run_check_offload(const weft_run *run)
{
    enum { PAGE = 4096 };
    const weft_run_place away = weft_run_away(run);
    void *data;
    if (!(away.values || away.states) || !away.dir)
        return WEFT_OK;
    if (weft_scratch_map(away.dir, PAGE, "Name another folder", &data) != WEFT_OK)
        return weft_fail_context(WEFT_E_IO, "memory.offload");
    weft_scratch_unmap(data, PAGE);
    return WEFT_OK;
}

void weft_run_warn_states(weft_store *store)
{
    int count;
    const char *const *away = weft_step_away_states(&count);
    int64_t largest = 0, bytes = 0;
    char text[3][32];
    if (weft_store_away_bytes(store) > 0)
        return;
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *state = weft_store_at(store, i);
        const int64_t own = weft_shape_count(&state->shape) * weft_dtype_bytes(state->dtype);
        if (!weft_offload_state(away, count, state->name, WEFT_OFFLOAD_LEAST))
            continue;
        bytes += own;
        largest = own > largest ? own : largest;
    }
    weft_warn("memory.states: offload has no effect: the largest of the "
              "optimizer's states has %s, "
              "and states below %s stay resident (%s in all)",
              weft_format_bytes(largest, text[0]), weft_format_bytes(WEFT_OFFLOAD_LEAST, text[1]),
              weft_format_bytes(bytes, text[2]));
}

weft_status weft_run_find_encoded(const weft_run *run, const weft_run_models *models,
                                  weft_comm *comm, bool **encoded)
{
    const int64_t stages = run->stages.count;
    weft_status_code status = WEFT_OK;
    *encoded = weft_alloc(stages);
    if (!*encoded)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld stages", (long long)stages);
    weft_comm_busy(comm, "looking for cached latents");
    if (weft_comm_rank(comm) == 0)
        status = weft_latents_encoded(run, models, *encoded);
    weft_comm_busy(comm, NULL);
    if (status == WEFT_OK && weft_comm_ranks(comm) > 1)
        status = weft_comm_broadcast(comm, *encoded, stages, 0);
    return status;
}

weft_status weft_run_fit_kept(const weft_run *run, const weft_run_models *models,
                              const weft_place_of_run *place, weft_store *store, int64_t process,
                              bool dry, weft_fates *fates, weft_buf *told)
{
    weft_activation_plan plan = {0};
    weft_status_code status = WEFT_OK;
    const bool leads = weft_comm_rank(place->comm) == 0;
    if (!dry && leads)
        status = weft_activation_plan_load(run->out, &plan);
    if (!dry)
        status = weft_activation_plan_share(&plan, place->comm, status);
    if (status == WEFT_OK)
        status = weft_run_fit(run, models, place, place->comm, store, process, &plan, fates, told);
    if (status == WEFT_OK && leads && !dry && plan.changed)
        status = weft_activation_plan_save(run->out, &plan);
    weft_activation_plan_free(&plan);
    return status;
}

void weft_run_tell_peak(int64_t predicted)
{
    char text[2][32];
    const int64_t peak = weft_memory_peak();
    if (peak)
        weft_info("memory: this process had %s at its peak, %s were predicted (%+.1f %%)",
                  weft_format_bytes(peak, text[0]), weft_format_bytes(predicted, text[1]),
                  100 * ((double)predicted / (double)peak - 1));
}
