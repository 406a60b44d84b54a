/* Names in files of adapters: which part of an adapter a tensor is, and which parameters of a model
 * it is for. Private to model/adapter.c. */
#ifndef WEFT_MODEL_ADAPTER_NAMES_H
#define WEFT_MODEL_ADAPTER_NAMES_H

#include "model/family.h"

#include <stddef.h>

typedef enum weft_adapter_kind {
    WEFT_ADAPTER_DOWN,   /* A (rank, columns) */
    WEFT_ADAPTER_UP,     /* B (rows, rank) */
    WEFT_ADAPTER_ALPHA,  /* one number */
    WEFT_ADAPTER_WEIGHT, /* what is added to a weight as it is */
    WEFT_ADAPTER_BIAS,   /* or to a bias */
    WEFT_ADAPTER_KINDS,
    WEFT_ADAPTER_FOREIGN = WEFT_ADAPTER_KINDS, /* of another kind of adapter */
    WEFT_ADAPTER_UNKNOWN
} weft_adapter_kind;

/* What the tensor `name` is, and the length of its module's name, with which it begins. *foreign:
 * "DoRA", of a FOREIGN one. */
weft_adapter_kind weft_adapter_kind_of(const char *name, size_t *module, const char **foreign);

/* A parameter, or an item of one that is a stack. */
typedef struct weft_adapter_target {
    const char *param; /* the graph's */
    weft_shape shape;  /* of one item, whole */
    int64_t item;      /* -1: no stack */
} weft_adapter_target;

/* Parts of a fused module, in order of its rows. */
enum { WEFT_ADAPTER_PARTS = 8 };
typedef struct weft_adapter_targets {
    weft_adapter_target part[WEFT_ADAPTER_PARTS];
    int count;
    bool turned; /* its rows' halves change places in the model */
} weft_adapter_targets;

/* Looks modules up in the names of one dialect. */
typedef struct weft_adapter_names {
    const weft_graph *graph;
    const char *scope; /* before the model's names in the graph */
    const weft_dialect *dialect;
    char **word; /* what may stand between dots, sorted: to take names with underscores apart */
    int64_t words, capacity;
} weft_adapter_names;
weft_status weft_adapter_names_open(const weft_graph *g, const char *scope, const weft_dialect *d,
                                    weft_adapter_names *names);
void weft_adapter_names_close(weft_adapter_names *names);
/* The parameters of `module` (a name as in files, with any trainer's prefix) that end with `end`
 * (".weight"); false: the model has none of that name in this dialect. */
bool weft_adapter_names_find(const weft_adapter_names *names, const char *module, const char *end,
                             weft_adapter_targets *targets);

#endif
