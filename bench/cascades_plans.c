#include "cascades_plans.h"

#include "base/log.h"
#include "estimate/plan_models.h"
#include "model/family.h"
#include "plan/cascade/baselines.h"
#include "plan/cascade/genetic.h"

#include <math.h>
#include <string.h>

/* ---- the profile ---------------------------------------------------------------------------- */

static weft_cascade_module module_of(const char *id)
{
    const char *module = strchr(id, '.') + 1;
    return !strcmp(module, "dit")   ? WEFT_CASCADE_DIT
           : !strcmp(module, "vae") ? WEFT_CASCADE_VAE
                                    : WEFT_CASCADE_TEXT;
}

int bucket_of(const weft_plan_bucket *b)
{
    for (int i = 0; i < all.buckets; i++)
        if (all.size[i].frames == b->frames && all.size[i].height == b->height &&
            all.size[i].batch == b->batch)
            return i;
    return -1;
}

static weft_status tell(void *user, weft_cascade_module module, int bucket, int degree,
                        weft_cascade_estimate *out)
{
    const struct prices_of *by = user;
    *out = (weft_cascade_estimate){.seconds = by->told[module][bucket][degree]};
    return WEFT_OK;
}

/* One sample's cascade alone, where the mapper would put it: on the first node, or as evenly as can
 * be on the fewest. */
static void profile(planner *p, weft_sp_method method, weft_cascade_module module, int bucket,
                    int degree)
{
    int32_t ranks[MOST_RANKS];
    weft_placed_sample sample = {.bucket = bucket, .clips = all.size[bucket].batch, .weight = 1};
    weft_placed_cascade cascade = {
        .at = {.id = "s0", .device = ranks, .degree = degree, .seconds = 1},
        .module = module,
        .method = module == WEFT_CASCADE_DIT ? method : WEFT_SP_NONE};
    weft_placed_iteration plan = {
        .sample = &sample, .samples = 1, .cascade = &cascade, .cascades = 1, .makespan = 1};
    const int each = (int)all.cluster.devices, nodes = (degree + each - 1) / each;
    for (int n = 0, r = 0; n < nodes; n++)
        for (int i = 0; i < degree / nodes + (n < degree % nodes); i++)
            ranks[r++] = n * each + i;
    struct prices_of *by = &p->by[method];
    weft_cascade_fit fit;
    if (by->known[module][bucket][degree])
        return;
    by->known[module][bucket][degree] = true;
    const executed e = execute(&plan);
    check(weft_cascade_cost_table_record(by->prices, &plan, &e.makespan, NULL, &fit));
    cascade.at.seconds = plan.makespan = e.makespan;
    if (module != WEFT_CASCADE_DIT)
        return;
    p->sums = fmin(p->sums, weft_placed_reductions_during(&plan) + e.exposed);
    p->last_sum = fmin(p->last_sum, e.exposed);
}

bool held_out(const planner *p, int bucket, int degree)
{
    return p->hold && (degree == 3 || degree == 6 || degree == 12 || bucket % 4 == 3);
}

static bool profiled(int64_t degree)
{
    return degree <= 4 || degree == 6 || degree == 8 || degree == 12 || degree == 24 ||
           (degree % 8 == 0 && (degree & (degree - 1)) == 0);
}

/* True for an option whose degree is profiled or held out, and which fits. */
static bool in_table(const weft_cascade_option *o)
{
    return profiled(o->degree) && o->degree <= all.ranks &&
           o->bytes <= (double)all.cluster.device.memory;
}

/* A caption's encoder has one degree and one shape, which are not held out. */
static bool is_profiled(const planner *p, weft_cascade_module module, int bucket, int degree)
{
    return module == WEFT_CASCADE_TEXT || !held_out(p, bucket, degree);
}

/* Seconds per pixel of the autoencoder, any number: prices are fitted to the profile, because its
 * tiles differ from the closed forms. */
static const double PIXELS_TAKE = 1e-8;

