/* Layout of a run over its ranks: the config section `parallel`, and the resulting mesh. */
#ifndef WEFT_TRANSFORM_SHARDING_MESH_CONFIG_H
#define WEFT_TRANSFORM_SHARDING_MESH_CONFIG_H

#include "base/config.h"
#include "transform/sharding/pp_stages.h"
#include "transform/sharding/recipes.h"
#include "transform/sharding/slices.h"

/* AUTO: chosen by estimated cost (resolve_layout.h). HEADS: for models with spatial and temporal
 * layers. There ULYSSES exchanges frames for spatial positions, and HEADS exchanges positions for
 * heads. */
typedef enum weft_cp_kind {
    WEFT_CP_ULYSSES,
    WEFT_CP_RING,
    WEFT_CP_AUTO,
    WEFT_CP_HEADS
} weft_cp_kind;

/* How attention is split on the axis that splits tokens. */
typedef struct weft_cp_config {
    int kind;              /* weft_cp_kind; if a degree is set, only HEADS matters */
    int64_t ulysses, ring; /* degrees; 0: not set */
} weft_cp_config;

typedef struct weft_parallel {
    int64_t cfg;      /* generation: ranks that split CFG branches */
    const char *text; /* rank with the text encoders; NULL, "", "shared": all ranks */
    int64_t dp, fsdp; /* ranks that split samples; dp 0: all remaining */
    int64_t zero;     /* over the dp ranks: 0, 1, 2 (optimizer.h) */
    int64_t tp;
    int64_t ep;    /* ranks that split experts and samples */
    bool sequence; /* tp also splits tokens between its layers */
    int64_t cp;    /* 0: product of `context` */
    weft_cp_config context;
    weft_comm_overlap overlap; /* between layers where cp's split changes (layer_slices.c) */
    int64_t pp;                /* pipeline ranks (pp_stages.h) */
    const char *schedule;      /* pipeline schedule: a name or a file (pp_layout.h) */
    int64_t virtual_stages;    /* pipeline stages per rank; 0: by schedule */
    int64_t microbatches;      /* microbatches per batch; 0: automatic */
    weft_string_list order;    /* axes pp, dp, fsdp, ep, cp, tp, slowest first */
    const char *plan;          /* layout file that replaces all keys above; "": none */
} weft_parallel;
extern const weft_section weft_parallel_section, weft_cp_section, weft_comm_overlap_section;
/* The degrees of one rank. */
extern const weft_parallel weft_parallel_default;

/* Enumerates ways to split attention over `cp` ranks: every pair of ulysses and ring. With `heads`
 * (models with recipes of the axis "heads"), then every pair whose ulysses ranks exchange heads.
 * Returns false if `index` is past the last way. */
bool weft_parallel_context(int64_t cp, bool heads, int64_t index, weft_cp_config *out);

/* Prints the degrees as config options: "dp=2 cp=2 context=ring"; "1 rank" if nothing is split. */
void weft_parallel_name(const weft_parallel *p, weft_buf *out);
/* Returns the first key that differs from weft_parallel_default, except `plan`; NULL: none. */
const char *weft_parallel_is_set(const weft_parallel *p);

/* Makes the mesh of `ranks` ranks (0: product of the degrees). Its axes have more than one rank and
 * follow `order`:
 *
 *   dp, fsdp, ep, pp   unchanged
 *   cp                 "cp" (all-to-all), "ring", or ring outside and cp inside; "heads"
 *   tp                 "tp", or "sp" with `sequence`
 *
 * Returns WEFT_E_CONFIG, with `where` as its file, if cfg is above 1 (weft_parallel_mesh_denoise
 * accepts cfg), or if the product of the degrees is not the number of ranks. The message then has
 * possible numbers. */
weft_status weft_parallel_mesh(const weft_parallel *p, int ranks, const char *where,
                               weft_mesh *mesh);

/* Like weft_parallel_mesh, for a denoising batch. With `branches` 2 its rows are the prompts, then
 * the same rows without text. cfg is an outer part of the axis dp. Rejects pp. */
weft_status weft_parallel_mesh_denoise(const weft_parallel *p, int ranks, int branches,
                                       const char *where, weft_mesh *mesh);

/* Sets *rank to the rank that `text` names; -1: none. Returns WEFT_E_CONFIG if the rank does not
 * exist. */
weft_status weft_parallel_text(const weft_parallel *p, int ranks, const char *where, int *rank);

/* A graph of a step, and its number of runs per step. */
typedef struct weft_parallel_part {
    const weft_graph *graph; /* this rank's graph */
    int64_t times;
} weft_parallel_part;
/* Prints a table with one line per axis: ranks, what they split, bytes that this rank sends per
 * step. */
void weft_parallel_print(const weft_mesh *mesh, const weft_recipe_list *const *lists, int count,
                         int zero, const weft_parallel_part *part, int parts, weft_buf *out);

#endif
