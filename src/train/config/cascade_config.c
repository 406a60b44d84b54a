#include "train/cascade_config.h"

#include "base/fs.h"

#include <string.h>

static const char *const accumulation_names[] = {"own", "representative", NULL};
static const char *const unfit_names[] = {"refuse", "skip", NULL};
static const char *const dispatch_names[] = {"planned", "late", NULL};
static const char *const objective_names[] = {"makespan", "expected", NULL};
static const char *const weight_names[] = {"elements", "samples", NULL};

static const weft_key cascade_keys[] = {
    {"plan", WEFT_KEY_STRING, offsetof(weft_cascade_config, plan), "none", "",
     "every-iteration: each is planned while the one before runs; static: one plan for each list "
     "of sizes, kept; a file: what a run wrote to <out>/cascades/plans.jsonl, replayed; none: the "
     "run is laid out by the keys beside this one"},
    {"degrees", WEFT_KEY_I64_LIST, offsetof(weft_cascade_config, degrees), "[]", "ranks",
     "that a cascade may have, any integers; empty: every one up to the ranks", .min = 1,
     .max = 65536},
    {"policy", WEFT_KEY_ENUM, offsetof(weft_cascade_config, policy), "arachne", "",
     "who plans: weft's search, or the rule of another system: equal groups in turn "
     "(static-dp-cp; ulysses, which divide the heads), groups of powers of two by seconds "
     "(flexsp), "
     "equal groups filled by work (knapformer)",
     .choices = weft_policy_names},
    {"degree", WEFT_KEY_I64, offsetof(weft_cascade_config, degree), "0", "ranks",
     "of the equal groups of static-dp-cp, ulysses and knapformer; 0: the best for the first "
     "iterations",
     .min = 0, .max = 65536},
    {"memory", WEFT_KEY_I64, offsetof(weft_cascade_config, memory), "0", "bytes",
     "of a rank, which no plan passes, 20GiB for instance: of weights, states and programs, not of "
     "checkpoints under way and of clips read ahead; 0: what a device of `cluster` has",
     .min = 0, .max = 9e18},
    {"cluster", WEFT_KEY_STRING, offsetof(weft_cascade_config, cluster), "local", "",
     "where it runs: local (with <out>/profile.json of `weft profile`, if it is there), a preset "
     "or a file (weft topology)"},
    {"accumulation", WEFT_KEY_ENUM, offsetof(weft_cascade_config, accumulation), "own", "",
     "of gradients: own: a rank keeps what it adds itself, and one sum over all ranks begins while "
     "the last cascades run; representative: groups sum, then ranks that cover all samples, then a "
     "broadcast",
     .choices = accumulation_names},
    {"weigh", WEFT_KEY_ENUM, offsetof(weft_cascade_config, weigh), "elements", "",
     "what a sample counts by in the mean loss of its step: the elements of its latents, or its "
     "clips",
     .choices = weight_names},
    {"unfit", WEFT_KEY_ENUM, offsetof(weft_cascade_config, unfit), "refuse", "",
     "a sample that fits on no degree ends the run, or is left out of its step and told",
     .choices = unfit_names},
    {"dispatch", WEFT_KEY_ENUM, offsetof(weft_cascade_config, dispatch), "planned", "",
     "ranks of a cascade: those of the plan, or idle ranks that rank 0 chooses when the cascade "
     "can "
     "start (late); plans.jsonl has the executed ranks and replays bitwise",
     .choices = dispatch_names},
    {"objective", WEFT_KEY_ENUM, offsetof(weft_cascade_config, objective), "makespan", "",
     "seconds that arachne minimises: predicted makespan, or the mean over iterations with the "
     "measured price errors of this run, with hand-offs and sums of gradients (expected)",
     .choices = objective_names},
    {"inner", WEFT_KEY_BOOL, offsetof(weft_cascade_config, inner), "true", "",
     "ranks of a cascade are chosen by the topology"},
    {"inter", WEFT_KEY_BOOL, offsetof(weft_cascade_config, inter), "true", "",
     "ranks of what it comes after are preferred"},
    {"cache", WEFT_KEY_I64, offsetof(weft_cascade_config, cache), "1GiB", "bytes",
     "of programs by module, size and degree that stay; the least recently used goes", .min = 0,
     .max = 9e18},
};
const weft_section weft_cascade_section = {
    "cascades",
    "samples of different sizes, each with its encoders and the transformer on groups of ranks of "
    "its own size, all of a step at once: a stage's `accumulate` batches are the samples of an "
    "iteration",
    sizeof(weft_cascade_config),
    cascade_keys,
    WEFT_COUNT(cascade_keys),
    .single = "plan"};

weft_cascade_plans weft_cascades_planned(const weft_cascade_config *c)
{
    return !strcmp(c->plan, "none") || !c->plan[0] ? WEFT_CASCADES_NONE
           : !strcmp(c->plan, "every-iteration")   ? WEFT_CASCADES_EVERY
           : !strcmp(c->plan, "static")            ? WEFT_CASCADES_STATIC
                                                   : WEFT_CASCADES_FILE;
}

