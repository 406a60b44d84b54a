#include "train/graph/run_networks.h"

#include "transform/numeric/networks.h"

#include <string.h>

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

static bool is_fake(const char *scope)
{
    return !strcmp(scope, WEFT_FAKE_SCOPE) || !strcmp(scope, WEFT_FAKE_SCORE_SCOPE);
}

static bool is_teacher(const char *scope)
{
    return !strcmp(scope, WEFT_TEACHER_SCOPE) || !strcmp(scope, WEFT_UNGUIDED_SCOPE);
}

const weft_model *weft_run_network_model(const weft_run_models *models, const char *scope)
{
    if (is_fake(scope) && models->fake.family)
        return &models->fake;
    return (is_fake(scope) || is_teacher(scope)) && models->teacher.family ? &models->teacher
                                                                           : &models->denoiser;
}

const char *weft_run_network_weights(const weft_run *run, const char *scope)
{
    const weft_distill_config *c = &run->distill;
    if (is_fake(scope) && c->fake_weights[0])
        return c->fake_weights;
    return (is_fake(scope) || is_teacher(scope)) && c->teacher[0] ? c->teacher
                                                                  : run->transformer.weights;
}

/* Scopes of bases that networks without files share with LoRA: the trained model's for the fake
 * score, and the fake score's for the teacher if both start with distill.teacher. */
static const char *fake_base(const weft_run *run, const char *trained)
{
    return run->distill.teacher[0] || run->distill.fake_weights[0] ? NULL : trained;
}

static const char *teacher_base(const weft_run *run, const char *trained)
{
    if (!run->distill.teacher[0])
        return trained;
    return has_fake(run) && !run->distill.fake_weights[0] ? WEFT_FAKE_SCOPE : NULL;
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
    static const char any[] = "";
    const bool lora = run->transformer.lora.rank > 0;
    int count = 0;
    if (run->distill.method && (!lora || !fake_base(run, any)))
        count = weft_run_networks_changed(run, scope);
    if (run->distill.method && (!lora || !teacher_base(run, any)))
        scope[count++] = WEFT_TEACHER_SCOPE;
    if (weft_run_prefers(run) && !lora)
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
    const char *trained = models->denoiser.family->scope;
    const bool lora = run->transformer.lora.rank > 0;
    const char *base = lora ? trained : NULL, *taught = lora ? teacher_base(run, trained) : NULL,
               *faked = lora && has_fake(run) ? fake_base(run, trained) : NULL;
    const weft_network pairs[] = {
        {WEFT_REFERENCE_SCOPE, base},
        {WEFT_REFERENCE_REJECTED_SCOPE, base ? base : WEFT_REFERENCE_SCOPE}};
    const weft_network distilled[] = {{WEFT_TEACHER_SCOPE, taught},
                                      {WEFT_UNGUIDED_SCOPE, taught ? taught : WEFT_TEACHER_SCOPE},
                                      {WEFT_FAKE_SCOPE, faked}};
    if (weft_run_prefers(run))
        return apply(g, pairs, WEFT_COUNT(pairs));
    return apply(g, distilled, faked ? 3 : 2);
}
