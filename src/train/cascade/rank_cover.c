#include "train/cascade/rank_cover.h"

#include <string.h>

/* Limit of visited sets; far more than the groups of a plan need. */
static const int64_t most_sets = 1 << 20;

typedef struct search {
    const weft_placed_iteration *plan;
    int ranks;
    int32_t *dit; /* DiT cascades */
    int count;
    int *times;  /* [count] selected ranks of each cascade */
    int *weight; /* [ranks] DiT cascades of a rank */
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

/* Returns the uncovered cascade of the smallest degree; -1: all are covered. *left: number of
 * uncovered cascades. */
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

/* Tries all ranks of one uncovered cascade, ranks with many cascades first. Prunes sets that cannot
 * be smaller than the best. */
static void branch(search *s)
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
            branch(s);
            choose(s, rank, -1);
        }
}

/* Returns a representative with which `rank` shares a cascade, else the first representative. */
static int peer_of(const search *s, const weft_rank_cover *cover, int rank)
{
    for (int i = 0; i < s->count; i++) {
        const weft_placed_cascade *c = &s->plan->cascade[s->dit[i]];
        for (int64_t k = 0; k < c->at.degree && is_in(c, rank); k++)
            if (cover->representative[c->at.device[k]])
                return c->at.device[k];
    }
    int first = 0;
    while (first < s->ranks - 1 && !cover->representative[first])
        first++;
    return first;
}

weft_status weft_rank_cover_find(const weft_placed_iteration *plan, int ranks, weft_rank_cover *out)
{
    search s = {.plan = plan, .ranks = ranks, .best_size = ranks + 1};
    weft_rank_cover cover = {.ranks = ranks};
    s.dit = weft_calloc(plan->cascades + 1, sizeof *s.dit);
    s.times = weft_calloc(plan->cascades + 1, sizeof *s.times);
    s.weight = weft_calloc(ranks, sizeof *s.weight);
    s.now = weft_alloc(ranks);
    s.best = cover.representative = weft_alloc(ranks);
    cover.peer = weft_calloc(ranks, sizeof *cover.peer);
    weft_status_code status = WEFT_OK;
    if (!s.dit || !s.times || !s.weight || !s.now || !s.best || !cover.peer) {
        weft_rank_cover_free(&cover);
        WEFT_GO(weft_no_memory("%d ranks' gradients", ranks));
    }
    for (int32_t i = 0; i < plan->cascades; i++) {
        if (plan->cascade[i].module != WEFT_CASCADE_DIT)
            continue;
        s.dit[s.count++] = i;
        for (int64_t k = 0; k < plan->cascade[i].at.degree; k++)
            s.weight[plan->cascade[i].at.device[k]]++;
    }
    branch(&s);
    cover.count = s.best_size;
    cover.smallest = s.sets <= most_sets;
    for (int r = 0; r < ranks; r++)
        cover.peer[r] = cover.representative[r] ? r : peer_of(&s, &cover, r);
    *out = cover;
out:
    weft_free(s.dit);
    weft_free(s.times);
    weft_free(s.weight);
    weft_free(s.now);
    return status;
}

void weft_rank_cover_free(weft_rank_cover *cover)
{
    weft_free(cover->representative);
    weft_free(cover->peer);
    *cover = (weft_rank_cover){0};
}

int weft_rank_cover_group(const weft_rank_cover *cover, const weft_placed_iteration *plan,
                          int32_t index, int *list)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    int count = 0;
    for (int64_t i = 0; i < c->at.degree && !count; i++)
        if (cover->representative[c->at.device[i]])
            list[count++] = c->at.device[i];
    for (int64_t i = 0; i < c->at.degree; i++)
        if (!cover->representative[c->at.device[i]])
            list[count++] = c->at.device[i];
    return count;
}
