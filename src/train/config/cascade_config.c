#include "train/config/cascade_config.h"

#include "base/fs.h"
#include "base/location.h"

#include <string.h>

static const int64_t DEFAULT_CACHE = (int64_t)1 << 30; /* program_cache: 1GiB */

static const char *const accumulation_names[] = {"own", "representative", NULL};
static const char *const unfit_names[] = {"refuse", "skip", NULL};
static const char *const dispatch_names[] = {"planned", "late", "search", NULL};
static const char *const objective_names[] = {"makespan", "expected", NULL};
static const char *const encoder_names[] = {"in-step", "ahead", NULL};
static const char *const weight_names[] = {"elements", "samples", NULL};

static const weft_key cascade_keys[] = {
    {"plan", WEFT_KEY_STRING, offsetof(weft_cascade_config, plan), "none", "",
     "when to plan; every-iteration: during the previous one. static: one plan for each "
     "list of sizes. FILE: replay <out>/cascades/plans.jsonl of a run. none: no cascades, "
     "the other keys set the layout"},
    {"degrees", WEFT_KEY_I64_LIST, offsetof(weft_cascade_config, degrees), "[]", "ranks",
     "degrees that a cascade may have, any integers; empty: 1 to the number of ranks", .min = 1,
     .max = 65536},
    {"policy", WEFT_KEY_ENUM, offsetof(weft_cascade_config, policy), "arachne", "",
     "planner; arachne: the search of weft. Rules of other systems: equal groups in turn "
     "(static-dp-cp; ulysses, which divide the heads), groups of powers of two by seconds "
     "(flexsp), equal groups filled by work (knapformer)",
     .choices = weft_policy_names},
    {"degree", WEFT_KEY_I64, offsetof(weft_cascade_config, degree), "0", "ranks",
     "degree of the equal groups of static-dp-cp, ulysses and knapformer; 0: the best for "
     "the first iterations",
     .min = 0, .max = 65536},
    {"memory_limit", WEFT_KEY_I64, offsetof(weft_cascade_config, memory), "0", "bytes",
     "memory limit of a rank for plans, e.g. 20GiB; weights, states and programs, without "
     "checkpoint staging and prefetched clips. 0: the device memory of `cluster`",
     .min = 0, .max = 9e18, .earlier = "memory"},
    {"cluster", WEFT_KEY_STRING, offsetof(weft_cascade_config, cluster), "local", "",
     "machine; local (with <out>/profile.json of `weft profile`, if present), a preset or "
     "a file (`weft topology`)"},
    {"gradient_reduction", WEFT_KEY_ENUM, offsetof(weft_cascade_config, accumulation), "own", "",
     "gradient reduction; own: a rank adds its own gradients, and one all-reduce over all "
     "ranks starts while the last cascades run. representative: groups reduce, then ranks "
     "that cover all samples, then a broadcast",
     .choices = accumulation_names, .earlier = "accumulation"},
    {"loss_weight", WEFT_KEY_ENUM, offsetof(weft_cascade_config, weigh), "elements", "",
     "weight of a sample in the mean loss of a step; elements of its latents, or its clips",
     .choices = weight_names, .earlier = "weigh"},
    {"oversized", WEFT_KEY_ENUM, offsetof(weft_cascade_config, unfit), "refuse", "",
     "action for a sample that fits at no degree; refuse stops the run, skip omits the "
     "sample from its step and reports it",
     .choices = unfit_names, .earlier = "unfit"},
    {"dispatch", WEFT_KEY_ENUM, offsetof(weft_cascade_config, dispatch), "planned", "",
     "ranks of a cascade; the ranks of the plan, idle ranks that rank 0 chooses when the "
     "cascade can start (late), or ranks and order that rank 0 searches again whenever "
     "cascades end (search). plans.jsonl has the executed ranks and replays bitwise",
     .choices = dispatch_names},
    {"objective", WEFT_KEY_ENUM, offsetof(weft_cascade_config, objective), "makespan", "",
     "objective of arachne; predicted makespan, or the mean over iterations with the "
     "measured estimate errors of this run, latent transfer and gradient reduction "
     "(expected)",
     .choices = objective_names},
    {"encoders", WEFT_KEY_ENUM, offsetof(weft_cascade_config, encoders), "in-step", "",
     "iteration that encodes a sample; the one that trains on it, or the one before (ahead), so "
     "that transformers do not wait for encoders. ahead requires data.input: pixels and arachne, "
     "and keeps the latents of a step in host memory",
     .choices = encoder_names},
    {"topology_aware", WEFT_KEY_BOOL, offsetof(weft_cascade_config, inner), "true", "",
     "place the ranks of a cascade by the topology", .earlier = "inner"},
    {"prefer_producers", WEFT_KEY_BOOL, offsetof(weft_cascade_config, inter), "true", "",
     "prefer the ranks that produce a cascade's inputs", .earlier = "inter"},
    {"program_cache", WEFT_KEY_I64, offsetof(weft_cascade_config, cache), "1GiB", "bytes",
     "capacity of the cache of compiled programs by module, size and degree; the least "
     "recently used is removed",
     .min = 0, .max = 9e18, .earlier = "cache"},
};
const weft_section weft_cascade_section = {
    "cascades",
    "samples of different sizes in one step, each on a group of ranks that fits its size; "
    "the batches of `gradient_accumulation_steps` are the samples of an iteration",
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

/* Rejects a plan that is neither a keyword nor an existing file, and suggests a keyword. */
static weft_status check_plan(const weft_cascade_config *c, const char *path)
{
    static const char *const words[] = {"every-iteration", "static", "none"};
    if (weft_cascades_planned(c) != WEFT_CASCADES_FILE || weft_location_is_remote(c->plan) ||
        weft_path_exists(c->plan))
        return WEFT_OK;
    const char *near = weft_nearest_name(c->plan, words, WEFT_COUNT(words));
    if (near)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "parallel.cascades.plan", .value = c->plan),
            "'%s' is not every-iteration, static or an existing file; did you mean %s?", c->plan,
            near);
    return weft_error(WEFT_MSG_CONFIG_VALUE,
                      WEFT_AT(.file = path, .key = "parallel.cascades.plan", .value = c->plan),
                      "'%s' is not every-iteration, static or an existing file", c->plan);
}

