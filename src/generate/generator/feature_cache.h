/* Feature cache between denoising steps: a denoiser whose steps may reuse the block outputs of an
 * earlier step (transform/numeric/feature_cache_graphs.h), and the rule that decides when.
 *
 *     step     0    1    2    3    4    5    6    7                 warm 2, threshold of "moved"
 *              R    R    R    .    .    R    .    R     R refresh: all blocks run and are saved
 *     moved              .09  .03  .06  .11  .05        . reuse: the saved residual is added
 *              warm                              last
 *
 * The state belongs to one denoiser program (an expert, with or without the unconditional branch)
 * and to one window of a video. New prompts clear the state. All rows of a batch are refreshed if
 * one row requires a refresh. The choice of blocks depends on global shapes only, and the rule on
 * sums over all ranks. Every layout therefore caches the same blocks in the same steps. */
#ifndef WEFT_GENERATE_GENERATOR_FEATURE_CACHE_H
#define WEFT_GENERATE_GENERATOR_FEATURE_CACHE_H

#include "comm/comm.h"
#include "exec/program.h"
#include "format/tensors/safetensors.h"
#include "model/model.h"
#include "transform/numeric/feature_cache_graphs.h"
#include "transform/passes.h"

typedef struct weft_feature_cache_rule {
    weft_feature_cache_kind what;
    weft_feature_cache_signal signal; /* NONE: every `every`-th step refreshes */
    int64_t every;
    double threshold;
    /* How the signal's change is measured. true: change since the previous step, through a
     * polynomial (highest power first), accumulated (TeaCache). false: change since the last
     * refresh (first block). */
    bool adds;
    double coefficient[5];
    int front;    /* first blocks that always run, if signal is NONE */
    double warm;  /* share of the steps, from the first, that refresh; at least one step */
    int64_t last; /* number of last steps that refresh */
    int64_t run;  /* consecutive steps that may reuse; 0: no limit */
} weft_feature_cache_rule;

typedef struct weft_feature_cache weft_feature_cache;

/* Inputs of weft_feature_cache_open. */
typedef struct weft_feature_cache_setup {
    const weft_graph *graph; /* unsharded, before WEFT_PASS_WHOLE; read during opening */
    const weft_pass_setup *setup;
    const weft_program_options *options;
    int64_t rows;    /* rows of the whole batch */
    int64_t windows; /* number of windows, each with its own state */
    /* Folder of files for the states, one per window, borrowed; NULL: in memory */
    const char *offload_dir;
    weft_comm *comm; /* borrowed; NULL: one rank */
} weft_feature_cache_setup;

/* Builds graphs and programs; reserves no large memory. */
weft_status weft_feature_cache_open(const weft_feature_cache_rule *rule,
                                    const weft_feature_cache_setup *cache_setup,
                                    weft_feature_cache **cache);
void weft_feature_cache_free(weft_feature_cache *cache); /* accepts NULL */
/* Lists the cache's programs and returns their number. Bind these together with programs that never
 * run at the same time. */
enum { WEFT_FEATURE_CACHE_PROGRAM_COUNT = 3 };
int weft_feature_cache_list_programs(const weft_feature_cache *cache,
                                     weft_program *list[WEFT_FEATURE_CACHE_PROGRAM_COUNT]);
/* Bytes of the state between programs and steps, without the programs. `mapped`: bytes in files,
 * else in memory. */
int64_t weft_feature_cache_bytes(const weft_feature_cache *cache, bool mapped);
weft_status weft_feature_cache_reserve(weft_feature_cache *cache);

/* Clears the state for new prompts, which take `steps` steps of this denoiser. */
void weft_feature_cache_begin(weft_feature_cache *cache, int64_t steps);
/* Begins step `step` of one window. Sets *program, whose inputs the caller fills; the program may
 * lack some inputs. */
weft_status weft_feature_cache_begin_step(weft_feature_cache *cache, int64_t window, int64_t step,
                                          weft_program **program);
/* Runs *program and any further program of the step. Sets *program to the one with the step's
 * outputs. */
weft_status weft_feature_cache_end_step(weft_feature_cache *cache, weft_program **program);

/* Saves and restores this rank's state between two steps, as tensors named `prefix`.*. Call
 * weft_feature_cache_read after weft_feature_cache_begin. WEFT_E_FORMAT: the tensors do not fit
 * this cache. */
weft_status weft_feature_cache_declare(const weft_feature_cache *cache, const char *prefix,
                                       weft_tensors_writer *writer);
weft_status weft_feature_cache_write(const weft_feature_cache *cache, const char *prefix,
                                     weft_tensors_writer *writer);
weft_status weft_feature_cache_read(weft_feature_cache *cache, const char *prefix,
                                    const weft_tensors *from);

typedef struct weft_feature_cache_stats {
    int64_t runs, reused; /* evaluations of windows, over all prompts */
    /* Speedup over no cache: by FLOPs, and by the measured seconds of refresh and reuse steps. */
    double predicted, measured;
    int blocks, left;  /* blocks of the graph; blocks or attentions skipped by a reuse */
    const char *steps; /* last prompts, window 0: "R" refresh, "." reuse, per evaluation */
} weft_feature_cache_stats;
weft_feature_cache_stats weft_feature_cache_get_stats(const weft_feature_cache *cache);

#endif
