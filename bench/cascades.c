/* Iterations of cascades executed on simulated clocks, compared with their plans. The model is
 * HunyuanVideo 13B on H100 nodes with Arachne's three stages. weft's plans and the plans of four
 * baselines run through the same executor (docs/explanation/cascades.md).
 *
 *     bench/cascades [NODES [STAGE [ITERATIONS [LINKS [POLICIES [PLANS]]]]]]
 *
 * LINKS: "fast" (NVLink, 400 Gbit/s a rank) or "slow" (10 Gbit/s); POLICIES: "all", "weft",
 * "robust" or "robust-played"; PLANS: tried by a search under price errors, as in a run by default.
 *
 * "robust" compares plans under price errors. Every cascade takes 1 to 1 + JITTER times its
 * seconds, the same for all policies, in draws that share this range evenly. In one case a rank
 * needs 1.5 times its seconds.
 * weft's plans are executed as planned, and as plans of shortest expected time with late dispatch.
 * The latter see the errors of their own earlier iterations only, of all draws before.
 * Degrees 3, 6 and 12 and every fourth shape are held out: the others determine their prices, as in
 * `weft train`. weft encodes samples in the step or one iteration ahead; the other policies encode
 * in the step.
 *
 * "robust-played" plays the same plans by the simulation of the planner, with a complete record of
 * errors and with more draws.
 *
 * Each rank is a thread with a device and a clock of its own. Programs, groups, transfers and
 * collectives are the ones of a run, and messages advance the clocks. The transformer has a tenth
 * of its blocks (2 double, 4 single of 20 and 40), so graphs compile in a tenth of the time.
 * The autoencoder (in its own tiles, shared among the ranks of a cascade) and the caption encoder
 * run complete, with a tenth of their kernels' seconds. Every module is profiled first: every size
 * and degree once, alone. Transferred bytes are a tenth, too.
 *
 * The bench prints means over the iterations in simulated seconds, multiplied by ten for the whole
 * model: executed and planned makespans with their deviation, idle shares, and the executor's own
 * time. The latter is processor time of the busiest rank, as a share of the simulated iteration.
 * Gradient reductions are profiled like a cascade. Their planned and executed ends after the last
 * cascade are printed. */
#include "cascades_errors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- iterations ----------------------------------------------------------------------------- */

typedef struct tally {
    double planned, executed, idle_planned, idle, off, worst, own, running, taking, exposed,
        exposed_planned, planning, bound;
    int done;
} tally;

static void note(tally *t, const weft_placement *p, const executed *e, double behind,
                 double planning)
{
    const double off = e->makespan / p->makespan - 1;
    t->planned += p->makespan;
    t->executed += e->makespan;
    t->idle_planned += p->idle;
    t->idle += e->idle;
    t->off += off;
    t->worst = fabs(off) > fabs(t->worst) ? off : t->worst;
    t->own += e->own;
    t->running += e->running;
    t->taking += e->taking;
    t->exposed += e->exposed;
    t->exposed_planned += behind;
    t->planning += planning;
    t->done++;
}

/* The cascades of an iteration that is further off than it may be. */
static void explain(const weft_placed_iteration *plan)
{
    for (int64_t c = 0; c < plan->cascades; c++) {
        const weft_assigned *at = &plan->cascade[c].at;
        const double end = end_of(plan, c), seconds = seconds_of(plan, c);
        fprintf(stderr, "%-9s bucket %2d planned %8.4f + %7.4f executed %8.4f + %7.4f on", at->id,
                plan->sample[plan->cascade[c].sample].bucket, at->start, at->seconds, end - seconds,
                seconds);
        for (int64_t i = 0; i < at->degree; i++)
            fprintf(stderr, " %d", at->device[i]);
        fprintf(stderr, "\n");
    }
}

/* Executes the plans of all policies. Plans that compiled programs are executed a second time,
 * because a run has compiled its programs after some iterations. */