/* Rejects keys of `parallel` that conflict with cascades. */
static weft_status check_conflicts(const weft_parallel *p, const char *path)
{
    weft_parallel rest = *p;
    rest.zero = weft_parallel_default.zero;
    rest.context = weft_parallel_default.context;
    const char *set_key = p->plan[0] ? "layout_file" : weft_parallel_is_set(&rest);
    if (set_key)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "parallel.%s", set_key)),
            "with parallel.cascades, each sample has a group with its own degree. Remove %s (zero "
            "and context may stay)",
            set_key);
    if (p->context.ulysses || p->context.ring)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "parallel.context"),
            "cascades choose the degrees themselves; give ulysses, ring or auto without a degree");
    return WEFT_OK;
}

static bool equal_groups(const weft_cascade_config *c)
{
    return c->policy == WEFT_POLICY_STATIC || c->policy == WEFT_POLICY_ULYSSES ||
           c->policy == WEFT_POLICY_KNAPFORMER;
}

/* Whether the policy can form groups of this degree. */
static bool usable(const weft_cascade_config *c, int64_t degree, int ranks)
{
    return degree <= ranks && (c->policy != WEFT_POLICY_FLEXSP || (degree & (degree - 1)) == 0) &&
           (!equal_groups(c) || ranks % degree == 0);
}

/* Rejects keys without a plan, which have no effect. */
static weft_status check_unplanned(const weft_cascade_config *c, const char *path)
{
    const struct {
        const char *name;
        bool set;
    } key[] = {{"degrees", c->degrees.count > 0},
               {"policy", c->policy != 0},
               {"degree", c->degree != 0},
               {"memory_limit", c->memory != 0},
               {"cluster", c->cluster && strcmp(c->cluster, "local") != 0},
               {"gradient_reduction", c->accumulation != 0},
               {"loss_weight", c->weigh != 0},
               {"oversized", c->unfit != 0},
               {"dispatch", c->dispatch != 0},
               {"objective", c->objective != 0},
               {"encoders", c->encoders != 0},
               {"topology_aware", !c->inner},
               {"prefer_producers", !c->inter},
               {"program_cache", c->cache != DEFAULT_CACHE}};
    for (int i = 0; i < WEFT_COUNT(key); i++)
        if (key[i].set)
            return weft_error(
                WEFT_MSG_CONFIG_MISSING_KEY,
                WEFT_AT(.file = path, .key = "parallel.cascades.plan", .value = key[i].name),
                "%s has an effect only with the key plan. Write cascades: {plan: "
                "every-iteration, ...}, or remove %s",
                key[i].name, key[i].name);
    return WEFT_OK;
}

