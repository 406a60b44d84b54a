/* Adapters (model/adapter.h) merged into a model's weights when they are loaded. */
#ifndef WEFT_GENERATE_ADAPTERS_H
#define WEFT_GENERATE_ADAPTERS_H

#include "model/adapter.h"
#include "runtime/runtime.h"

typedef struct weft_adapter_choice {
    const char *path;
    double weight;
    int expert; /* 0: transformer, 1: transformer_2; -1: each that there is */
} weft_adapter_choice;

/* Whether those that are for `expert` can be read as this model's: before anything is loaded. */
weft_status weft_adapters_check(const weft_adapter_choice *choice, int count, int expert,
                                const weft_family *family, const weft_graph *whole,
                                const char *prefix);

/* Those that are for `expert`, opened (heap, closed by weft_adapters_close); *use NULL: none. */
weft_status weft_adapters_open(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const char *prefix, weft_adapter_use **use, int *uses);
void weft_adapters_close(weft_adapter_use *use, int uses);

/* Merges those that are for `expert` into the store's params of `own`, this rank's part of the
 * graph `whole`, whose names begin with `prefix`. Nothing is changed when one cannot be read. */
weft_status weft_adapters_load(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const weft_graph *own, const char *prefix, weft_store *store);

#endif
