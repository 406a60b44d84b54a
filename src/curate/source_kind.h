/* What a file is, by its name. */
#ifndef WEFT_CURATE_FOOTAGE_H
#define WEFT_CURATE_FOOTAGE_H

typedef enum weft_footage {
    WEFT_FOOTAGE_VIDEO,   /* or tried as one: everything that is not known to be none */
    WEFT_FOOTAGE_SIDECAR, /* .txt, .json: captions of the video of the same name */
    WEFT_FOOTAGE_OTHER    /* text, pictures and sound beside videos */
} weft_footage;

weft_footage weft_footage_of(const char *name);
/* Why a file is taken for WEFT_FOOTAGE_OTHER, by its name; static. */
const char *weft_footage_why(const char *name);

#endif
