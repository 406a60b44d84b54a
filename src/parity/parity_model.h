/* Shared code of the kinds of golden model files: tensors, and a model with the golden weights. */
#ifndef WEFT_PARITY_PARITY_MODEL_H
#define WEFT_PARITY_PARITY_MODEL_H

#include "parity/parity.h"

/* Layout of a tensor in a golden file. PACKED: tokens, equal to weft's layout if a token is one
 * latent. */
typedef enum weft_parity_form {
    WEFT_PARITY_AS_HERE,
    WEFT_PARITY_BCTYX,
    WEFT_PARITY_BTCYX,
    WEFT_PARITY_PARTS, /* an image (B,C,Y py,X px) with 2x2 latents in each of weft's */
    WEFT_PARITY_PACKED
} weft_parity_form;
weft_parity_form weft_parity_form_of(const weft_port_row *row);

/* Converts between golden videos (B,C,T,Y,X) and weft's layout (B,T,Y,X,C). `from_golden`: golden
 * to weft, else weft to golden. */
void weft_parity_turn(const float *from, const int64_t bctyx[5], bool from_golden, float *to);
/* Sets *out to a golden tensor as f32 in weft's layout (heap). Rank 5: a video; rank 4: an image;
 * rank 6: the videos of several steps, contiguous. */
weft_status weft_parity_load(const weft_parity *p, const char *name, weft_parity_form form,
                             float **out);
/* Compiles p->graph and binds the program to a store with the golden weights. */
weft_status weft_parity_compile(weft_parity *p);
/* Returns the store's data of the golden parameter `golden_name`; NULL: none. */
const float *weft_parity_param(const weft_parity *p, const char *golden_name, int64_t *count);

/* Adds outputs "grad.<name>": the gradients of every parameter in the loss and of the inputs with a
 * golden gradient. */
void weft_parity_output_gradients(const weft_parity *p, weft_graph *g, weft_value loss);
/* Runs a graph once in f64 with the inputs and store of p->program, which must include its
 * inputs. */
weft_status weft_parity_exact(const weft_parity *p, const weft_graph *g, weft_program **exact);
/* Returns the norm of that program's gradient of the golden parameter `golden_name`; infinite:
 * none. */
double weft_parity_exact_gradient(const weft_parity *p, weft_program *exact,
                                  const char *golden_name);
/* A gradient in f64 below this share of the largest is zero in exact arithmetic. */
extern const double weft_parity_zero;

extern const weft_parity_kind weft_parity_model;
/* Opens p->model and p->graph. */
weft_status weft_parity_open_model(weft_parity *p);
/* Returns a new copy of the file's config without the fields that describe the recording; NULL: out
 * of memory. */
json_t *weft_parity_config(const weft_parity *p);
/* Builds the graph for the inputs in `golden`. */
weft_status weft_parity_build(weft_parity *p);
/* Runs that graph with p->weights and compares its outputs with `golden`. */
weft_status weft_parity_forward(weft_parity *p, double *worst);
/* Replaces p->graph by an empty graph without a family. Images (B,C,Y,X) and videos (B,C,T,Y,X)
 * become (B,T,Y,X,C); tensors of rank 1 to 3 stay. Names are those of the file: inputs "in.x",
 * parameters, outputs "x" for out.x and "grad.x" for grad.x. */
weft_status weft_parity_open_graph(weft_parity *p);
/* Adds an input to the graph for the golden tensor of that name. */
weft_value weft_parity_input(weft_parity *p, const char *name);
/* Adds outputs "grad.<name>" of all parameters and of the inputs with a golden gradient. */
void weft_parity_output_slopes(weft_parity *p, weft_value loss);
/* Runs the graph with the file's parameters and inputs. Compares grad.* and out.*, except the names
 * in `but` (NULL-terminated). */
weft_status weft_parity_run(weft_parity *p, const char *const *but, double worst[2]);

#endif
