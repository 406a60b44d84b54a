/* Passes: named functions from graph to graph. Each leaves its input alone and returns a new graph
 * in *out, freed by the caller. The verifier runs behind each in tests and debug builds. The list
 * of them, with names, switches and what each changed, is pass/passes.h. */
#ifndef WEFT_PASS_PASS_H
#define WEFT_PASS_PASS_H

#include "graph/graph.h"

/* ---- recipes: which layouts make a parallelism --------------------------------------------- */

/* A recipe is data: rows "pattern over names, mesh axis -> layout" ('*' is any text). Names are
 * those of inputs, params, states and outputs, and "scope:op" for what a node makes
 * ("blocks.0.attn1:attention"); such an activation is converted to the layout right where it is
 * made. Per name and axis the first match wins. What nothing matches is R (sources, outputs) or
 * what the layout rules give (activations). Rows of axes that the mesh lacks do nothing. Where
 * several axes split one dim, the axis that the recipe names first splits it first. A row that says
 * nothing about the graph is an error, unless it is `optional`: a misspelt name would leave a
 * parameter whole, and nobody would notice. */
typedef struct weft_recipe_row {
    const char *pattern;
    const char *axis;
    /* R or S; S(WEFT_ANY_DIM) of a parameter: the first dim of the whole tensor that the ranks
     * divide, or else the longest; a scalar stays whole */
    weft_layout layout;
    bool gather;   /* params: split in memory only, gathered where they are used (FSDP) */
    bool optional; /* recipes that several models share: the graph need not have such a name */
    bool params;   /* it is about params only, whatever else has such a name */
    bool held;     /* what is exchanged here is not started before its place in the graph */
    bool piece;    /* and its readers stand behind what covers it (slices of layers) */
    /* Of a "scope:layer_norm" with which such a layer begins, S(1): a layer on (B,G,S,C) whose G
     * groups do not see each other (pass/slice.c) */
    int cut;
    /* Nodes: the expansion to compute them by, of those that the op's rule offers ("ring"); NULL:
     * the cheapest of all that it lists */
    const char *by;
} weft_recipe_row;
enum { WEFT_ANY_DIM = -1 };
/* What the groups of a layer are: frames, or places in a frame; or only samples are cut apart. */
enum { WEFT_CUT_NONE, WEFT_CUT_TIME, WEFT_CUT_SPACE, WEFT_CUT_SAMPLES };

/* Spatial layers in `time` slices of frames, temporal layers in `space` slices of places, of all
 * samples of a rank together and at least one of each, with exchanges of their own; parts of the
 * first lift_* slices of such a layer are exchanged while the layer before it is under way. No more
 * than there are groups for each rank. */
typedef enum weft_slices_kind {
    WEFT_SLICES_ON,
    WEFT_SLICES_OFF, /* one slice of each sample, nothing is lifted */
    WEFT_SLICES_AUTO /* as generation chooses, before there is a program: not for passes */
} weft_slices_kind;
typedef struct weft_slices {
    int kind; /* weft_slices_kind */
    int64_t time, space, lift_time, lift_space;
    /* Of any layers: attention that ranks exchange tokens for heads for, in so many groups of heads
     * (Ulysses), and products whose sums over ranks are exchanged, in so many chunks of tokens
     * (tensor parallel); 1: all at once; 0: auto, as 1 for passes */
    int64_t heads, chunks;
    /* Bits 1 << WEFT_MADE_*: asked for by name, so that it is an error where there is nothing to
     * cut (weft_slices_check) */
    unsigned given;
} weft_slices;
/* clang-format off */
#define WEFT_SLICES_DEFAULT {.kind = WEFT_SLICES_ON, .time = 4, .space = 4, \
                             .lift_time = 1, .lift_space = 3, .heads = 1, .chunks = 1}
/* clang-format on */
extern const weft_slices weft_slices_default;
/* Something of it is for prices to choose. */
bool weft_slices_open(const weft_slices *slices);