static void iteration(planner *p, const weft_workload *stage, int64_t samples, uint64_t seed,
                      const int64_t *degree, const bool *wanted, tally *t)
{
    weft_arena *arena = weft_arena_create();
    weft_workload w;
    static made m[WEFT_POLICY_COUNT];
    check(weft_workload_draw(arena, stage, samples, seed, &w));
    memset(m, 0, sizeof m);
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        if (wanted[policy])
            plan_one(p, &w, policy, seed, degree[policy], arena, &m[policy]);
        if (m[policy].there)
            m[policy].as = execute(&m[policy].plan);
    }
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        made *one = &m[policy];
        if (!one->there)
            continue;
        if (one->as.made)
            one->as = execute(&one->plan);
        if (fabs(one->as.makespan / one->placed.makespan - 1) > 0.05)
            explain(&one->plan);
        t[policy].bound += one->bound;
        note(&t[policy], &one->placed, &one->as,
             weft_placed_reductions_after(&one->plan, p->sums, p->last_sum), one->planning);
    }
    weft_arena_free(arena);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void print(const char *stage, const char *links, const tally *t, const int64_t *degree)
{
    printf(
        "machine: simulated H100 cluster\n| ranks | stage | links | encoders | policy | degree | "
        "planned s | executed s | mean deviation %% | worst deviation %% | idle planned %% | "
        "idle %% | own time %% | reductions planned s | reductions s | "
        "over the lower bound %% |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        const tally *x = &t[policy];
        const double n = x->done;
        if (!x->done)
            continue;
        printf("| %d | %s | %s | executed | %s | %" PRId64
               " | %.3f | %.3f | %.2f | %.2f | %.1f | %.1f | %.3f | %.3f | %.3f | ",
               all.ranks, stage, links, weft_policy_names[policy], degree[policy],
               FOLD * x->planned / n, FOLD * x->executed / n, 100 * x->off / n, 100 * x->worst,
               100 * x->idle_planned / n, 100 * x->idle / n, 100 * x->own / x->executed,
               FOLD * x->exposed_planned / n, FOLD * x->exposed / n);
        if (x->bound > 0)
            printf("%.2f |\n", 100 * (x->planned / x->bound - 1));
        else
            printf("- |\n");
    }
    printf("\nweft's own time: %.3f %% launching, %.3f %% fetching programs, %.3f %% "
           "bookkeeping\n",
           100 * t[0].running / t[0].executed, 100 * t[0].taking / t[0].executed,
           100 * (t[0].own - t[0].running - t[0].taking) / t[0].executed);
    printf("weft's planning: %.3f s during the previous iteration (%.2f %% of one)\n\n",
           t[0].planning / t[0].done, 100 * t[0].planning / (FOLD * t[0].executed));
}

int main(int argc, char **argv)
{
    static planner p;
    weft_workload stage;
    tally t[WEFT_POLICY_COUNT] = {{0}};
    int64_t degree[WEFT_POLICY_COUNT] = {0};
    const int nodes = argc > 1 ? atoi(argv[1]) : 2, iterations = argc > 3 ? atoi(argv[3]) : 20;
    const char *name = argc > 2 ? argv[2] : "720p", *links = argc > 4 ? argv[4] : "fast";
    const bool only = argc > 5 && !strcmp(argv[5], "weft"),
               played = argc > 5 && !strcmp(argv[5], "robust-played"),
               robust = played || (argc > 5 && !strcmp(argv[5], "robust"));
    bool wanted[WEFT_POLICY_COUNT];
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++)
        wanted[policy] = !only || policy == WEFT_POLICY_ARACHNE;
    if (nodes < 1 || nodes > MOST_RANKS / 8 || iterations < 1 || iterations > MOST_ITERATIONS) {
        fprintf(stderr,
                "bench/cascades [NODES [STAGE [ITERATIONS [fast|slow "
                "[all|weft|robust|robust-played [PLANS]]]]]], up to %d nodes, %d iterations\n",
                MOST_RANKS / 8, MOST_ITERATIONS);
        return 1;
    }
    p.arena = weft_arena_create();
    check(weft_workload_stage(p.arena, name, &stage));
    ranks_begin(p.arena, nodes, !strcmp(links, "slow"), &stage);
    planner_begin(&p, &stage, robust);
    const int64_t samples = all.ranks / 4;
    static const weft_policy equal[] = {WEFT_POLICY_STATIC, WEFT_POLICY_ULYSSES,
                                        WEFT_POLICY_KNAPFORMER};
    for (size_t i = 0; i < WEFT_COUNT(equal) && !only; i++)
        degree[equal[i]] =
            best_degree(equal[i], &p, &stage, samples, iterations < 5 ? iterations : 5);
    for (int i = 0; i < iterations && !robust; i++)
        iteration(&p, &stage, samples, 1 + (uint64_t)i, degree, wanted, t);
    printf("%s on %d ranks, %" PRId64 " samples, %d iterations, links %s\n", name, all.ranks,
           samples, iterations, links);
    if (robust)
        compare_errors(&p, &(errors_setup){name, &stage, samples, iterations, degree, played,
                                           argc > 6 ? atoi(argv[6]) : 0});
    else
        print(name, links, t, degree);
    ranks_end();
    planner_end(&p);
    return 0;
}
