/* What the kinds of golden files of models share: tensors, and a model with the golden weights. */
#ifndef WEFT_CLI_PARITY_MODEL_H
#define WEFT_CLI_PARITY_MODEL_H

#include "cli/parity.h"

/* How a tensor lies in a golden file; PACKED are tokens, which lie there as they do here where one
 * is one latent. */
typedef enum weft_parity_form {
    WEFT_PARITY_AS_HERE,
    WEFT_PARITY_BCTYX,
    WEFT_PARITY_BTCYX,
    WEFT_PARITY_PACKED
} weft_parity_form;
weft_parity_form weft_parity_form_of(const weft_port_row *row);

/* Golden videos are (B,C,T,Y,X), ours (B,T,Y,X,C). to_ours: golden -> ours, else back. */
void weft_parity_turn(const float *from, const int64_t bctyx[5], bool to_ours, float *to);
/* A golden tensor as f32 in our layout (heap): of rank 5, an image of rank 4, or of rank 6 those of
 * several steps one behind the other. */
weft_status weft_parity_load(const weft_parity *p, const char *name, weft_parity_form form,
                             float **out);
/* The program of p->graph, bound to a store with the golden weights. */
weft_status weft_parity_compile(weft_parity *p);
/* What the store has of the golden file's parameter `theirs`; NULL: none. */
const float *weft_parity_param(const weft_parity *p, const char *theirs, int64_t *count);

/* Gradients of every parameter that the loss reaches, and of the inputs that the golden file has
 * gradients of, as outputs "grad.<name>". */
void weft_parity_output_gradients(const weft_parity *p, weft_graph *g, weft_value loss);
/* A graph whose inputs are among those of p->program, run once in f64 on its inputs and store. */
weft_status weft_parity_exact(const weft_parity *p, const weft_graph *g, weft_program **exact);
/* The norm of such a program's gradient of the golden file's parameter `theirs`; infinite: none. */
double weft_parity_exact_gradient(const weft_parity *p, weft_program *exact, const char *theirs);
/* Below this share of the largest, a gradient in f64 is zero in exact arithmetic. */
extern const double weft_parity_zero;

/* Tables of Skiparse, out.skiparse_single and _group, if the golden file has them: exactly. */
weft_status weft_parity_skips(weft_parity *p);

#endif