/* Rejects keys of the search of arachne with a policy that plans by its own rule. */
static weft_status check_policy(const weft_cascade_config *c, const char *path)
{
    const char *key = c->objective == WEFT_OBJECTIVE_EXPECTED ? "objective"
                      : c->encoders == WEFT_ENCODERS_AHEAD    ? "encoders"
                      : !c->inner                             ? "topology_aware"
                      : !c->inter                             ? "prefer_producers"
                                                              : NULL;
    if (!key || c->policy == WEFT_POLICY_ARACHNE)
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_CONFIG_NO_EFFECT,
        WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "parallel.cascades.%s", key)),
        "%s plans by its own rule. Remove %s, or use policy: arachne", weft_policy_names[c->policy],
        key);
}

weft_status weft_cascades_check(const weft_cascade_config *c, const weft_parallel *parallel,
                                int ranks, const char *path)
{
    if (weft_cascades_planned(c) == WEFT_CASCADES_NONE)
        return check_unplanned(c, path);
    WEFT_TRY(check_plan(c, path));
    WEFT_TRY(check_conflicts(parallel, path));
    if (c->accumulation == WEFT_ACCUMULATE_REPRESENTATIVE && parallel->zero)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "parallel.cascades.gradient_reduction",
                                  WEFT_NUMBER(parallel->zero)),
                          "with gradient_reduction: representative, every rank receives the "
                          "complete gradient, and zero: %" PRId64
                          " shards it; use gradient_reduction: own, or zero: 0",
                          parallel->zero);
    if (c->accumulation == WEFT_ACCUMULATE_REPRESENTATIVE && weft_cascades_move(c))
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "parallel.cascades.dispatch"),
            "%s cannot be combined with gradient_reduction: representative, which needs "
            "all groups in advance. Use gradient_reduction: own",
            dispatch_names[c->dispatch]);
    WEFT_TRY(check_policy(c, path));
    if (c->degree && !equal_groups(c))
        return weft_error(
            WEFT_MSG_CONFIG_NO_EFFECT,
            WEFT_AT(.file = path, .key = "parallel.cascades.degree", WEFT_NUMBER(c->degree)),
            "the groups of %s are not of equal size; use degrees, or remove degree",
            weft_policy_names[c->policy]);
    if (ranks && c->degree && ranks % c->degree)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "parallel.cascades.degree", WEFT_NUMBER(c->degree)),
            "%d ranks cannot be divided into groups of %" PRId64, ranks, c->degree);
    bool any = c->degrees.count == 0, there = any || !c->degree;
    for (int64_t i = 0; i < c->degrees.count; i++) {
        any |= ranks == 0 || usable(c, c->degrees.item[i], ranks);
        there |= c->degrees.item[i] == c->degree;
        for (int64_t k = 0; k < i; k++)
            if (c->degrees.item[k] == c->degrees.item[i])
                return weft_error(WEFT_MSG_CONFIG_VALUE,
                                  WEFT_AT(.file = path, .key = "parallel.cascades.degrees",
                                          WEFT_NUMBER(c->degrees.item[i])),
                                  "%" PRId64 " occurs twice", c->degrees.item[i]);
    }
    if (!there)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = path, .key = "parallel.cascades.degree", WEFT_NUMBER(c->degree)),
            "%" PRId64 " is not one of degrees; remove one of the two keys", c->degree);
    if (!any)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = path, .key = "parallel.cascades.degrees"),
            "no degree is at most %d, the number of ranks%s; add smaller degrees, or start more "
            "ranks (mpirun -n)",
            ranks,
            c->policy == WEFT_POLICY_FLEXSP ? ", and a power of two, as flexsp requires"
            : equal_groups(c)               ? ", and divides the ranks into equal groups"
                                            : "");
    return WEFT_OK;
}
