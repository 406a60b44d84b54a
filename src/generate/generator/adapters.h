/* Merges adapters (model/adapter.h) into a model's weights when the weights are loaded. */
#ifndef WEFT_GENERATE_GENERATOR_ADAPTERS_H
#define WEFT_GENERATE_GENERATOR_ADAPTERS_H

#include "exec/store/store.h"
#include "model/adapter.h"

typedef struct weft_adapter_choice {
    const char *path;
    double weight;
    int expert; /* 0: transformer, 1: transformer_2; -1: every expert */
} weft_adapter_choice;

/* Checks, before anything is loaded, that the adapters for `expert` fit this model. */
weft_status weft_adapters_check(const weft_adapter_choice *choice, int count, int expert,
                                const weft_family *family, const weft_graph *whole,
                                const char *prefix);

/* Opens the adapters for `expert` (heap, closed by weft_adapters_close). *use NULL: none. */
weft_status weft_adapters_open(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const char *prefix, weft_adapter_use **use, int *uses);
void weft_adapters_close(weft_adapter_use *use, int uses);

/* Merges the adapters for `expert` into the store's parameters of `own`, this rank's shard of the
 * graph `whole`. Parameter names begin with `prefix`. Changes nothing if an adapter cannot be
 * read. */
weft_status weft_adapters_load(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const weft_graph *own, const char *prefix, weft_store *store);

#endif
