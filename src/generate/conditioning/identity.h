/* A picture of what videos are to be of: its tokens beside a prompt's (WeftIdentityEncoder). */
#ifndef WEFT_GENERATE_LIKENESS_H
#define WEFT_GENERATE_LIKENESS_H

#include "generate/given.h"

typedef struct weft_likeness_files {
    const char *picture; /* NULL: none is given */
    const char *module; /* folder of the encoder; NULL: "identity" in the model's, if it is there */
    double scale;       /* of its tokens: 0 as if none were given, 1 as trained */
} weft_likeness_files;

typedef struct weft_likeness {
    int64_t tokens, width; /* that the denoiser is told, zeros without a picture; 0: none */
    float *told;           /* (tokens, width), scaled; NULL: zeros */
    char *folder;          /* of the encoder; NULL: there is none */
    struct weft_likeness_work *work;
} weft_likeness;

/* Reads the encoder's config, and whether the denoiser can be told its tokens; lays the programs.
 * Nothing large is reserved. `fit` is weft_fit. */
weft_status weft_likeness_open(const weft_likeness_files *files, const weft_given_place *place,
                               int fit, weft_likeness *likeness);
/* Bytes that are needed while the picture is read. */
int64_t weft_likeness_work_bytes(const weft_likeness *likeness);
/* Encodes the picture; what was needed for that is gone afterwards. */
weft_status weft_likeness_read(weft_likeness *likeness);
void weft_likeness_free(weft_likeness *likeness);

#endif
