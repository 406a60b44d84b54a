/* Weights that stay loaded between the generators of a process. A generator with options.resident
 * takes its weights from here and loads the missing ones into here. Weights that no generator uses
 * are unloaded to make room, the least recently used first, and after some time without a use
 * (plan/queue/residency.h). */
#ifndef WEFT_GENERATE_GENERATOR_RESIDENT_WEIGHTS_H
#define WEFT_GENERATE_GENERATOR_RESIDENT_WEIGHTS_H

#include "base/json.h"
#include "exec/store/store.h"
#include "generate/generator/adapters.h"

typedef struct weft_resident_weights weft_resident_weights;
/* Weights that a generator uses: they stay loaded until they are returned. */
typedef struct weft_resident_loan weft_resident_loan;

typedef struct weft_resident_options {
    double idle; /* seconds without a use after which weights are unloaded; 0: never */
    /* Called after weights were loaded or unloaded, with the state as of weft_resident_json. Any
     * thread; must not call functions of this file. NULL: none. */
    void (*changed)(void *user, json_t *state);
    void *user;
} weft_resident_options;

weft_status weft_resident_create(const weft_resident_options *options,
                                 weft_resident_weights **resident);
/* All loans must have been returned. Accepts NULL. */
void weft_resident_free(weft_resident_weights *resident);
/* Names of the weights that are loaded from now on, in the reports: the model, and its adapters
 * ("": none). */
weft_status weft_resident_set_names(weft_resident_weights *resident, const char *model,
                                    const char *adapters);

/* Weights of one part of a model: its parameters, and the files from which they come. */
typedef struct weft_resident_part {
    const char *name;  /* "transformer" */
    weft_graph *graph; /* of this rank, with the parameters */
    const char *folder;
    const weft_adapter_choice *adapters; /* [adapter_count], merged into the parameters */
    int adapter_count;
    /* choice of layers in int8, whose weights are smoothed; NULL: none */
    const json_t *int8_layers;
    const weft_backend *backend;
    /* Fills a store that has every parameter of `graph`. */
    weft_status_code (*load)(void *user, weft_store *store);
    void *user;
} weft_resident_part;

/* Bytes of the part's parameters. */
int64_t weft_resident_part_bytes(const weft_resident_part *part);
/* *loan: the weights of `part`, if they are loaded and their files have not changed; else NULL. */
weft_status weft_resident_find(weft_resident_weights *resident, const weft_resident_part *part,
                               weft_resident_loan **loan);
/* Loads the weights of a part that weft_resident_find has not found. */
weft_status weft_resident_load(weft_resident_weights *resident, const weft_resident_part *part,
                               weft_resident_loan **loan);
/* Accepts NULL. */
void weft_resident_return(weft_resident_loan *loan);
/* The store with the weights of a loan. */
weft_store *weft_resident_store(const weft_resident_loan *loan);

/* Unloads weights without users until they have at most `room` bytes. */
void weft_resident_make_room(weft_resident_weights *resident, int64_t room);
/* Unloads weights whose last use is options.idle seconds ago. Returns the seconds until the next
 * weights are due; negative: none. Any thread. */
double weft_resident_unload_idle(weft_resident_weights *resident);
/* Bytes of all loaded weights. */
int64_t weft_resident_bytes(weft_resident_weights *resident);
/* {"weights": [{"model", "part", "adapters", "bytes"}], "loads": N, "unloads": N}, in the order of
 * loading. NULL: out of memory. */
json_t *weft_resident_json(weft_resident_weights *resident);

#endif