void make_list(planner *p, const weft_workload *w, weft_sp_method method, weft_arena *arena,
               weft_cascade_list *list)
{
    struct prices_of *by = &p->by[method];
    double bytes;
    memset(all.factor, 0, sizeof all.factor);
    all.slow = -1;
    p->costs.method = method;
    check(weft_workload_cascades(&p->costs, w, arena, list));
    const int64_t modules = list->count / w->count;
    for (int64_t c = 0; c < list->count; c++)
        for (int32_t o = 0; o < list->item[c].option_count; o++) {
            const weft_cascade_option *one = &list->item[c].option[o];
            const weft_cascade_module module = module_of(list->item[c].id);
            const int b = bucket_of(&w->bucket[c / modules]), k = (int)one->degree;
            if (!in_table(one))
                continue;
            by->told[module][b][k] = module == WEFT_CASCADE_VAE
                                         ? PIXELS_TAKE * tile_pixels(b, k) / FOLD
                                         : one->seconds / FOLD;
            if (is_profiled(p, module, b, k))
                profile(p, method, module, b, k);
        }
    for (int64_t c = 0; c < list->count; c++) {
        weft_cascade *item = &list->item[c];
        int32_t kept = 0;
        for (int32_t o = 0; o < item->option_count; o++) {
            weft_cascade_option one = item->option[o];
            if (!in_table(&one))
                continue;
            check(weft_cascade_cost_table_get(by->prices, module_of(item->id),
                                              bucket_of(&w->bucket[c / modules]), (int)one.degree,
                                              &one.seconds, &bytes));
            item->option[kept++] = one;
        }
        item->option_count = kept;
    }
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* Megatron's context parallelism is a ring, where the model knows it; the others exchange heads. */
weft_sp_method method_of(int policy)
{
    const bool ring =
        weft_recipe_list_find(all.denoiser.family->recipe, all.denoiser.family->recipes, "ring");
    return policy == WEFT_POLICY_STATIC && ring ? WEFT_SP_RING : WEFT_SP_ULYSSES;
}

void place(const weft_placement *p, const weft_cascade_list *list, const weft_workload *w,
           weft_sp_method method, weft_arena *arena, weft_placed_iteration *out)
{
    const int64_t modules = list->count / w->count;
    *out = (weft_placed_iteration){
        .samples = w->count, .cascades = list->count, .makespan = p->makespan};
    out->sample = weft_arena_alloc(arena, w->count * (int64_t)sizeof *out->sample);
    out->cascade = weft_arena_alloc(arena, list->count * (int64_t)sizeof *out->cascade);
    for (int64_t s = 0; s < w->count; s++)
        out->sample[s] = (weft_placed_sample){.bucket = bucket_of(&w->bucket[s]),
                                              .clips = w->bucket[s].batch,
                                              .weight = 1.0 / (double)w->count};
    for (int64_t c = 0; c < list->count; c++) {
        const weft_cascade *item = &list->item[c];
        const weft_cascade_module module = module_of(item->id);
        out->cascade[c] =
            (weft_placed_cascade){.at = {.id = item->id,
                                         .device = p->devices + p->first[c],
                                         .degree = p->first[c + 1] - p->first[c],
                                         .start = p->start[c],
                                         .seconds = item->option[p->option[c]].seconds,
                                         .after = item->after,
                                         .after_count = item->after_count},
                                  .sample = (int32_t)(c / modules),
                                  .module = module,
                                  .method = module == WEFT_CASCADE_DIT ? method : WEFT_SP_NONE};
    }
    check(weft_placed_check(out, all.ranks, "bench"));
}

static void by_search(const weft_cascade_list *list, uint64_t seed, weft_arena *arena,
                      weft_placement *out, double *bound)
{
    const weft_cascade_search search = {.seed = seed, .threads = 1};
    const weft_assign_options options = {true, true};
    weft_cascade_problem problem;
    weft_cascade_result result;
    int32_t *first, *devices;
    check(
        weft_cascade_problem_create(list, all.ranks, (double)all.cluster.device.memory, &problem));
    problem.per_node = all.cluster.nodes > 1 ? all.cluster.devices : 0;
    problem.by_producers = options.inter;
    check(weft_cascade_solve(&problem, &search, arena, &result));
    check(weft_assign(&problem, &result.schedule, &all.cluster, options, arena, &first, &devices));
    check(weft_placement_of(&problem, &result.schedule, first, devices, arena, out));
    *bound = result.bound.value;
    weft_cascade_problem_free(&problem);
}

int64_t best_degree(weft_policy policy, planner *p, const weft_workload *stage, int64_t samples,
                    int iterations)
{
    int64_t best = 0;
    double least = INFINITY;
    for (int64_t k = 1; k <= all.ranks; k++) {
        double sum = 0;
        if (all.ranks % k || !profiled(k) || (policy != WEFT_POLICY_STATIC && 24 % k))
            continue;
        for (int i = 0; i < iterations && isfinite(sum); i++) {
            weft_arena *arena = weft_arena_create();
            weft_workload w;
            weft_cascade_list list;
            weft_policy_request request;
            weft_placement placed;
            check(weft_workload_draw(arena, stage, samples, 1 + (uint64_t)i, &w));
            make_list(p, &w, method_of(policy), arena, &list);
            check(weft_workload_request(&p->costs, &w, &list, arena, &request));
            request.degree = k;
            sum += weft_policy_place(policy, &request, arena, &placed) == WEFT_OK
                       ? placed.makespan
                       : (double)INFINITY;
            weft_arena_free(arena);
        }
        if (sum < least) {
            least = sum;
            best = k;
        }
    }
    return best;
}

void plan_one(planner *p, const weft_workload *w, int policy, uint64_t seed, int64_t degree,
              weft_arena *arena, made *m)
{
    weft_cascade_list list;
    weft_policy_request request;
    const weft_sp_method method = method_of(policy);
    make_list(p, w, method, arena, &list);
    check(weft_workload_request(&p->costs, w, &list, arena, &request));
    const double began = weft_now();
    request.degree = degree;
    m->there = true;
    if (policy == WEFT_POLICY_ARACHNE)
        by_search(&list, seed, arena, &m->placed, &m->bound);
    else
        m->there = weft_policy_place((weft_policy)policy, &request, arena, &m->placed) == WEFT_OK;
    m->planning = weft_now() - began;
    if (m->there)
        place(&m->placed, &list, w, method, arena, &m->plan);
}

/* ---- begin and end -------------------------------------------------------------------------- */

void planner_begin(planner *p, weft_workload *stage, bool hold)
{
    p->hold = hold;
    p->sums = p->last_sum = INFINITY;
    check(weft_plan_model_work(p->arena, "hunyuanvideo-13b", stage, &all.cluster.device, &p->work));
    p->costs = (weft_cascade_costs){.cluster = &all.cluster,
                                    .model = &p->work,
                                    .zero = 3,
                                    .text = true,
                                    .method = WEFT_SP_ULYSSES};
    for (int m = 0; m < METHODS; m++) {
        const weft_cascade_facts facts = {
            .buckets = all.buckets, .ranks = all.ranks, .user = &p->by[m], .estimate = tell};
        check(weft_cascade_cost_table_create(&facts, &p->by[m].prices));
    }
}

void planner_end(planner *p)
{
    for (int m = 0; m < METHODS; m++)
        weft_cascade_cost_table_free(p->by[m].prices);
    weft_arena_free(p->arena);
}
