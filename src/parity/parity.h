/* weft parity: one row per kind of golden file. A kind is its file and its line in parity.c. */
#ifndef WEFT_CLI_PARITY_H
#define WEFT_CLI_PARITY_H

#include "format/safetensors.h"
#include "model/model.h"
#include "runtime/runtime.h"

typedef struct weft_parity {
    const char *file, *config_file;
    const char *weights_file; /* what --weights gave; NULL: the weights are in the file */
    json_t *json;
    weft_tensors *golden;
    const weft_tensors *weights; /* of the model's own names; NULL: param.* of `golden` */
    const weft_backend *backend;
    bool verbose;
    int failures, compared;
    /* of kinds that build a graph; freed by the verb */
    weft_model model;
    weft_model_size size; /* of the inputs */
    weft_graph *graph;
    weft_store *store;
    weft_program *program;
    double output_tolerance, gradient_tolerance;
    /* Of gradients: names of those that are looked at (NULL: all), and where names go of those that
     * are off, instead of counting as failures (NULL: they count) */
    const json_t *only;
    json_t *missed;
    weft_status (*fill)(struct weft_parity *p); /* the store; NULL: param.* of `golden` */
} weft_parity;

typedef struct weft_parity_kind {
    const char *name;
    bool (*is)(const json_t *json); /* by the file's own words */
    /* Compares with weft_parity_judge and prints a line; not WEFT_OK: a file is bad. */
    weft_status (*run)(weft_parity *p);
    bool alone; /* the JSON file has no tensors beside it */
} weft_parity_kind;
extern const weft_parity_kind weft_parity_shots, weft_parity_formulas, weft_parity_sampler,
    weft_parity_training, weft_parity_model, weft_parity_tokenizer, weft_parity_cleaning,
    weft_parity_dialect, weft_parity_blocks, weft_parity_lpips, weft_parity_patchgan,
    weft_parity_vaegan, weft_parity_tiled;

/* p->model, and p->graph. */
weft_status weft_parity_open_model(weft_parity *p);
/* The graph for the inputs that `golden` has. */
weft_status weft_parity_build(weft_parity *p);
/* Runs that graph with p->weights and holds its outputs against `golden`. */
weft_status weft_parity_forward(weft_parity *p, double *worst);

/* Graphs of no family. Pictures (B,C,Y,X) and videos (B,C,T,Y,X) become (B,T,Y,X,C), names are
 * the file's: inputs "in.x", parameters, outputs "x" for out.x and "grad.x" for grad.x.
 *
 * p->graph, empty, in the place of one that was there. */
weft_status weft_parity_open_graph(weft_parity *p);
/* An input of the graph for the golden tensor of that name. */
weft_value weft_parity_input(weft_parity *p, const char *name);
/* Outputs "grad.<name>" of all parameters and of such inputs. */
void weft_parity_output_slopes(weft_parity *p, weft_value loss);
/* Parameters and inputs from the file; runs; its out.* but `but` (NULL-terminated), and grad.*. */
weft_status weft_parity_run(weft_parity *p, const char *const *but, double worst[2]);

/* The golden tensor of that name; missing: WEFT_E_FORMAT. */
weft_status weft_parity_need(const weft_parity *p, const char *name, const weft_stored_tensor **t);
/* ||a-b|| / scale; NaN where a number is not finite. */
double weft_parity_error(const float *ours, const float *theirs, int64_t count, double scale);
double weft_parity_norm(const float *x, int64_t count);
/* Finite first, then !(error <= tolerance): NaN cannot pass. `scale` is what the norm of the
 * difference is divided by. Counts, prints what failed (all with --verbose), raises *worst. */
void weft_parity_judge(weft_parity *p, const char *what, const char *name, const float *ours,
                       const float *theirs, int64_t count, double scale, double tolerance,
                       double *worst);

#endif
