/* Caches between steps: a denoiser whose steps may take again what one before has added
 * (pass/reuse.h), and the rule that says when.
 *
 *     step     0    1    2    3    4    5    6    7                 warm 2, threshold of "moved"
 *              R    R    R    .    .    R    .    R     R refresh: everything runs, and is kept
 *     moved              .09  .03  .06  .11  .05        . reuse: what was kept is added again
 *              warm                              last
 *
 * State is of one denoiser program (an expert, with or without the second guidance half), of each
 * window of a video by itself, and forgotten when other prompts begin. All rows of a batch are
 * refreshed where one of them asks for it. The choice of blocks depends on global shapes only, and
 * the rule on sums over all ranks: every layout of ranks caches the same blocks in the same steps.
 */
#ifndef WEFT_GENERATE_CACHE_H
#define WEFT_GENERATE_CACHE_H

#include "format/safetensors.h"
#include "model/model.h"
#include "pass/passes.h"
#include "pass/reuse.h"
#include "runtime/runtime.h"

typedef struct weft_cache_rule {
    weft_reuse_what what;
    weft_reuse_signal signal; /* NONE: every `every`-th step refreshes */
    int64_t every;
    double threshold;
    /* How far the signal has moved since the step before, put through a polynomial (highest power
     * first) and added up (TeaCache); false: how far since it was refreshed (first block) */
    bool adds;
    double coefficient[5];
    int front;    /* blocks that always run, without a signal */
    double warm;  /* share of the steps at the beginning that all refresh; at least one */
    int64_t last; /* steps at the end that all refresh */
    int64_t run;  /* steps in a row that may reuse; 0: any */
} weft_cache_rule;

/* "off"; "conservative", "fast": the family's row for a model of this size and frames of so many
 * pixels; or a rule by name: block:T, teacache:T, every:N, attention:N, with ",warm=SHARE",
 * ",last=N", ",run=N", ",front=N" behind it. *on false: off. WEFT_E_UNSUPPORTED: no row. */
weft_status weft_cache_choose(const char *text, const weft_model *denoiser, int64_t pixels,
                              weft_cache_rule *rule, bool *on);
/* "first block 0.08" */
void weft_cache_name(const weft_cache_rule *rule, weft_buf *out);

typedef struct weft_cache weft_cache;

/* What it is made for. */
typedef struct weft_cache_place {
    const weft_graph *graph; /* of whole tensors, before WEFT_PASS_WHOLE; read during opening */
    const weft_pass_setup *setup;
    const weft_program_options *options;
    int64_t rows;    /* of the whole batch */
    int64_t windows; /* things denoised by themselves */
    /* Records, one of each window, are files' in this folder, borrowed; NULL: in memory */
    const char *away;
    weft_comm *comm; /* borrowed; NULL: one rank */
} weft_cache_place;

/* Graphs and programs; nothing large is reserved. */
weft_status weft_cache_open(const weft_cache_rule *rule, const weft_cache_place *place,
                            weft_cache **cache);
void weft_cache_free(weft_cache *cache); /* accepts NULL */
/* To be bound together with those that run by turns; how many. */
enum { WEFT_CACHE_PROGRAMS = 3 };
int weft_cache_programs(const weft_cache *cache, weft_program *list[WEFT_CACHE_PROGRAMS]);
/* Bytes of what is kept between programs and steps; programs themselves not. `mapped`: those of
 * files, else of memory. */
int64_t weft_cache_bytes(const weft_cache *cache, bool mapped);
weft_status weft_cache_reserve(weft_cache *cache);

/* Other prompts: nothing is kept yet. They are denoised in `steps` steps of this denoiser. */
void weft_cache_begin(weft_cache *cache, int64_t steps);
/* Step `step` of those, of one window: fill the inputs of *program (it need not have all), */
weft_status weft_cache_first(weft_cache *cache, int64_t window, int64_t step,
                             weft_program **program);
/* then it is run, and what else the step needs; *program is the one whose outputs are the step's.
 */
weft_status weft_cache_finish(weft_cache *cache, weft_program **program);

/* What this rank goes on from, between two steps: tensors named `prefix`.*, and from them, behind
 * weft_cache_begin. WEFT_E_FORMAT: they are not of such a cache. */
weft_status weft_cache_declare(const weft_cache *cache, const char *prefix,
                               weft_tensors_writer *writer);
weft_status weft_cache_write(const weft_cache *cache, const char *prefix,
                             weft_tensors_writer *writer);
weft_status weft_cache_read(weft_cache *cache, const char *prefix, const weft_tensors *from);

typedef struct weft_cache_report {
    int64_t runs, reused; /* of windows, all prompts */
    /* How much sooner than without: by FLOPs, and by the seconds that both kinds of steps took */
    double predicted, measured;
    int blocks, left;  /* of the graph, and blocks or attentions that are left out */
    const char *steps; /* of the last prompts, window 0: "R" and "." by what was asked */
} weft_cache_report;
weft_cache_report weft_cache_tell(const weft_cache *cache);

#endif
