#include "comm/coll_plans.h"

#include "comm/coll_algorithms.h"
#include "comm/comm_internal.h"
#include "comm/comm_request.h"

#include <string.h>
#include <xxhash.h>

enum { KEY = 24, LISTS = 256 };

typedef struct key {
    int64_t field[KEY];
} key;

/* Values of one key by member. */
typedef struct entry {
    key key;
    void **of; /* [ranks]; NULL: not made yet */
    struct entry *next;
} entry;

typedef struct table {
    entry *list[LISTS];
} table;

struct weft_coll_plans {
    pthread_mutex_t mutex;
    weft_arena *arena; /* entries, plans and schedules; the steps of schedules are on the heap */
    table plans, schedules, choices;
    weft_coll_plans_made made;
};

weft_coll_plans *weft_coll_plans_create(void)
{
    weft_coll_plans *p = weft_alloc(sizeof *p);
    if (!p)
        return NULL;
    p->arena = weft_arena_create();
    if (!p->arena) {
        weft_free(p);
        return NULL;
    }
    pthread_mutex_init(&p->mutex, NULL);
    return p;
}

void weft_coll_plans_free(weft_coll_plans *p)
{
    if (!p)
        return;
    for (int l = 0; l < LISTS; l++)
        for (entry *e = p->schedules.list[l]; e; e = e->next)
            for (int64_t r = 0; r < e->key.field[0]; r++)
                if (e->of[r])
                    weft_coll_schedule_free(e->of[r]);
    pthread_mutex_destroy(&p->mutex);
    weft_arena_free(p->arena);
    weft_free(p);
}

/* Finds or adds the entry of `k`, whose first field is the number of its values. */
static weft_status find(weft_coll_plans *p, table *t, const key *k, entry **out)
{
    entry **list = &t->list[XXH64(k, sizeof *k, 0) % LISTS];
    for (entry *e = *list; e; e = e->next)
        if (memcmp(&e->key, k, sizeof *k) == 0) {
            *out = e;
            return WEFT_OK;
        }
    entry *e = weft_arena_alloc(p->arena, sizeof *e);
    void **of = e ? weft_arena_calloc(p->arena, k->field[0], sizeof *of) : NULL;
    WEFT_TRY(WEFT_ALLOCATED(of, "the plans of collectives"));
    *e = (entry){.key = *k, .of = of, .next = *list};
    *list = e;
    *out = e;
    return WEFT_OK;
}

/* ---- schedules and plans --------------------------------------------------------------------- */

/* Only the hierarchical algorithm depends on the nodes. */
static key schedule_key(const weft_comm_request *x)
{
    const bool nodes = x->algorithm == WEFT_ALGORITHM_HIERARCHICAL;
    return (key){{x->spec.ranks, x->algorithm, x->spec.op, x->spec.argument,
                  nodes ? x->span.nodes : 0, nodes ? x->span.per_node : 0}};
}

static weft_status find_schedule(weft_coll_plans *p, const weft_comm_request *x,
                                 const weft_coll_schedule **out)
{
    const key k = schedule_key(x);
    entry *e;
    WEFT_TRY(find(p, &p->schedules, &k, &e));
    void **at = &e->of[x->spec.own];
    if (!*at) {
        weft_coll_schedule *s = weft_arena_alloc(p->arena, sizeof *s);
        WEFT_TRY(WEFT_ALLOCATED(s, "the plans of collectives"));
        WEFT_TRY(weft_coll_schedule_make(x->algorithm, x->spec.op, &x->span, x->spec.own,
                                         x->spec.argument, s));
        p->made.schedules++;
        *at = s;
    }
    *out = *at;
    return WEFT_OK;
}

/* A tensor of one chunk follows from the other tensor, unless both have one chunk. */
static key plan_key(const weft_comm_request *x)
{
    const weft_comm_spec *s = &x->spec;
    const bool alone = s->in.at >= 0 && s->out.at >= 0;
    return (key){{s->ranks, x->algorithm, s->op, s->argument, x->span.nodes, x->span.per_node,
                  s->dtype, s->flat, s->count, s->bytes, x->cut, s->in.length, s->in.outer,
                  s->in.inner, s->out.length, s->out.outer, s->out.inner, alone ? s->in.one.row : 0,
                  alone ? s->out.one.row : 0}};
}

static weft_status find_plan(weft_coll_plans *p, const weft_comm_request *x,
                             const weft_coll_plan **out)
{
    const key k = plan_key(x);
    const weft_coll_schedule *schedule;
    entry *e;
    WEFT_TRY(find(p, &p->plans, &k, &e));
    void **at = &e->of[x->spec.own];
    if (!*at) {
        weft_coll_plan *plan = weft_arena_alloc(p->arena, sizeof *plan);
        WEFT_TRY(WEFT_ALLOCATED(plan, "the plans of collectives"));
        WEFT_TRY(find_schedule(p, x, &schedule));
        weft_coll_plan_lay_out(x, schedule, plan);
        p->made.plans++;
        *at = plan;
    }
    *out = *at;
    return WEFT_OK;
}

weft_status weft_coll_plans_find(weft_coll_plans *p, const weft_comm_request *x,
                                 const weft_coll_plan **plan)
{
    pthread_mutex_lock(&p->mutex);
    const weft_status_code status = find_plan(p, x, plan);
    pthread_mutex_unlock(&p->mutex);
    return status;
}

/* ---- choices --------------------------------------------------------------------------------- */

static weft_status choose(weft_coll_plans *p, weft_coll_selection *kind)
{
    const key k = {{1, kind->op, kind->span.ranks, kind->span.nodes, kind->span.per_node,
                    kind->bytes, kind->is_16bit}};
    entry *e;
    WEFT_TRY(find(p, &p->choices, &k, &e));
    weft_coll_selection *known = e->of[0];
    if (!known) {
        known = weft_arena_alloc(p->arena, sizeof *known);
        WEFT_TRY(WEFT_ALLOCATED(known, "the plans of collectives"));
        *known = *kind;
        WEFT_TRY(weft_algorithm_choose(kind->op, &kind->span, kind->bytes, kind->is_16bit,
                                       &weft_link_costs_default, &known->algorithm, NULL));
        p->made.choices++;
        e->of[0] = known;
    }
    kind->algorithm = known->algorithm;
    return WEFT_OK;
}

weft_status weft_coll_plans_choose(weft_coll_plans *p, weft_coll_selection *kind)
{
    pthread_mutex_lock(&p->mutex);
    const weft_status_code status = choose(p, kind);
    pthread_mutex_unlock(&p->mutex);
    return status;
}

weft_coll_plans_made weft_coll_plans_count(weft_coll_plans *p)
{
    pthread_mutex_lock(&p->mutex);
    const weft_coll_plans_made made = p->made;
    pthread_mutex_unlock(&p->mutex);
    return made;
}