/* What a rank's graph has of each; 0: nothing is cut so. */
enum { WEFT_MADE_TIME, WEFT_MADE_SPACE, WEFT_MADE_HEADS, WEFT_MADE_CHUNKS, WEFT_MADE };

typedef struct weft_recipe {
    const char *name;
    const weft_recipe_row *row;
    int count;
    const weft_slices *slices; /* borrowed; NULL: layers stay whole */
} weft_recipe;

/* One parallelism: the rows of one axis. A model family has a list of its own for each axis that it
 * knows (model/family.h); the two that need no model are here. */
typedef struct weft_recipe_list {
    const char *axis;
    const char *what; /* "tensor parallel" */
    const weft_recipe_row *row;
    int count;
} weft_recipe_list;
/* Inputs "batch.*" split over samples; and that with every parameter split as well (ZeRO-3). */
extern const weft_recipe_list weft_recipe_list_dp, weft_recipe_list_fsdp;
/* Its ranks run other stages of a pipeline (pass/stage.h): nothing is split. */
extern const weft_recipe_list weft_recipe_list_stages;
/* The first of them by itself. */
extern const weft_recipe weft_recipe_dp;

/* The recipe of a mesh: dp, then of `lists` (by pointer; may be of several families) those whose
 * axis has more than one rank, then fsdp, which splits what is left. WEFT_E_ARG: an axis of more
 * than one rank that no list splits; the message has those that are known. Freed by
 * weft_recipe_free. */
weft_status weft_recipe_compose(const weft_recipe_list *const *lists, int count,
                                const weft_mesh *mesh, weft_recipe *recipe);
void weft_recipe_free(weft_recipe *recipe);
/* The list of an axis among those, dp and fsdp; NULL: none. */
const weft_recipe_list *weft_recipe_list_find(const weft_recipe_list *const *lists, int count,
                                              const char *axis);

/* The first row for `name` on `axis`; NULL: none. "blocks.0.*" is about sources and outputs only,
 * "blocks.0.*:attention" about what nodes make. */
const weft_recipe_row *weft_recipe_row_for(const weft_recipe *recipe, const char *axis,
                                           const char *name, bool is_param);
/* WEFT_E_ARG, saying which:
 *   - a row of an axis with more than one rank decides nothing in `g`: it matches no name, or rows
 *     before it take all that it matches;
 *   - an axis with more than one rank has no row: its ranks would all compute the same;
 *   - an axis gathers parameters, and one (that is no scalar) has no row: it would stay whole. */
weft_status weft_recipe_check(const weft_recipe *recipe, const weft_graph *g,
                              const weft_mesh *mesh);

/* The recipe keeps the parameter `param` split along `dim` on an axis of more than one rank, also
 * where it is used. */
bool weft_recipe_keeps_split(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                             weft_value param, int dim);

/* ---- experts ------------------------------------------------------------------------------- */
/* Where the recipe keeps whole experts of a stack on ranks: their products by expert instead of by
 * token, between a dispatch and a collect (pass/spread.c); *out NULL: there are none. What the
 * shard pass begins with. */
weft_status weft_pass_experts(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                              weft_graph **out);

/* ---- tokens -------------------------------------------------------------------------------- */
/* Where the recipe splits dim 1 of what nodes make: loss, noise and data in the order of tokens
 * (pass/tokens.c), so that a rank needs those of its own. *out NULL: nothing splits so, or there is
 * no loss that can be. Close: sums have another order. */
weft_status weft_pass_tokens(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                             weft_graph **out);

/* ---- shard (design: layouts and collectives) ----------------------------------------------- */
/* The graph of `rank`: local shapes, conversions inserted as ops, outputs converted to R unless the
 * recipe says otherwise. Forward graphs only: autodiff runs on the result. */
weft_status weft_pass_shard(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph **out);

/* read[i]: rank `rank` of the mesh reads element i of `input`, by the views and parts that are cut
 * of it in `g`, the sharded graph of any rank whose `input` has that shape. read[] comes cleared.
 */
weft_status weft_graph_reads(const weft_graph *g, weft_value input, int rank, bool *read);

