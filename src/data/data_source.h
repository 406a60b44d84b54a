/* The sources of a data set: sets of shards that a run blends. The samples of a source have the
 * keys NAME/KEY, so that keys and ids of different sources differ. */
#ifndef WEFT_DATA_DATA_SOURCE_H
#define WEFT_DATA_DATA_SOURCE_H

#include "base/config.h"
#include "base/status.h"

enum { WEFT_MAX_SOURCES = 1024, WEFT_SOURCE_NAME_BYTES = 64 };

typedef struct weft_data_source {
    const char *name;          /* "": the last folder of the path, see weft_data_source_name */
    const char *path, *split;  /* arguments of weft_dataset_open */
    double weight;             /* times that each sample occurs in an epoch */
    int64_t limit;             /* maximum number of samples; 0: all */
    const char *prompt_prefix; /* text before each caption; "": none */
} weft_data_source;
extern const weft_section weft_data_source_section;

/* How the loader uses the weights of the sources. */
typedef enum weft_blend {
    WEFT_BLEND_EXACT,   /* every epoch has the same number of samples of each source */
    WEFT_BLEND_SAMPLED, /* the source of every item is drawn at random */
    WEFT_BLEND_ONCE     /* weights are not used: each sample once per epoch */
} weft_blend;
extern const char *const weft_blend_names[]; /* of EXACT and SAMPLED */

/* Writes the name of a source and returns it. */
const char *weft_data_source_name(const weft_data_source *source,
                                  char name[WEFT_SOURCE_NAME_BYTES]);
/* Checks the names, which must differ, and the weights. `sources` is a list of weft_data_source;
 * `where` names the config and `key` the list in messages. */
weft_status weft_data_sources_check(const weft_section_list *sources, const char *where,
                                    const char *key);

#endif
