#include "train/cascade_grads.h"

#include <string.h>

/* Sets of the search that are looked at; far more than groups of a plan ask for. */
static const int64_t most_sets = 1 << 20;

typedef struct search {
    const weft_placed_iteration *plan;
    int ranks;
    int32_t *dit; /* cascades that train */
    int count;
    int *times;  /* [count] chosen ranks of each */
    int *weight; /* [ranks] cascades that a rank is in */
    bool *now, *best;
    int size, best_size;
    int64_t sets;
} search;

static bool is_in(const weft_placed_cascade *c, int rank)
{
    for (int64_t i = 0; i < c->at.degree; i++)
        if (c->at.device[i] == rank)
            return true;
    return false;
}

static void choose(search *s, int rank, int by)
{
    s->now[rank] = by > 0;
    s->size += by;
    for (int i = 0; i < s->count; i++)
        if (is_in(&s->plan->cascade[s->dit[i]], rank))
            s->times[i] += by;
}

/* The cascade without a chosen rank that has the fewest to choose from; -1: all have one. */
static int narrowest(const search *s, int *left)
{
    int at = -1;
    *left = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->times[i])
            continue;
        (*left)++;
        if (at < 0 ||
            s->plan->cascade[s->dit[i]].at.degree < s->plan->cascade[s->dit[at]].at.degree)
            at = i;
    }
    return at;
}

/* Every way to choose one more rank, those that are in many cascades first, as long as that can
 * still be better than the best so far. */
static void look(search *s)
{
    int left;
    const int at = narrowest(s, &left);
    if (at < 0) {
        if (s->size < s->best_size) {
            s->best_size = s->size;
            memcpy(s->best, s->now, (size_t)s->ranks);
        }
        return;
    }
    int widest = 1;
    for (int r = 0; r < s->ranks; r++)
        widest = s->weight[r] > widest ? s->weight[r] : widest;
    if (s->size + (left + widest - 1) / widest >= s->best_size || ++s->sets > most_sets)
        return;
    const weft_placed_cascade *c = &s->plan->cascade[s->dit[at]];
    for (int weight = widest; weight > 0; weight--)
        for (int64_t i = 0; i < c->at.degree; i++) {
            const int rank = c->at.device[i];
            if (s->weight[rank] != weight)
                continue;
            choose(s, rank, 1);
            look(s);
            choose(s, rank, -1);
        }
}

/* A chosen rank of a cascade that both are in, else the first. */
static int peer_of(const search *s, const weft_cover *cover, int rank)
{
    for (int i = 0; i < s->count; i++) {
        const weft_placed_cascade *c = &s->plan->cascade[s->dit[i]];
        for (int64_t k = 0; k < c->at.degree && is_in(c, rank); k++)
            if (cover->chosen[c->at.device[k]])
                return c->at.device[k];
    }
    int first = 0;
    while (first < s->ranks - 1 && !cover->chosen[first])
        first++;
    return first;
}

weft_status weft_cover_find(const weft_placed_iteration *plan, int ranks, weft_cover *out)
{
    search s = {.plan = plan, .ranks = ranks, .best_size = ranks + 1};
    weft_cover cover = {.ranks = ranks};
    s.dit = weft_alloc((plan->cascades + 1) * (int64_t)sizeof *s.dit);
    s.times = weft_alloc((plan->cascades + 1) * (int64_t)sizeof *s.times);
    s.weight = weft_alloc(ranks * (int64_t)sizeof *s.weight);
    s.now = weft_alloc(ranks);
    s.best = cover.chosen = weft_alloc(ranks);
    cover.peer = weft_alloc(ranks * (int64_t)sizeof *cover.peer);
    weft_status_code status = WEFT_OK;
    if (!s.dit || !s.times || !s.weight || !s.now || !s.best || !cover.peer) {
        weft_cover_free(&cover);
        status = weft_fail(WEFT_E_MEMORY, "out of memory for %d ranks' gradients", ranks);
        goto out;
    }
    for (int32_t i = 0; i < plan->cascades; i++) {
        if (plan->cascade[i].module != WEFT_CASCADE_DIT)
            continue;
        s.dit[s.count++] = i;
        for (int64_t k = 0; k < plan->cascade[i].at.degree; k++)
            s.weight[plan->cascade[i].at.device[k]]++;
    }
    look(&s);
    cover.count = s.best_size;
    cover.smallest = s.sets <= most_sets;
    for (int r = 0; r < ranks; r++)
        cover.peer[r] = cover.chosen[r] ? r : peer_of(&s, &cover, r);
    *out = cover;
out:
    weft_free(s.dit);
    weft_free(s.times);
    weft_free(s.weight);
    weft_free(s.now);
    return status;
}

void weft_cover_free(weft_cover *cover)
{
    weft_free(cover->chosen);
    weft_free(cover->peer);
    *cover = (weft_cover){0};
}

int weft_cover_group(const weft_cover *cover, const weft_placed_iteration *plan, int32_t index,
                     int *list)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    int count = 0;
    for (int64_t i = 0; i < c->at.degree && !count; i++)
        if (cover->chosen[c->at.device[i]])
            list[count++] = c->at.device[i];
    for (int64_t i = 0; i < c->at.degree; i++)
        if (!cover->chosen[c->at.device[i]])
            list[count++] = c->at.device[i];
    return count;
}
