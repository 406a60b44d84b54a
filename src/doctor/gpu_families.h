/* One training step of a small model of each family on the GPU, compared with stored numbers. The
 * comparison by ops (gpu_check.h) has no programs: this one also finds errors in their memory,
 * order and copies. */
#ifndef WEFT_DOCTOR_GPU_FAMILIES_H
#define WEFT_DOCTOR_GPU_FAMILIES_H

#include "base/json.h"
#include "kernel/kernel.h"
#include "model/model.h"

typedef struct weft_gpu_family {
    const char *config; /* NULL: the end of the list */
    weft_model_size size;
    const char *variant; /* another config of a class that is in the list; NULL: the first */
} weft_gpu_family;
/* Denoisers, autoencoders, encoders of text, images and identities, a vocoder, then variants. */
extern const weft_gpu_family weft_gpu_families[];

/* Loss and gradient norm of a step, and the loss after its update. */
enum { WEFT_FAMILY_LOSS, WEFT_FAMILY_NORM, WEFT_FAMILY_NEXT, WEFT_FAMILY_NUMBERS };

/* Runs the step and computes the loss after it. Weights and inputs are functions of their names
 * (base/rng.h). *name: class of the model, and the variant after it. */
weft_status weft_gpu_family_step(int family, const weft_backend *backend, weft_products products,
                                 double number[WEFT_FAMILY_NUMBERS], char name[64]);
/* Returns the stored numbers of a name. NULL: none. */
const double *weft_gpu_family_stored(const char *name);
/* Returns the largest relative difference between two lists of numbers; infinite for NaN.
 * *worst: its number. */
double weft_gpu_family_error(const double *number, const double *stored, int *worst);
/* Largest difference that passes. f32: sums have another order, and the worst family, an
 * autoencoder whose group norms divide by small deviations, has 8e-5 on cpu. bf16 has 2^-9 per
 * rounding, which some hundred nodes let grow; TF32 has 2^-12. In bf16 and TF32 larger differences
 * pass if bf16 on cpu has half of each. */
double weft_gpu_family_tolerance(weft_products products);
/* Runs the step of one family on the GPU by weft's own kernels, prints a line, and appends it to
 * `list`. Adds 1 to *failed if a number differs. Returns an error, which names the family, if the
 * step cannot run. */
weft_status weft_gpu_family_check(int family, weft_products products, json_t *list, int *failed);
/* Does this for all families in all precisions. *list: new, also after an error. */
weft_status weft_gpu_families_check(json_t **list, int *failed);

#endif
