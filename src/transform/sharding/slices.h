#ifndef WEFT_TRANSFORM_SHARDING_SLICES_H
#define WEFT_TRANSFORM_SHARDING_SLICES_H

#include "base/memory.h"
#include "graph/mesh.h"
#include "graph/op.h"

typedef struct weft_recipe_row weft_recipe_row;

typedef struct weft_recipe weft_recipe;

/* Layer slices: spatial layers run in `time` slices of frames, temporal layers in `space` slices of
 * spatial positions, each with a separate exchange. Counts are for all samples of a rank together,
 * with at least one slice per sample, and at most the groups per rank. Exchanges of the first
 * lift_* slices of a layer start while the previous layer runs. */
typedef enum weft_comm_overlap_kind {
    WEFT_COMM_OVERLAP_ON,
    WEFT_COMM_OVERLAP_OFF, /* one slice per sample, no early exchanges */
    WEFT_COMM_OVERLAP_AUTO /* chosen by the caller before the passes run */
} weft_comm_overlap_kind;
typedef struct weft_comm_overlap {
    int kind; /* weft_comm_overlap_kind */
    int64_t time, space, lift_time, lift_space;
    /* Any layers. `heads`: number of head groups in which attention exchanges tokens for heads
     * (Ulysses). `chunks`: number of token chunks in which products are all-reduced (tensor
     * parallel). 1: one exchange; 0: auto, which passes treat as 1 */
    int64_t heads, chunks;
    /* Bits 1 << WEFT_MADE_*: set explicitly, so that weft_comm_overlap_check rejects the setting if
     * nothing can be cut */
    unsigned explicit_keys;
} weft_comm_overlap;
/* clang-format off */
#define WEFT_COMM_OVERLAP_DEFAULT {.kind = WEFT_COMM_OVERLAP_ON, .time = 4, .space = 4, \
                             .lift_time = 1, .lift_space = 3, .heads = 1, .chunks = 1}
/* Index of a count in made[]: slices of frames, slices of positions, head groups, token chunks.
 * Count 0: nothing is cut. */
enum { WEFT_MADE_TIME, WEFT_MADE_SPACE, WEFT_MADE_HEADS, WEFT_MADE_CHUNKS, WEFT_MADE };

/* clang-format on */
extern const weft_comm_overlap weft_comm_overlap_default;
/* Returns true if a setting is left to the search (auto). */
bool weft_comm_overlap_has_auto(const weft_comm_overlap *overlap);
/* The axis of more than one rank whose rows cut layers; NULL: none. */
const char *weft_comm_overlap_axis(const weft_recipe *recipe, const weft_mesh *mesh);
/* The recipe row of a layer_norm that begins a layer with groups; NULL: `n` is another node. */
const weft_recipe_row *weft_comm_overlap_norm_row(const weft_recipe *recipe, const char *axis,
                                                  const weft_node *n);
/* Counts the slices of layers over frames and spatial positions in `own`, which the shard pass
 * created from `whole`. Also counts its head groups and token chunks. */
void weft_comm_overlap_count(const weft_graph *whole, const weft_graph *own,
                             const weft_recipe *recipe, int64_t made[WEFT_MADE]);
/* Prints "4 slices of frames, 2 of places (8 requested; a rank has no more), 4 groups
 * of heads". Prints nothing if nothing is cut. */
void weft_comm_overlap_format(const weft_comm_overlap *asked, const int64_t made[WEFT_MADE],
                              weft_buf *out);
/* Returns WEFT_E_CONFIG if a setting is explicit and `what` has nothing to cut in this way over its
 * ranks. `key`: prefix of the option or key, "--comm-overlap " or "parallel.comm_overlap.". */
weft_status weft_comm_overlap_check(const weft_comm_overlap *asked, const int64_t made[WEFT_MADE],
                                    const char *key, const char *what);
/* Bits of explicit_keys, and of settings that differ from the defaults. For a config, which does
 * not record the keys of its file. */
unsigned weft_comm_overlap_explicit_keys(const weft_comm_overlap *overlap);

#endif
