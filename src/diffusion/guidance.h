/* Guidance: how what a model says with a prompt and without one become one answer. */
#ifndef WEFT_DIFFUSION_GUIDANCE_H
#define WEFT_DIFFUSION_GUIDANCE_H

#include <stdbool.h>
#include <stdint.h>

/* What the rows read: each its own. */
typedef struct weft_guiding {
    double scale;
    /* below this part of the times (0..1), low_scale; boundary 0: none */
    double low_scale, boundary;
    double rescale;             /* share that is brought to the deviation of `conditional` */
    int64_t each;               /* floats of one sample; 0: all that there are */
    double time;                /* where the walk is: 1 at noise, 0 at data */
    double eta, most, momentum; /* apg: share of what is parallel; norm cut; of the average */
    float *average;             /* apg: [count], 0 at the beginning; NULL: none */
} weft_guiding;

typedef struct weft_guidance {
    const char *name;
    const char *help;
    int rows;  /* of the model's batch for a prompt: 1, or 2 with the empty prompt's beside it */
    bool told; /* the model is told the scale instead */
    /* In place of `conditional`; NULL: it stays. */
    void (*combine)(const weft_guiding *g, float *conditional, const float *unconditional,
                    int64_t count);
} weft_guidance;

extern const weft_guidance *const weft_guidances[];        /* NULL-terminated */
const weft_guidance *weft_guidance_find(const char *name); /* NULL: none */
/* What a scale asks for: 1 changes nothing and saves half the work. */
const weft_guidance *weft_guidance_of(double scale);
/* The scale at g's place in the walk: that of the expert at work. */
double weft_guiding_scale(const weft_guiding *g);

#endif
