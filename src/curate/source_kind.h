/* Kind of a source file, from its name. */
#ifndef WEFT_CURATE_SOURCE_KIND_H
#define WEFT_CURATE_SOURCE_KIND_H

typedef enum weft_source_kind {
    WEFT_SOURCE_KIND_VIDEO,   /* video, and every unknown name */
    WEFT_SOURCE_KIND_SIDECAR, /* .txt, .vtt, .json: captions of the video of the same name */
    WEFT_SOURCE_KIND_TABLE,   /* captions.csv: captions of videos in its folder and below */
    WEFT_SOURCE_KIND_OTHER    /* text, images and sound next to videos */
} weft_source_kind;

weft_source_kind weft_source_kind_of(const char *name);
/* Why a file counts as WEFT_SOURCE_KIND_OTHER, by its name; static. */
const char *weft_source_kind_why(const char *name);

#endif
