/* A model: a family and a config of it. */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "model/family.h"

enum { WEFT_MODEL_CONFIG_BYTES = 8192 };

typedef struct weft_model {
    const weft_family *family; /* NULL: no model */
    union {
        max_align_t align;
        unsigned char config[WEFT_MODEL_CONFIG_BYTES];
    };
} weft_model;

/* By "_class_name"; where that is absent, by fields that only one family has. */
weft_status weft_model_read(const json_t *json, const char *where, weft_model *model);
/* The same from a place with lines of its own; `class_name` NULL: as weft_model_read. */
weft_status weft_model_read_as(const char *class_name, const json_t *json,
                               const weft_places *places, weft_model *model);
/* Of a class, every field at its default. */
weft_status weft_model_default(const char *class_name, weft_model *model);
/* `path` is a config.json, the folder that holds one, or the name of a published size. */
weft_status weft_model_open(const char *path, weft_model *model);
/* The same, of this role; an error says what stands there instead. */
weft_status weft_model_open_as(const char *path, weft_role role, weft_model *model);
/* The model of this role in a pipeline's folder: it stands in its family's own. `path`
 * (heap, on success): that folder. */
weft_status weft_model_open_in(const char *pipeline, weft_role role, char **path,
                               weft_model *model);
json_t *weft_model_write(const weft_model *model);           /* new reference */
const char *weft_model_class(const weft_model *model);       /* "WanTransformer3DModel", ... */
const weft_family *weft_family_find(const char *class_name); /* NULL: none */
/* "AutoencoderKLWan, ..." of a role. */
void weft_family_list(weft_role role, weft_buf *out);

weft_grid weft_model_grid(const weft_model *model);
weft_statistics *weft_model_statistics(weft_model *model); /* an autoencoder's, in its config */
/* How it is told frames that are given. */
weft_given_frames weft_model_given(const weft_model *model);
/* Channels of the latents that are denoised: without those that follow them. */
int64_t weft_model_denoised(const weft_model *model);
/* An autoencoder's config: mean and deviation of its latents are those of the grid. */
void weft_model_set_statistics(weft_model *model, const weft_grid *grid);
weft_text_shape weft_model_text(const weft_model *model);
bool weft_model_has(const weft_model *model, weft_port port);
/* It has the port, and this config has a use for it. */
bool weft_model_takes(const weft_model *model, weft_port port);
/* WEFT_E_UNSUPPORTED where the model takes an input that is not in `given`, which weft's verb `who`
 * has nothing for. */
weft_status weft_model_accepts(const weft_model *model, const weft_port *given, int count,
                               const char *who);
weft_shape weft_model_shape(const weft_model *model, const weft_model_size *size, weft_port port);

/* An input of the graph for `port`, named <prefix><port's name>. */
weft_value weft_model_input(weft_graph *g, const weft_model *model, const weft_model_size *size,
                            weft_port port, const char *prefix);
/* One call, in the family's scope with `scoped` (as where several models are in one graph). */
void weft_model_call(weft_graph *g, const weft_model *model, weft_call call, bool scoped,
                     weft_ports *ports);
/* What a denoiser that was called answers, as processes and samplers mean it: of twice the channels
 * the second half is a variance, which no sampler here asks. */
weft_value weft_model_answer(weft_graph *g, const weft_model *model, const weft_ports *called);

/* The whole forward graph for one size, inputs and outputs named as their ports; `scoped` as above.
 * An autoencoder is encoded, sampled (mean + exp(logvar / 2) noise) and decoded; its
 * "reconstruction" is clamped. */
void weft_model_build(weft_graph *g, const weft_model *model, const weft_model_size *size,
                      bool scoped);
/* The smallest size that the model takes: to learn its parameters. */
weft_model_size weft_model_smallest(const weft_model *model);

#endif