/* ---- pack ---------------------------------------------------------------------------------- */
/* How a file packs the matrix `name` of this shape (graph/op.h); false: not at all. */
typedef bool weft_pack_fn(void *user, const char *name, const weft_shape *shape,
                          weft_attr_unpack *how);
/* Such parameters become u8 (..., blocks, bytes), each expanded where it is used. Bitwise what they
 * are when they are expanded in the store. Forward graphs of whole tensors. */
weft_status weft_pass_pack(const weft_graph *g, weft_pack_fn *of, void *user, weft_graph **out);

/* ---- slice --------------------------------------------------------------------------------- */
/* The axis with rows that cut and more than one rank; NULL: there is none. */
const char *weft_slices_axis(const weft_recipe *recipe, const weft_mesh *mesh);
/* The recipe row of a layer_norm that begins a layer over groups; NULL: `n` begins none. */
const weft_recipe_row *weft_slices_norm_row(const weft_recipe *recipe, const char *axis,
                                            const weft_node *n);
/* How many slices layers over frames and places have in `own`, which the shard pass made of
 * `whole`, into how many groups the heads of its attention are, and its products into chunks. */
void weft_slices_count(const weft_graph *whole, const weft_graph *own, const weft_recipe *recipe,
                       int64_t made[WEFT_MADE]);
/* "4 slices of frames, 2 of places (8 asked for: there are no more for each rank), 4 groups of
 * heads"; nothing where nothing is cut or was asked for. */
void weft_slices_tell(const weft_slices *asked, const int64_t made[WEFT_MADE], weft_buf *out);
/* WEFT_E_CONFIG: something was asked for by name, and `what` has nothing to cut so over its ranks.
 * `key`: where it was, "--slices " or "parallel.slices.". */
weft_status weft_slices_check(const weft_slices *asked, const int64_t made[WEFT_MADE],
                              const char *key, const char *what);
/* Those that differ from what it is without a word, as `given` has them: of a config, which does
 * not say what was in the file. */
unsigned weft_slices_asked(const weft_slices *slices);
/* What the shard pass does before it splits that axis, last of all: layers that the recipe's rows
 * name run slice by slice, and what changes its split between them is taken apart likewise. Values
 * are the same, to the bit where kernels do not look at how many groups there are. *out NULL: ranks
 * of another axis have different samples, so that layers are not alike. */
weft_status weft_pass_slice(const weft_graph *g, const weft_recipe *recipe,
                            const weft_slices *slices, weft_graph **out);

/* ---- narrow -------------------------------------------------------------------------------- */
/* What models compute is kept in bf16; parameters, losses and what needs many digits stay f32, and
 * so do sums of gradients over ranks unless `sums`. Forward graphs of one rank. */
weft_status weft_pass_narrow(const weft_graph *g, bool sums, weft_graph **out);

/* ---- recompute ----------------------------------------------------------------------------- */
/* What a forward node of a block leaves for the backward, and what becomes of it. A block is what
 * lies below a scope up to its first number ("transformer.blocks.3"). */
typedef struct weft_kept {
    /* Of its scope, its op and its place among those: the same in graphs of other sizes; 0: in no
     * block, or nothing is computed */
    uint64_t key;
    uint64_t like;  /* the same in all blocks */
    uint64_t block; /* 0: in none */
    int64_t bytes;  /* of what the backward reads of it, itself or by other names */
    bool stays;     /* is not made again: another block reads it, ranks exchange it, an output */
} weft_kept;
/* By node of the forward (heap, the caller's): *count nodes. Parameters that are only handed on
 * leave nothing. */
weft_status weft_kept_find(const weft_graph *g, weft_kept **kept, int32_t *count);

typedef enum weft_fate { WEFT_FATE_KEPT, WEFT_FATE_AGAIN, WEFT_FATE_AWAY } weft_fate;
/* Sorted by key; what is not in it is kept. */
typedef struct weft_fates {
    struct weft_fate_row {
        uint64_t key;
        weft_fate fate;
    } * row; /* heap */
    int64_t count;
} weft_fates;
weft_fate weft_fates_find(const weft_fates *fates, uint64_t key);

