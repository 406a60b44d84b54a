/* Names in adapter files: kind of a tensor, and the parameters of a model that it changes. Private
 * to model/adapter.c. */
#ifndef WEFT_MODEL_ADAPTER_NAMES_H
#define WEFT_MODEL_ADAPTER_NAMES_H

#include "model/family.h"

#include <stddef.h>

typedef enum weft_adapter_kind {
    WEFT_ADAPTER_DOWN,   /* A (rank, columns) */
    WEFT_ADAPTER_UP,     /* B (rows, rank) */
    WEFT_ADAPTER_ALPHA,  /* one number */
    WEFT_ADAPTER_SCALE,  /* one number: alpha / rank */
    WEFT_ADAPTER_WEIGHT, /* difference added to a weight */
    WEFT_ADAPTER_BIAS,   /* difference added to a bias */
    WEFT_ADAPTER_KINDS,
    WEFT_ADAPTER_FOREIGN = WEFT_ADAPTER_KINDS, /* unsupported kind of adapter */
    WEFT_ADAPTER_UNKNOWN
} weft_adapter_kind;

/* Returns the kind of the tensor `name`. *module is the length of the module name at the start of
 * `name`. FOREIGN: *foreign is the kind of adapter ("DoRA"). UP: *block is the number of a block of
 * the rows (LongCat-Video's lora_up.blocks), -1: B is whole. */
weft_adapter_kind weft_adapter_kind_of(const char *name, size_t *module, const char **foreign,
                                       int *block);

/* A parameter, or one item of a stacked parameter. */
typedef struct weft_adapter_target {
    const char *param; /* name in the graph */
    weft_shape shape;  /* shape of one item, unsharded */
    int64_t item;      /* index in the stack; -1: not stacked */
} weft_adapter_target;

/* Replaces the dots of a module in LongCat-Video's adapters. */
#define WEFT_ADAPTER_MARK "___lorahyphen___"

/* Maximum parts of a fused module. Parts are in the order of its rows. */
enum { WEFT_ADAPTER_PARTS = 8 };
typedef struct weft_adapter_targets {
    weft_adapter_target part[WEFT_ADAPTER_PARTS];
    int count;
    bool turned; /* the model swaps the halves of the rows */
    bool copies; /* every part has all rows */
} weft_adapter_targets;

/* Finds modules by the names of one key mapping. */
typedef struct weft_adapter_names {
    const weft_graph *graph;
    const char *scope; /* prefix of the model's names in the graph */
    const weft_key_mapping *mapping;
    char **word; /* sorted name components; used to split names with underscores */
    int64_t words, capacity;
} weft_adapter_names;
weft_status weft_adapter_names_open(const weft_graph *g, const char *scope,
                                    const weft_key_mapping *d, weft_adapter_names *names);
void weft_adapter_names_close(weft_adapter_names *names);
/* Finds the parameters of `module` that end with `end` (".weight"). `module` is a name of a file,
 * with any trainer's prefix. Returns false if the model has no such name in this key mapping. */
bool weft_adapter_names_find(const weft_adapter_names *names, const char *module, const char *end,
                             weft_adapter_targets *targets);

#endif
