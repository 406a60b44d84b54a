/* weft parity: one row per kind of golden file. A kind is its source file and its line in
 * parity_compare.c. */
#ifndef WEFT_PARITY_PARITY_H
#define WEFT_PARITY_PARITY_H

#include "exec/program.h"
#include "format/tensors/safetensors.h"
#include "kernel/kernel.h"
#include "model/model.h"
#include "parity/parity_record.h"

typedef struct weft_parity {
    const char *file, *config_file;
    const char *weights_file; /* argument of --weights; NULL: weights in `file` */
    json_t *json;
    weft_tensors *golden;
    const weft_tensors *weights; /* tensors with the model's own names; NULL: param.* of `golden` */
    const weft_backend *backend;
    bool verbose;                   /* lines of all comparisons, not only of failures */
    void (*line)(const char *text); /* receives the lines, without their end; NULL: dropped */
    /* runs `weft generate`; NULL: not possible */
    weft_status (*generate)(int argc, const char *const *argv);
    weft_parity_record record;
    /* set by kinds that build a graph; freed by weft_parity_compare */
    weft_model model;
    weft_model_size size; /* size of the inputs */
    weft_graph *graph;
    weft_store *store;        /* of the host */
    weft_store *device_store; /* parity_store.h; NULL: programs use `store` */
    weft_program *program;
    double output_tolerance, gradient_tolerance;
    /* Names of the gradients to compare, in `only` (NULL: all). Gradients over the tolerance are
     * added to `missed` instead of counting as failures (NULL: they count). */
    const json_t *only;
    json_t *missed;
    /* fills the store; NULL: from param.* of `golden` */
    weft_status (*fill)(struct weft_parity *p);
} weft_parity;

typedef struct weft_parity_kind {
    const char *name;
    bool (*is)(const json_t *json); /* recognizes the file by its JSON */
    /* Compares with weft_parity_judge and adds its measures to the record. Returns an error only
     * for an invalid file. */
    weft_status (*run)(weft_parity *p);
    bool alone; /* the JSON file comes without tensors */
} weft_parity_kind;

/* Whether "_class_name" is `name`. */
bool weft_parity_is_class(const json_t *json, const char *name);
/* Hands a line to p->line. */
void weft_parity_say(const weft_parity *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds a measure to the record. `of` is static. */
void weft_parity_measured(weft_parity *p, const char *of, double worst, double limit);
/* Adds the measures of outputs, worst[0], and gradients, worst[1]. */
void weft_parity_measured_both(weft_parity *p, const double worst[2]);
/* Counts a comparison of `name`. */
void weft_parity_count(weft_parity *p, const char *name, bool bad);

/* Sets *t to the golden tensor of that name. WEFT_E_FORMAT: not in the file. */
weft_status weft_parity_need(const weft_parity *p, const char *name, const weft_stored_tensor **t);
/* Returns ||a-b|| / scale, or NaN if an element is not finite. */
double weft_parity_error(const float *actual, const float *expected, int64_t count, double scale);
/* Returns whether an error is larger than the largest so far. NaN is larger than all numbers. */
bool weft_parity_is_larger(double error, double worst);
double weft_parity_norm(const float *x, int64_t count);
/* Fails unless all elements are finite and the error is at most `tolerance`, so that NaN fails.
 * `scale` divides the norm of the difference. Counts the comparison, says failures (with
 * p->verbose all comparisons) and raises *worst. */
void weft_parity_judge(weft_parity *p, const char *what, const char *name, const float *actual,
                       const float *expected, int64_t count, double scale, double tolerance,
                       double *worst);

#endif
