/* Reads checkpoints with the names of other projects as tensors with the family's names and
 * shapes. */
#ifndef WEFT_MODEL_KEY_MAPPING_H
#define WEFT_MODEL_KEY_MAPPING_H

#include "format/tensors/tensors.h"
#include "model/model.h"

/* Returns the family of a file whose tensors `has` reports. Sets the key mapping and the prefix of
 * all names in the file. NULL: unknown. */
const weft_family *weft_key_mapping_detect(bool (*has)(void *user, const char *name), void *user,
                                           const weft_key_mapping **mapping, const char **prefix);
/* Writes the family's name for `name` (without the prefix) to out[size]. Marks of weft_rename_rule
 * for split or swapped tensors stay in the result. Returns false if the result does not fit. */
bool weft_key_mapping_rename(const weft_key_mapping *d, const char *name, char *out, size_t size);
/* Writes part `index` of a name with the mark "{a,b,c}" to out[size]. A name without the mark has
 * one part, itself. Returns false if the part does not exist or does not fit. */
bool weft_key_mapping_part(const char *name, int index, char *out, size_t size);
/* Removes the mark of a tensor with swapped halves from the name. Returns false if the name has no
 * such mark. */
bool weft_key_mapping_take_swapped(char *name);
/* Like weft_key_mapping_take_swapped, for the mark of interleaved parts. */
bool weft_key_mapping_take_interleaved(char *name);
/* Like weft_key_mapping_take_swapped, for the mark of a tensor that the model has several times. */
bool weft_key_mapping_take_copies(char *name);

/* Replaces the mark "[a,b]" in name[size] by the alternative that is a parameter of `g`. Names
 * in `g` begin with `scope`. If neither is a parameter, takes the first. */
void weft_key_mapping_choose(const weft_graph *g, const char *scope, char *name, size_t size);

/* Converts the tensors of `file` to parameters of `g`, a graph of a model of the family whose names
 * begin with `prefix`. Renames tensors, splits fused ones, swaps halves, and reshapes dims of 1 to
 * those of the model. Skips tensors of other models in the file (another prefix). A file of another
 * family is WEFT_E_FORMAT. */
weft_status weft_key_mapping_adopt(const weft_family *family, const weft_graph *g,
                                   const char *prefix, weft_tensors *file);
/* Sets the latent statistics of an autoencoder's config from the weights file at `path`, if the
 * file has them (LTX-Video). Files without statistics and folders without weights leave the config
 * unchanged. */
weft_status weft_key_mapping_statistics(const char *path, weft_model *model);
/* Opens `path` and calls weft_key_mapping_adopt. Adds the tensors of the folder of a companion
 * (weft_companion), if `g` has the companion's parameters. */
weft_status weft_key_mapping_open(const weft_family *family, const weft_graph *g,
                                  const char *prefix, const char *path, weft_tensors **file);

/* ---- from the model's names to foreign names ------------------------------------------------ */

enum { WEFT_KEY_MAPPING_PARTS = 8 };
/* A tensor of a key mapping, and the model's tensors that it consists of. */
typedef struct weft_foreign_tensor {
    char name[300];
    char part[WEFT_KEY_MAPPING_PARTS][300]; /* the model's names, in order along dim 0 */
    int parts;
    bool turned;      /* the halves of the rows are swapped */
    bool interleaved; /* the first halves of all parts, then the second halves */
    bool copies;      /* every part is the whole tensor */
    int ones;         /* trailing dims of 1 that the model's matrix lacks */
    bool channels;    /* the model's vector of C elements has the sizes (1,C,1,1) */
} weft_foreign_tensor;

/* Finds the foreign tensor that holds the model's tensor `name` (for a stacked parameter, one
 * item). `g` is a graph of the model, whose names begin with `scope`. Of several foreign names that
 * map to `name`, the result is the one with most characters replaced: the most specific rules
 * decide between kinds of blocks. Returns false if no foreign name maps to `name`. */
bool weft_key_mapping_foreign(const weft_key_mapping *d, const weft_graph *g, const char *scope,
                              const char *name, weft_foreign_tensor *foreign);
/* Returns the family's key mapping called `word` ("original") for the names of `g`. Of several
 * mappings, returns the one that leaves the fewest names unchanged. NULL: none. */
const weft_key_mapping *weft_key_mapping_named(const weft_family *family, const weft_graph *g,
                                               const char *scope, const char *word);

#endif
