/* The one list of passes: what they are called, what they do, in which order they run. Training,
 * generation and inspection go through it, so that what is inspected is what runs.
 *
 *   graph of whole tensors
 *      | tokens; shard, in it slice and lift; narrow  WEFT_PASS_WHOLE
 *   graph of one rank, forward
 *      | the caller: gradients, optimizer
 *   graph of one rank
 *      | recompute, regather, fuse, halves, order, offload, stream    WEFT_PASS_RANK
 *   what a program is compiled from
 *      | views: when its memory is planned (weft_program_options.no_views)
 */
#ifndef WEFT_PASS_PASSES_H
#define WEFT_PASS_PASSES_H

#include "base/config.h"
#include "pass/pass.h"

/* What a pass does to rounding. Only a pass that preserves it may be chosen by the memory limit, by
 * measured rates or by anything else that may differ between two starts of one run. */
typedef enum weft_pass_rounding {
    WEFT_ROUNDING_PRESERVED, /* results are bitwise identical with and without the pass; verified */
    WEFT_ROUNDING_CHANGED    /* other sums, products of other sizes, or other types */
} weft_pass_rounding;

/* ROW(name, default, rounding, description), in the order of running. */
#define WEFT_PASS_LIST(ROW)                                                                        \
    ROW(tokens, true, CHANGED,                                                                     \
        "takes noise and loss of the own tokens where an axis splits those")                       \
    ROW(slice, true, CHANGED,                                                                      \
        "cuts layers whose groups do not see each other into slices with an exchange each")        \
    ROW(lift, true, PRESERVED,                                                                     \
        "starts exchanges of the first slices during the layer before theirs")                     \
    ROW(recompute, true, PRESERVED,                                                                \
        "makes what `recompute` names, or memory.limit asks for, again in the backward")           \
    ROW(regather, true, PRESERVED,                                                                 \
        "gathers split parameters, or rounds them, again in the backward and keeps neither")       \
    ROW(fuse, true, PRESERVED,                                                                     \
        "puts an activation into the linear before it, where nothing else reads that")             \
    ROW(halves, true, CHANGED,                                                                     \
        "products of guidance halves one after the other: the bits of cfg=2")                      \
    ROW(order, true, PRESERVED,                                                                    \
        "starts collectives early, puts work behind them, drops dead nodes")                       \
    ROW(offload, true, PRESERVED,                                                                  \
        "copies what memory.offload names elsewhere, and back before it is read")                  \
    ROW(stream, true, PRESERVED,                                                                   \
        "fetches large weights from their files for each use (--weights stream)")                  \
    ROW(views, true, PRESERVED, "slices and concats of rows that lie together copy nothing")

/* True: the pass runs. The config section `passes` of weft_pass_section. */
typedef struct weft_pass_switches {
#define WEFT_PASS_MEMBER(name, fallback, rounding, help) bool name;
    WEFT_PASS_LIST(WEFT_PASS_MEMBER)
#undef WEFT_PASS_MEMBER
} weft_pass_switches;
extern const weft_section weft_pass_section;
/* All as the list says. */
extern const weft_pass_switches weft_pass_defaults;
/* Sets switches by "NAME=off" or "NAME=on"; the error lists the names. */
weft_status weft_pass_switch(weft_pass_switches *switches, const char *text);

typedef enum weft_pass_stage { WEFT_PASS_WHOLE, WEFT_PASS_RANK } weft_pass_stage;

/* What the passes are given; borrowed. */
typedef struct weft_pass_setup {
    const weft_pass_switches *switches; /* NULL: weft_pass_defaults */
    const weft_mesh *mesh;              /* NULL or one rank: nothing is sharded */
    int rank;
    const weft_recipe *recipe; /* of a mesh with more than one rank */
    bool narrow, narrow_sums;  /* models compute in bf16; gradients are added up over ranks in it */
    const char *const *recompute;
    int recompute_count;
    const weft_fates *fates; /* what memory.limit has become of what blocks keep; NULL: nothing */
    const char *const *away_states; /* patterns of states that are elsewhere between runs */
    int away_state_count;
    bool halves; /* rows of a denoising batch are two halves, and no axis splits them */
    bool stream; /* parameters are fetched for each use */
    /* bytes of copies under way in one direction, and of parameters gathered ahead of their use; 0:
     * what the two largest need */
    int64_t room;
    /* Is shown what WEFT_PASS_RANK begins with; NULL: nobody is */
    weft_status (*look)(void *user, const weft_graph *graph);
    void *look_user;
} weft_pass_setup;

/* What a pass changed, told by the graphs before and after it. */
typedef struct weft_pass_report {
    const char *name, *help;
    bool ran;          /* switched on, and there was something for it to do */
    bool off;          /* switched off */
    int32_t nodes[2];  /* before and after */
    weft_cost cost[2]; /* of the whole graph; bytes are what kernels move */
    int64_t peak[2];   /* the arena that a run of it would reserve, without in-place kernels */
    double seconds;    /* of the pass */
    char changed[320]; /* kinds of nodes that came and went, and what the pass has to say */
} weft_pass_report;

enum { WEFT_PASS_REPORTS = 16 };
typedef struct weft_pass_log {
    int count;
    weft_pass_report report[WEFT_PASS_REPORTS];
} weft_pass_log;

/* Runs the stage's passes and replaces *graph by what they make. The graphs in between are freed,
 * and so is the one that came in unless `keep`. With `log` (or NULL) each appends its report, which
 * costs a memory plan per pass. WEFT_E_INTERNAL: a pass that is declared to preserve rounding does
 * not. */
weft_status weft_passes_run(weft_pass_stage stage, const weft_pass_setup *setup, bool keep,
                            weft_graph **graph, weft_pass_log *log);
/* The rounding that the pass of this name declares; `shard` and `narrow` are passes, too. */
weft_pass_rounding weft_pass_rounding_of(const char *name);
/* A table, a pass a line. */
void weft_pass_log_print(const weft_pass_log *log, weft_buf *out);

#endif
