#include "train/graph/run_networks.h"

#include "transform/numeric/networks.h"

static bool has_target(const weft_run *run)
{
    return run->distill.method == WEFT_DISTILL_LCM && run->optimizer.target_decay > 0;
}

static bool has_fake(const weft_run *run)
{
    return weft_distill_matches(&run->distill);
}

static bool rolls_out(const weft_run *run)
{
    return run->distill.method == WEFT_DISTILL_SELF_FORCING;
}

int weft_run_networks_changed(const weft_run *run, const char *scope[WEFT_RUN_NETWORKS])
{
    int count = 0;
    if (has_target(run))
        scope[count++] = WEFT_TARGET_SCOPE;
    if (has_fake(run))
        scope[count++] = WEFT_FAKE_SCOPE;
    return count;
}

int weft_run_networks(const weft_run *run, const char *scope[WEFT_RUN_NETWORKS])
{
    int count = 0;
    if (run->transformer.lora.rank && rolls_out(run)) /* the base of the teacher as well */
        return weft_run_networks_changed(run, scope);
    if (run->transformer.lora.rank)
        return 0;
    if (run->distill.method) {
        count = weft_run_networks_changed(run, scope);
        scope[count++] = WEFT_TEACHER_SCOPE;
    }
    if (weft_run_prefers(run))
        scope[count++] = WEFT_REFERENCE_SCOPE;
    return count;
}

static weft_status apply(weft_graph **g, const weft_network *network, int count)
{
    weft_graph *shared = NULL;
    const weft_status_code status = weft_pass_networks(*g, network, count, &shared);
    weft_graph_free(*g);
    *g = shared;
    return status;
}

weft_status weft_run_networks_share_trained(const weft_run *run, const weft_run_models *models,
                                            weft_graph **g)
{
    if (!run->distill.method && !weft_run_prefers(run))
        return WEFT_OK;
    const char *trained = models->denoiser.family->scope;
    const weft_network target = {WEFT_TARGET_SCOPE, has_target(run) ? NULL : trained},
                       score[] = {{WEFT_FAKE_SCORE_SCOPE, WEFT_FAKE_SCOPE},
                                  {WEFT_ROLLOUT_SCOPE, trained, .numbered = true}},
                       rejected = {WEFT_REJECTED_SCOPE, trained};
    if (has_fake(run))
        return apply(g, score, rolls_out(run) ? 2 : 1);
    return apply(g, weft_run_prefers(run) ? &rejected : &target, 1);
}

weft_status weft_run_networks_share_frozen(const weft_run *run, const weft_run_models *models,
                                           weft_graph **g)
{
    if (!run->distill.method && !weft_run_prefers(run))
        return WEFT_OK;
    const char *trained = models->denoiser.family->scope, *base = !run->transformer.lora.rank ? NULL
                                                                  : rolls_out(run) ? WEFT_FAKE_SCOPE
                                                                                   : trained;
    const weft_network pairs[] = {
        {WEFT_REFERENCE_SCOPE, base},
        {WEFT_REFERENCE_REJECTED_SCOPE, base ? base : WEFT_REFERENCE_SCOPE}};
    const weft_network distilled[] = {{WEFT_TEACHER_SCOPE, base},
                                      {WEFT_UNGUIDED_SCOPE, base ? base : WEFT_TEACHER_SCOPE},
                                      {WEFT_FAKE_SCOPE, trained}};
    if (weft_run_prefers(run))
        return apply(g, pairs, WEFT_COUNT(pairs));
    return apply(g, distilled, base == trained && has_fake(run) ? 3 : 2);
}