/* A word that is no file was meant to be one of the others. */
static weft_status check_plan(const weft_cascade_config *c, const char *path)
{
    static const char *const words[] = {"every-iteration", "static", "none"};
    if (weft_cascades_planned(c) != WEFT_CASCADES_FILE || weft_path_exists(c->plan))
        return WEFT_OK;
    const char *near = weft_nearest_name(c->plan, words, WEFT_COUNT(words));
    if (near)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: parallel.cascades.plan: '%s' is neither every-iteration, static nor a "
            "file that is there; did you mean %s?",
            path, c->plan, near);
    return weft_fail(WEFT_E_CONFIG,
                     "%s: parallel.cascades.plan: '%s' is neither every-iteration, static nor a "
                     "file that is there",
                     path, c->plan);
}

/* Cascades decide what these would. */
static weft_status check_beside(const weft_parallel *p, const char *path)
{
    weft_parallel rest = *p;
    rest.zero = weft_parallel_default.zero;
    rest.context = weft_parallel_default.context;
    const char *given = p->plan[0] ? "plan" : weft_parallel_given(&rest);
    if (given)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.%s: with parallel.cascades each sample has a group of its "
                         "own degree; leave %s out (zero and context may stay)",
                         path, given, given);
    if (p->context.ulysses || p->context.ring)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.context: degrees are the cascades' own; give ulysses, ring "
                         "or auto alone",
                         path);
    return WEFT_OK;
}

static bool equal_groups(const weft_cascade_config *c)
{
    return c->policy == WEFT_POLICY_STATIC || c->policy == WEFT_POLICY_ULYSSES ||
           c->policy == WEFT_POLICY_KNAPFORMER;
}

/* The policy can have groups of it. */
static bool usable(const weft_cascade_config *c, int64_t degree, int ranks)
{
    return degree <= ranks && (c->policy != WEFT_POLICY_FLEXSP || (degree & (degree - 1)) == 0) &&
           (!equal_groups(c) || ranks % degree == 0);
}

weft_status weft_cascades_check(const weft_cascade_config *c, const weft_parallel *parallel,
                                int ranks, const char *path)
{
    if (weft_cascades_planned(c) == WEFT_CASCADES_NONE) {
        if (c->degrees.count || c->policy || c->degree || c->accumulation || c->unfit ||
            c->memory || c->dispatch || c->objective)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: parallel.cascades: nothing is planned without plan; write "
                             "cascades: {plan: every-iteration, ...}",
                             path);
        return WEFT_OK;
    }
    WEFT_TRY(check_plan(c, path));
    WEFT_TRY(check_beside(parallel, path));
    if (c->accumulation == WEFT_ACCUMULATE_REPRESENTATIVE && parallel->zero)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: parallel.cascades.accumulation: representatives hand the whole sum to "
            "every rank, and zero: %lld keeps parts of it; give accumulation: own, or "
            "zero: 0",
            path, (long long)parallel->zero);
    if (c->accumulation == WEFT_ACCUMULATE_REPRESENTATIVE && c->dispatch == WEFT_DISPATCH_LATE)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades.dispatch: late cannot be combined with "
                         "accumulation: representative, which needs all groups in advance. Use "
                         "accumulation: own.",
                         path);
    if (c->objective == WEFT_OBJECTIVE_EXPECTED && c->policy != WEFT_POLICY_ARACHNE)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades.objective: %s plans by its own rule. Remove "
                         "objective, or use policy: arachne.",
                         path, weft_policy_names[c->policy]);
    if (c->degree && !equal_groups(c))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades.degree: %s has no equal groups; give degrees, or "
                         "leave it out",
                         path, weft_policy_names[c->policy]);
    if (ranks && c->degree && ranks % c->degree)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades.degree: groups of %lld do not make %d ranks", path,
                         (long long)c->degree, ranks);
    bool any = c->degrees.count == 0, there = any || !c->degree;
    for (int64_t i = 0; i < c->degrees.count; i++) {
        any |= ranks == 0 || usable(c, c->degrees.item[i], ranks);
        there |= c->degrees.item[i] == c->degree;
        for (int64_t k = 0; k < i; k++)
            if (c->degrees.item[k] == c->degrees.item[i])
                return weft_fail(WEFT_E_CONFIG,
                                 "%s: parallel.cascades.degrees: %lld stands there twice", path,
                                 (long long)c->degrees.item[i]);
    }
    if (!there)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades.degree: %lld is not among the degrees; leave one "
                         "of the two keys out",
                         path, (long long)c->degree);
    if (!any)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades.degrees: none is within the %d ranks that run%s; "
                         "add smaller ones, or start more (mpirun -n)",
                         path, ranks,
                         c->policy == WEFT_POLICY_FLEXSP ? " and a power of two, as flexsp has them"
                         : equal_groups(c)               ? " and divides them into equal groups"
                                                         : "");
    return WEFT_OK;
}