/* Outputs of forward nodes whose scope or op name matches one of `patterns`, or whose fate it is,
 * are not kept for the backward: their nodes are emitted again just before the first backward
 * consumer, and in blocks those between them and what is kept. Nodes that go away are marked so.
 * Bitwise. `fates` may be NULL. WEFT_E_ARG: a pattern matches nothing (graphs without a backward
 * are left as they are). */
weft_status weft_pass_recompute(const weft_graph *g, const char *const *patterns, int count,
                                const weft_fates *fates, weft_graph **out);

/* True: the pattern matches something of the forward. */
bool weft_recompute_chooses(const weft_graph *g, const char *pattern);

/* ---- regather ------------------------------------------------------------------------------ */
/* Parameters that are split in memory and gathered where they are used are gathered again in the
 * backward instead of kept whole until then. Bitwise. */
weft_status weft_pass_regather(const weft_graph *g, weft_graph **out);

/* ---- fuse ---------------------------------------------------------------------------------- */
/* A linear layer and its activation as one node, where nothing else reads the value between, which
 * is rounded as before. Bitwise. */
weft_status weft_pass_fuse(const weft_graph *g, weft_graph **out);

/* ---- halves -------------------------------------------------------------------------------- */
/* Products of a denoising batch, whose second half of rows is the first without text, in two: to
 * the bit what ranks with a half each compute. Forward graphs in which no axis splits the batch. */
weft_status weft_pass_halves(const weft_graph *g, weft_graph **out);

/* ---- order --------------------------------------------------------------------------------- */
/* Collectives as early, their first use as late as dependencies allow; dead nodes go. `room`: bytes
 * of gathered parameters that may be whole before their use; 0: the two largest. */
weft_status weft_pass_order(const weft_graph *g, int64_t room, weft_graph **out);

/* ---- offload ------------------------------------------------------------------------------- */
/* Values of nodes marked `away` are copied elsewhere as soon as they are there, and back before the
 * backward reads them; states whose names match one of `patterns` (of WEFT_OFFLOAD_LEAST bytes on)
 * are elsewhere between runs. `room`: bytes that may be under way in one direction; 0: what the two
 * largest need. Last of all passes: what it orders stays. Bitwise. */
enum { WEFT_OFFLOAD_LEAST = 64 << 10 };
weft_status weft_pass_offload(const weft_graph *g, const char *const *patterns, int count,
                              int64_t room, weft_graph **out);
/* A state of that name and size is elsewhere. */
bool weft_offload_state(const char *const *patterns, int count, const char *name, int64_t bytes);

/* ---- stream -------------------------------------------------------------------------------- */
/* Parameters of WEFT_OFFLOAD_LEAST bytes on lie elsewhere (weft_attr_source.away) and each block
 * that reads one fetches it, `room` bytes ahead of its use; 0: as much as the largest block has.
 * Tables whose rows are looked up are read where they lie. Forward graphs, last of all passes.
 * Bitwise. */
weft_status weft_pass_stream(const weft_graph *g, int64_t room, weft_graph **out);

/* ---- rounding: the verifier ---------------------------------------------------------------- */
/* WEFT_E_INTERNAL: an output or an update of `after` is not the expression on rounded values that
 * it is in `before`. `pass` names the pass between the two in the message. */
weft_status weft_rounding_check(const weft_graph *before, const weft_graph *after,
                                const char *pass);
/* WEFT_E_INTERNAL: a node of the narrowed forward `g` has bf16 where its op's row declares f32. */
weft_status weft_precision_check(const weft_graph *g);

/* ---- schedule: when collectives run -------------------------------------------------------- */
/* By node, for a collective or a copy elsewhere: the node before which it is waited for, the first
 * that reads what it makes (aliases read nothing), or one before that where operands of those under
 * way would hold on to more memory than the two largest collectives need, or copies may; the node
 * count: at the end of the run. -1 for other nodes. */
weft_status weft_schedule_waits(const weft_graph *g, int32_t *wait);
/* The graph as weft_graph_print has it, with "start" before each collective and a line "wait %9"
 * where its result must be there. */
