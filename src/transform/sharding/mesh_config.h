/* How a run is laid over its ranks: the config section `parallel`, and the mesh that follows. */
#ifndef WEFT_PASS_PARALLEL_H
#define WEFT_PASS_PARALLEL_H

#include "base/config.h"
#include "pass/pass.h"
#include "pass/stage.h"

/* AUTO: by what each of them costs; whoever lays a run out decides (train/settle.h). HEADS: of
 * models with frames and places, whose ULYSSES turns one into the other, places into heads. */
typedef enum weft_context_kind {
    WEFT_CONTEXT_ULYSSES,
    WEFT_CONTEXT_RING,
    WEFT_CONTEXT_AUTO,
    WEFT_CONTEXT_HEADS
} weft_context_kind;

/* How attention is split where tokens are. */
typedef struct weft_context {
    int kind;              /* weft_context_kind, where the degrees are not given */
    int64_t ulysses, ring; /* degrees; 0: not given */
} weft_context;

typedef struct weft_parallel {
    int64_t cfg;      /* of generation: ranks that split the guidance halves, */
    const char *text; /* and the one with the text encoders; NULL, "", "shared": all have them */
    int64_t dp, fsdp; /* ranks that split samples; dp 0: as many as are left */
    int64_t zero;     /* of the dp ranks: 0, 1, 2 (train/optimizer.h) */
    int64_t tp;
    int64_t ep;    /* experts over ranks that split samples, too */
    bool sequence; /* tp also splits tokens between its layers */
    int64_t cp;    /* 0: as `context` says */
    weft_context context;
    weft_slices slices;     /* of layers between which cp's split changes (pass/slice.c) */
    int64_t pp;             /* ranks with stages of a pipeline (pass/stage.h) */
    const char *schedule;   /* of them: a name or a file (train/pipe.h) */
    int64_t virtual_stages; /* on each rank; 0: what the schedule needs */
    int64_t microbatches;   /* parts of each batch; 0: chosen */
    weft_string_list order; /* of pp, dp, fsdp, ep, cp, tp: slowest first */
    const char *plan; /* file of `weft plan layout --for`, instead of all the above; "": none */
} weft_parallel;
extern const weft_section weft_parallel_section, weft_context_section, weft_slices_section;
/* The degrees of one rank. */
extern const weft_parallel weft_parallel_default;

/* Way `index` to split attention over `cp` ranks: every pair of ulysses and ring, then, of models
 * with `heads` (recipes of the axis "heads"), every pair whose ulysses ranks exchange heads. False
 * past the last way. */
bool weft_parallel_context(int64_t cp, bool heads, int64_t index, weft_context *out);

/* As options of a config have it: "dp=2 cp=2 context=ring"; "1 rank" where nothing is split. */
void weft_parallel_name(const weft_parallel *p, weft_buf *out);
/* The first key of the section that is not as weft_parallel_default has it, but for `plan`; NULL:
 * none. */
const char *weft_parallel_given(const weft_parallel *p);

/* The mesh of `ranks` ranks (0: as many as the degrees make). Axes, in the order of `order`, those
 * of more than one rank:
 *
 *   dp, fsdp, ep, pp   as they are     cp   "cp" (all-to-all), "ring", or ring outside, cp inside;
 *                                           "heads"
 *   tp                 "tp", or "sp" with `sequence`
 *
 * WEFT_E_CONFIG, beginning with `where`: cfg (see below), degrees that do not make the ranks, with
 * those that do. */
weft_status weft_parallel_mesh(const weft_parallel *p, int ranks, const char *where,
                               weft_mesh *mesh);

/* The same for a denoising batch, whose rows are the prompts and behind them, with `halves` 2, the
 * same without text: cfg is an outer part of the axis dp. Stages are refused. */
weft_status weft_parallel_mesh_denoise(const weft_parallel *p, int ranks, int halves,
                                       const char *where, weft_mesh *mesh);

/* The rank that `text` names; -1: none. WEFT_E_CONFIG: there is no such rank. */
weft_status weft_parallel_text(const weft_parallel *p, int ranks, const char *where, int *rank);

/* One graph of a step and how often the step runs it. */
typedef struct weft_parallel_part {
    const weft_graph *graph; /* of this rank */
    int64_t times;
} weft_parallel_part;
/* A table, an axis a line: ranks, what they split, bytes that this rank sends over it in a step. */
void weft_parallel_print(const weft_mesh *mesh, const weft_recipe_list *const *lists, int count,
                         int zero, const weft_parallel_part *part, int parts, weft_buf *out);

#endif
