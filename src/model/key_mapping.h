/* Checkpoints in the names of others, as tensors of a family's own names and shapes. */
#ifndef WEFT_MODEL_DIALECT_H
#define WEFT_MODEL_DIALECT_H

#include "format/tensors.h"
#include "model/model.h"

/* The family and dialect of a file whose tensors `has` tells, and what stands before all its names;
 * NULL: none that weft knows. */
const weft_family *weft_dialect_detect(bool (*has)(void *user, const char *name), void *user,
                                       const weft_dialect **dialect, const char **prefix);
/* `name` (without that prefix) as the family's own into out[size], with the rules' marks for
 * tensors that are cut or turned (weft_rename_rule); false: too long. */
bool weft_dialect_rename(const weft_dialect *d, const char *name, char *out, size_t size);
/* Part `index` of a name with the mark "{a,b,c}", into out[size]; without one it is its own and
 * only part. False: there are fewer, or it is too long. */
bool weft_dialect_part(const char *name, int index, char *out, size_t size);
/* Takes the mark of a turned tensor out of the name; false: there is none. */
bool weft_dialect_turned(char *name);
/* The same of parts whose halves lie in turn. */
bool weft_dialect_in_turn(char *name);

/* Makes the tensors of `file` those of params of `g` (of a model of the family, whose names begin
 * with `prefix` there): renamed, fused ones cut, halves exchanged, dims of 1 as the model has them.
 * Tensors beside the model's in one file (another prefix) are left out. A file of another family is
 * WEFT_E_FORMAT. */
weft_status weft_dialect_adopt(const weft_family *family, const weft_graph *g, const char *prefix,
                               weft_tensors *file);
/* Mean and deviation of an autoencoder's latents where its file at `path` has them beside the
 * weights (LTX-Video): they become those of the config. Files without them, and folders without
 * weights, leave it as it is. */
weft_status weft_dialect_statistics(const char *path, weft_model *model);
/* Opens `path` and adopts it. */
weft_status weft_dialect_open(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, weft_tensors **file);

/* ---- the other way -------------------------------------------------------------------------- */

enum { WEFT_DIALECT_PARTS = 8 };
/* A tensor as a dialect has it, and which of the model's it is made of. */
typedef struct weft_their_tensor {
    char name[300];
    char part[WEFT_DIALECT_PARTS][300]; /* the model's names, one behind the other along dim 0 */
    int parts;
    bool turned;  /* the halves of its rows change places */
    bool in_turn; /* the first halves of all parts, then the second ones */
    int ones;     /* dims of 1 that a matrix has behind the model's */
} weft_their_tensor;

/* The tensor of the dialect that holds the model's `name` (of an item, where that is one of a
 * stack). `g` is a graph of the model, whose names begin with `scope` there. Of several names that
 * would be read as it that one for which most of `name` is replaced; rules say in which blocks they
 * are meant where names of several kinds of blocks would do. False: there is none. */
bool weft_dialect_theirs(const weft_dialect *d, const weft_graph *g, const char *scope,
                         const char *name, weft_their_tensor *theirs);
/* The family's dialect `word` ("original") that the names of `g` are written in: of several that
 * one which leaves the fewest as they are. NULL: weft knows none. */
const weft_dialect *weft_dialect_named(const weft_family *family, const weft_graph *g,
                                       const char *scope, const char *word);

#endif
