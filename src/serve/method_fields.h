/* The fields of a request that are further options of `weft generate`: windows and sections, the
 * schedule of the steps, guidance, and how inputs are used. A stored request has the values that
 * are not the defaults. `weft estimate` checks them with the price. */
#ifndef WEFT_SERVE_METHOD_FIELDS_H
#define WEFT_SERVE_METHOD_FIELDS_H

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

/* The property of a model that an option needs. */
typedef enum weft_method_need {
    WEFT_METHOD_ANY,        /* nothing */
    WEFT_METHOD_LEVELS,     /* a noise level per frame */
    WEFT_METHOD_SECTIONS,   /* sections in sequence */
    WEFT_METHOD_REASONING,  /* reasoning frames */
    WEFT_METHOD_STAGES,     /* latents of several sizes in sequence */
    WEFT_METHOD_EXPERTS,    /* two transformers */
    WEFT_METHOD_EMBEDDED,   /* an input for the guidance scale */
    WEFT_METHOD_DECODER,    /* a decoder with a timestep as input */
    WEFT_METHOD_IDENTITY,   /* an encoder of identity images */
    WEFT_METHOD_SOUND,      /* sound with the video */
    WEFT_METHOD_PERTURBED,  /* self-attention that can be perturbed */
    WEFT_METHOD_CONTROL,    /* control blocks */
    WEFT_METHOD_REFINEMENT, /* a pipeline that refines a coarse video */
    WEFT_METHOD_BLOCKS,     /* block-sparse attention that can be turned on and off */
    WEFT_METHOD_NEEDS
} weft_method_need;

enum { WEFT_METHOD_TEXT = 512, WEFT_METHOD_ARGUMENTS = 88, WEFT_METHOD_NUMBERS = 44 };

/* Sets the options of `fields` in `request`. An option that `fields` does not have is the one of
 * `base` (NULL: none), if the model takes the option. takes: [WEFT_METHOD_NEEDS] of the model
 * `name`. WEFT_E_ARG: the error's key is the field. */
weft_status weft_method_read(const json_t *fields, const json_t *base, const bool *takes,
                             const char *name, json_t *request);
/* The number of steps of a stored request's timesteps, sigmas or stages; 0: it has none. */
int64_t weft_method_steps(const json_t *request);
/* The options and the sampler of a stored request as "name=value;name=value", without '/'; "-":
 * none. Equal options have equal texts. */
void weft_method_text(const json_t *request, char text[WEFT_METHOD_TEXT]);
/* Sets the options of such a text in `request`. */
void weft_method_parse(const char *text, json_t *request);
/* Appends the options of a stored request for `weft generate` and `weft estimate` to arguments,
 * which borrow from the request and from `numbers`. Returns the count of arguments. */
int weft_method_arguments(const json_t *request, char numbers[][32], char **arguments);
/* The options that a model takes, for /capabilities. NULL: out of memory. */
json_t *weft_method_json(const bool *takes);

#endif
