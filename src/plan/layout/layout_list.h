/* Candidates of a layout search: their order, why each lost, and their table.
 *
 *     training     estimate/training/layout_search.h       the programs of the run
 *     generation   estimate/generation/generation_layouts.h  the programs of the generator
 *     degrees      plan/pipeline/degree_search.h           operator lists, equal layers
 *     PULSE        plan/pipeline/pulse_search.h            Eq. 14-17 of the paper
 *
 * plan/layout/degree_space.h has the layouts and their rules. A search estimates them. Everything
 * else is here. */
#ifndef WEFT_PLAN_LAYOUT_LAYOUT_LIST_H
#define WEFT_PLAN_LAYOUT_LAYOUT_LIST_H

#include "base/memory.h"

/* Figures that order the layouts. */
typedef struct weft_layout_score {
    bool legal, fits;
    double seconds; /* minimised; counts only if the layout fits */
    double bytes;   /* peak memory of a rank; 0 if the layout is illegal */
} weft_layout_score;

/* Negative: `a` comes first. Layouts that fit come before legal ones, and these before illegal
 * ones. Fewer seconds come first, then fewer bytes. */
int weft_layout_compare(const weft_layout_score *a, const weft_layout_score *b);

typedef struct weft_layout_candidate {
    weft_layout_score score;
    const char *name;     /* decides ties */
    const char *why;      /* reason if not legal or does not fit; NULL: it fits */
    const double *cause;  /* [causes] parts of score.seconds; NULL: does not fit */
    const void *estimate; /* the search's own struct */
} weft_layout_candidate;

typedef struct weft_layout_list {
    weft_arena *arena;        /* owns the items and everything they point to */
    const char *const *cause; /* names of the parts of the seconds */
    int causes;
    weft_layout_candidate *item;
    int64_t count, fitting, legal;
    int64_t capacity;
    double seconds; /* duration of the search */
} weft_layout_list;

/* Copies the candidate, its name, `why` and its causes. */
weft_status weft_layout_list_add(weft_layout_list *list, const weft_layout_candidate *candidate);
/* Adds an estimated layout with the name in `name`, which is released. The list prints
 * candidate->why (NULL: none) after "does not fit: ", or "not possible: " if it is not legal. */
weft_status weft_layout_list_add_estimate(weft_layout_list *list, weft_layout_candidate candidate,
                                          weft_buf *name);
/* Sorts by weft_layout_compare, ties by name. */
void weft_layout_list_sort(weft_layout_list *list);
/* Moves item `index` to the front: a search that prefers a simpler layout. */
void weft_layout_list_prefer(weft_layout_list *list, int64_t index);
/* Explains why item `index` is not the first: its `why`, or the part of the seconds that grew
 * most. Appends nothing for the first item. */
void weft_layout_list_explain(const weft_layout_list *list, int64_t index, weft_buf *out);

/* How a search prints its layouts. */
typedef struct weft_layout_table {
    const char *head; /* title line */
    int width;        /* columns of the name */
    /* Appends the columns after the name, without the newline. */
    void (*row)(const weft_layout_candidate *candidate, weft_buf *out);
    /* Appends lines below the reason; NULL: none. */
    void (*detail)(const weft_layout_candidate *candidate, weft_buf *out);
    bool inline_why; /* reasons follow the columns; else they are on the next line */
} weft_layout_table;

/* Prints the items first <= i < end. `explain`: with reasons and details. */
void weft_layout_list_print(const weft_layout_list *list, const weft_layout_table *table,
                            int64_t first, int64_t end, bool explain, weft_buf *out);
/* Number of items to print without `explain`: at most 10, only layouts that fit. */
int64_t weft_layout_list_shown(const weft_layout_list *list, bool explain);
/* Prints "N layouts of R ranks estimated in S s: ..." without the newline. */
void weft_layout_list_summary(const weft_layout_list *list, int ranks, weft_buf *out);
/* The error of a search without a layout that fits; names the first item. */
weft_status weft_layout_list_infeasible(const weft_layout_list *list, int ranks,
                                        const weft_message_fields *at);

#endif