weft_status weft_schedule_print(const weft_graph *g, weft_buf *out);

/* ---- lifetime: a place for every buffer ---------------------------------------------------- */

/* Where a value's bytes are. */
typedef enum weft_region {
    WEFT_REGION_ARENA,    /* activations: `offset` in the program's arena */
    WEFT_REGION_STORE,    /* params and states: the store's own memory, or a record's */
    WEFT_REGION_INPUT,    /* `offset` in the input area */
    WEFT_REGION_CONSTANT, /* `offset` in the constant area, for backends that keep copies of them */
    WEFT_REGION_AWAY,     /* `offset` in memory elsewhere: what offload makes but states */
} weft_region;

typedef struct weft_place {
    weft_region region; /* of the storage; for an alias that of its root */
    int64_t offset;     /* bytes in the region; -1: in the store, or an alias */
    int64_t bytes;      /* of the storage as kept by the backend, rounded up to 64 */
    int32_t alias_of;   /* value id that this one shares storage with, or -1 */
    int64_t shift;      /* of an alias: bytes behind the beginning of alias_of */
    /* Node indices between which it is live, inclusive; last = node count: to the end of the run
     * and until the next one. A storage that parts of a concat are made in lives from the first of
     * them */
    int32_t first, last;
} weft_place;

/* What the pass has to know about a backend; all members may be 0. */
typedef struct weft_lifetime_options {
    void *user;
    /* Bytes of scratch that the kernel for `node` needs. */
    int64_t (*workspace)(void *user, const weft_graph *g, int32_t node);
    /* Bytes of one element in storage (ref keeps floats as f64); NULL: weft_dtype_bytes. */
    int64_t (*element_bytes)(void *user, weft_dtype dtype);
    int64_t guard; /* bytes kept free before and after every arena buffer, a multiple of 64 */
    bool in_place; /* kernels write over their inputs where the op's row allows it */
    bool no_views; /* slices and concats copy */
    bool no_alias; /* no sharing except reshape and vary: each value is seen after the run */
} weft_lifetime_options;

typedef struct weft_memory_plan {
    weft_place *place; /* by value id; owned */
    int32_t count;
    int32_t *wait; /* by node index, as weft_schedule_waits has it; owned */
    /* By node index: nothing runs, its result is bytes that are there: reshape, vary, and slices
     * and concats that need not copy; owned */
    bool *view;
    int32_t node_count;
    int64_t arena_bytes;     /* activations: the peak, exactly what is reserved */
    int64_t live_bytes;      /* the most bytes live at one node: what no placement can beat */
    int64_t workspace_bytes; /* the largest kernel workspace, reserved once */
    int64_t source_bytes;    /* params and states of this graph on this rank, but for */
    int64_t streamed_bytes;  /* params that lie elsewhere (pass stream) */
    int64_t input_bytes;
    int64_t constant_bytes;
    int64_t away_bytes; /* of memory elsewhere */
} weft_memory_plan;
/* Sharing: reshape and vary are their input; a slice of rows that lie together is those rows of its
 * input; parts of a concat are made where they belong in it; an output takes the storage of an
 * input that dies there when the kernel allows it; an updated source is written where it is when
 * nothing reads the old value later. `options` NULL: no workspace, no in-place kernels. */
weft_status weft_pass_lifetime(const weft_graph *g, const weft_lifetime_options *options,
                               weft_memory_plan *plan);
/* Independent of how the plan was made: runs through the nodes with the bytes that each owns and
 * proves that whatever a node reads is still what was written there. */
weft_status weft_memory_plan_check(const weft_graph *g, const weft_lifetime_options *options,
                                   const weft_memory_plan *plan);
void weft_memory_plan_free(weft_memory_plan *plan);
/* The value that holds v's storage (v itself if it is no alias). */
int32_t weft_memory_plan_root(const weft_memory_plan *plan, int32_t value);
/* Where in that storage v begins, in bytes. */
int64_t weft_memory_plan_shift(const weft_memory_plan *plan, int32_t value);

#endif
